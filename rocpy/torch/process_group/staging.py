# SPDX-License-Identifier: MIT
"""From torch's tensors to memory that RCCL takes and back: types it lacks, strides, lists of pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from rocpy._producers.torch_modes import kind_reason
from rocpy._producers.torch_refusals import advice, is_unreadable, refuse_layout
from rocpy.errors import InvalidOperandError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rocpy.rccl import Communicator

__all__ = [
    "apart",
    "as_bytes",
    "bound",
    "check_kind",
    "check_operator",
    "check_writable",
    "copied",
    "dense",
    "extents",
    "is_copied_as_it_is",
    "is_reduced_as_it_is",
    "operator_of",
    "reduced",
    "reducible",
    "spread",
]

_OWN = frozenset(
    (
        torch.int8,
        torch.uint8,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    )
)
# Reduced as they are, by every operator that is not bitwise.
_PLAIN = frozenset((*_OWN, torch.uint32, torch.uint64))
_OPERATORS = (
    (ReduceOp.SUM, "sum"),
    (ReduceOp.AVG, "avg"),
    (ReduceOp.PRODUCT, "prod"),
    (ReduceOp.MAX, "max"),
    (ReduceOp.MIN, "min"),
    (ReduceOp.BAND, "band"),
    (ReduceOp.BOR, "bor"),
    (ReduceOp.BXOR, "bxor"),
)
# Reduced in a wider type, which is cut back to their bits.
_WIDENED = (torch.int16, torch.uint16)
_OF_TRUTHS = {"sum": "max", "max": "max", "prod": "min", "min": "min"}


def operator_of(op: Any) -> str | float:
    """Return the operator's name, or the factor of a pre-multiplied sum.

    Raises
    ------
    UnsupportedError
        There is none such.
    """
    for known, name in _OPERATORS:
        if op == known:
            return name
    if op == ReduceOp.PREMUL_SUM:
        return float(op.factor)
    raise UnsupportedError(
        f"op: there is no {op}; use SUM, AVG, PRODUCT, MAX, MIN, BAND, BOR, BXOR, or a pre-multiplied sum"
    )


def check_operator(tensor: Tensor, operator: str | float) -> None:
    """Refuse a reduction that there is not, before any rank waits for it.

    Raises
    ------
    UnsupportedError
        The tensor's type has no such operator.
    """
    dtype = tensor.dtype
    if operator in ("band", "bor", "bxor"):
        if dtype.is_floating_point or dtype.is_complex:
            raise UnsupportedError(f"op: bitwise operators of {dtype}; they take integers and booleans")
    elif dtype in _PLAIN:
        return
    elif dtype == torch.bool:
        if operator not in _OF_TRUTHS:
            raise UnsupportedError(f"op: {operator} of booleans; use SUM, MAX, PRODUCT or MIN")
    elif dtype in _WIDENED:
        if operator == "avg":
            raise UnsupportedError(f"op: AVG of {str(dtype).removeprefix('torch.')}; use SUM and divide")
    elif not dtype.is_complex:
        raise UnsupportedError(
            f"op: {operator} of {dtype}, which RCCL does not reduce; convert it, for instance to torch.float32. "
            "Broadcasts, gathers and other copies take it"
        )
    elif operator not in ("sum", "avg") and not isinstance(operator, float):
        raise UnsupportedError(f"op: {operator} of complex numbers; use SUM or AVG")


def check_kind(tensor: Tensor, name: str) -> None:
    """Refuse a tensor that has no dense memory of its own.

    Raises
    ------
    InvalidOperandError
        It is sparse, quantized, nested, masked, not initialized, wraps other tensors, or has no memory.
    """
    if is_unreadable(tensor):
        refuse_layout(tensor, name)
    if tensor.layout != torch.strided:
        raise InvalidOperandError(f"{name}: layout {tensor.layout}; collectives take dense tensors: call to_dense()")
    if tensor.is_quantized:
        raise InvalidOperandError(f"{name}: quantized ({tensor.dtype}); send its int_repr(), or dequantize() it")
    if tensor.is_meta:
        raise InvalidOperandError(
            f"{name}: is on the meta device, which has no memory; create one with "
            "torch.empty_like(tensor, device='cpu')"
        )
    if type(tensor) is not Tensor and type(tensor) is not torch.nn.Parameter:
        reason = kind_reason(tensor)
        if reason is not None and torch._C._dispatch_keys(tensor).has(torch._C.DispatchKey.Python):
            raise InvalidOperandError(f"{name}: {reason}; {advice(reason)}")


def dense(tensor: Tensor, name: str = "tensor") -> Tensor:
    """Return a tensor's memory as a plain tensor: without its history and its class, and writable in any mode.

    Raises
    ------
    InvalidOperandError
        It has none: `check_kind` says why.
    """
    check_kind(tensor, name)
    if type(tensor) is not Tensor:
        tensor = tensor.as_subclass(Tensor)
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        # torch refuses to write it here, because it counts no versions; the tensors of other backends are written, too.
        alias = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return alias.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
    return tensor.detach() if tensor.requires_grad else tensor


def check_writable(tensor: Tensor, name: str) -> None:
    """Refuse a result several of whose elements share memory, before any rank waits for it.

    Raises
    ------
    InvalidOperandError
        It is expanded.
    """
    if tensor.is_contiguous():
        return
    if any(step == 0 and extent > 1 for extent, step in zip(tensor.shape, tensor.stride(), strict=True)):
        raise InvalidOperandError(
            f"{name}: shape {tuple(tensor.shape)} with strides {tensor.stride()}: several elements share memory, and a "
            "collective writes each; pass its .contiguous()"
        )


def _extent(tensor: Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    if tensor.is_contiguous():
        return start, start + tensor.nbytes
    steps = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (steps + 1) * tensor.element_size()


def extents(tensors: Iterable[Tensor]) -> list[tuple[int, int]]:
    """Return where the memory of each tensor begins and ends."""
    return [_extent(tensor) for tensor in tensors]


def apart(source: Tensor, results: Sequence[tuple[int, int]], in_place: int | None = None) -> Tensor:
    """Return an input, or a copy if its memory is also that of a result, which is written before the input is read.

    Parameters
    ----------
    source
        The input.
    results
        Where the results are.
    in_place
        An address at which the input may be, because the collective supports that.
    """
    start, end = _extent(source)
    if start == in_place:
        return source
    return source.clone() if any(low < end and start < high for low, high in results) else source


def is_copied_as_it_is(tensor: Tensor) -> bool:
    """Whether RCCL takes a tensor's type for what only moves it."""
    return tensor.dtype in _OWN


