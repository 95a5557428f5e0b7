# SPDX-License-Identifier: MIT
"""From torch's tensors to memory that RCCL takes and back: types it lacks, strides, lists of pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from rocpy.errors import InvalidOperandError, UnsupportedError

if TYPE_CHECKING:
    from rocpy.rccl import Communicator

__all__ = [
    "as_bytes",
    "bound",
    "check_operator",
    "copied",
    "dense",
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


def dense(tensor: Tensor) -> Tensor:
    """Return a tensor's values without its history.

    Raises
    ------
    InvalidOperandError
        It is sparse, quantized, or has no memory.
    """
    if tensor.layout != torch.strided:
        raise InvalidOperandError(f"tensor: layout {tensor.layout}; collectives take dense tensors: call to_dense()")
    if tensor.is_quantized:
        raise InvalidOperandError(f"tensor: quantized ({tensor.dtype}); send its int_repr(), or dequantize() it")
    if tensor.is_meta:
        raise InvalidOperandError(
            "tensor: is on the meta device, which has no memory; create one with torch.empty_like"
        )
    return tensor.detach() if tensor.requires_grad else tensor


def is_copied_as_it_is(tensor: Tensor) -> bool:
    """Whether RCCL takes a tensor's type for what only moves it."""
    return tensor.dtype in _OWN


def is_reduced_as_it_is(tensor: Tensor, operator: str | float) -> bool:
    """Whether RCCL takes a tensor's type for a reduction, and the operator."""
    return tensor.dtype in _PLAIN and operator not in ("band", "bor", "bxor")


def copied(tensor: Tensor) -> Tensor:
    """Return a tensor's elements in one row, for what only moves them: as bytes where RCCL lacks their type."""
    row = dense(tensor).contiguous().reshape(-1)
    return row if row.dtype in _OWN else as_bytes(row)


def as_bytes(row: Tensor) -> Tensor:
    """Return a row's memory as bytes; torch views none of no elements whose stride is 0."""
    return row.view(torch.uint8) if row.numel() else row.new_empty(0, dtype=torch.uint8)


def spread(row: Tensor, target: Tensor) -> None:
    """Put a row that `copied` made of a tensor back into it, unless it is the tensor's own memory."""
    if row.data_ptr() == target.data_ptr() or row.numel() == 0:
        return
    target.detach().copy_(row.view(target.dtype).view(target.shape))


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
    return torch.view_as_real(held.resolve_conj()).contiguous(), operator


def reduced(row: Tensor, target: Tensor) -> None:
    """Put what `reducible` made of a tensor back into it, unless it is the tensor's own memory."""
    if row.data_ptr() == target.data_ptr() or row.numel() == 0:
        return
    held = target.detach()
    if held.dtype == torch.bool:
        held.copy_(row.view(torch.bool).view(held.shape))
    elif held.is_complex():
        held.copy_(torch.view_as_complex(row.view(*held.shape, 2)))
    else:
        held.copy_(row.view(held.shape))


def bound(comm: Communicator, operator: str | float, row: Tensor) -> Any:
    """Return the operator as a call on a communicator takes it."""
    return operator if isinstance(operator, str) else comm.premul_sum(operator, row.dtype)