def is_reduced_as_it_is(tensor: Tensor, operator: str | float) -> bool:
    """Whether RCCL takes a tensor's type for a reduction, and the operator."""
    return tensor.dtype in _PLAIN and operator not in ("band", "bor", "bxor")


def _row(tensor: Tensor) -> Tensor:
    """Return a tensor's elements in one row."""
    held = dense(tensor)
    return (held.resolve_neg() if held.is_neg() else held).contiguous().reshape(-1)


def copied(tensor: Tensor) -> Tensor:
    """Return a tensor's elements in one row, for what only moves them: as bytes where RCCL lacks their type."""
    return _row(tensor) if tensor.dtype in _OWN else as_bytes(tensor)


def as_bytes(tensor: Tensor) -> Tensor:
    """Return a tensor's elements as a row of bytes."""
    row = _row(tensor).resolve_conj()
    # One element may have any stride, and none may have 0: torch views neither as bytes.
    return (row if row.stride(0) == 1 else row.as_strided(row.shape, (1,))).view(torch.uint8)


def spread(row: Tensor, target: Tensor) -> None:
    """Put a row that `copied` made of a tensor back into it, unless it is the tensor's own memory."""
    if row.data_ptr() == target.data_ptr() or row.numel() == 0:
        return
    dense(target).copy_(row.view(target.dtype).view(target.shape))


def reducible(tensor: Tensor, operator: str | float) -> tuple[Tensor, str | float]:
    """Return a tensor as RCCL reduces it, and the operator: booleans as bytes, 16 bits as int32, complex as pairs.

    Raises
    ------
    UnsupportedError
        There is no such reduction.
    """
    held = dense(tensor)
    dtype = held.dtype
    if dtype in _PLAIN:
        return (held.resolve_neg() if held.is_neg() else held).contiguous(), operator
    check_operator(held, operator)
    if dtype == torch.bool:
        return held.contiguous().view(torch.uint8), _OF_TRUTHS[str(operator)]
    if dtype in _WIDENED:
        return held.to(torch.int32).contiguous(), operator
    return torch.view_as_real(_row(held).resolve_conj()), operator


def reduced(row: Tensor, target: Tensor) -> None:
    """Put what `reducible` made of a tensor back into it, unless it is the tensor's own memory."""
    if row.data_ptr() == target.data_ptr() or row.numel() == 0:
        return
    held = dense(target)
    if held.dtype == torch.bool:
        held.copy_(row.view(torch.bool).view(held.shape))
    elif held.is_complex():
        held.copy_(torch.view_as_complex(row.view(*held.shape, 2)))
    else:
        held.copy_(row.view(held.shape))


def bound(comm: Communicator, operator: str | float, row: Tensor) -> Any:
    """Return the operator as a call on a communicator takes it."""
    return operator if isinstance(operator, str) else comm.premul_sum(operator, row.dtype)
