# SPDX-License-Identifier: MIT
"""Reductions that RCCL lacks, of what all ranks have gathered: bitwise operators, and sums of sparse tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rocpy._fp_environment import default_arithmetic
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError
from rocpy.torch.process_group.staging import as_bytes, copied

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocpy.rccl import Communicator
    from rocpy.torch.process_group.lanes import How

__all__ = ["BITWISE", "bitwise_all_reduce", "bitwise_reduce_scatter", "check_sparse", "sparse_all_reduce"]

BITWISE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}
# Of a rank's part that is gathered at a time.
CHUNK_BYTES = 1 << 20
# Types of which torch adds sparse tensors.
_ADDED = frozenset(
    (
        *(torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16),
        *(torch.float32, torch.float64, torch.complex64, torch.complex128),
    )
)


def _combined(parts: Tensor, operator: str) -> Tensor:
    """Combine the rows of a matrix."""
    total = parts[0].clone()
    for part in parts[1:]:
        total = BITWISE[operator](total, part)
    return total


def bitwise_all_reduce(comm: Communicator, tensor: Tensor, operator: str, how: How) -> Tensor:
    """Combine a tensor over the ranks; returns the bytes of the result."""
    row = as_bytes(tensor)
    total = torch.empty_like(row)
    # Once even of no elements: ranks that have some would wait.
    for start in range(0, max(row.numel(), 1), CHUNK_BYTES):
        part = row[start : start + CHUNK_BYTES]
        gathered = part.new_empty((comm.nranks, part.numel()))
        comm.all_gather(part, out=gathered, **how)
        total[start : start + CHUNK_BYTES] = _combined(gathered, operator)
    return total


def bitwise_reduce_scatter(comm: Communicator, tensor: Tensor, operator: str, how: How) -> Tensor:
    """Combine a tensor over the ranks; returns the bytes of this rank's part."""
    row = as_bytes(tensor)
    traded = torch.empty_like(row)
    comm.all_to_all(row, out=traded, **how)
    return _combined(traded.view(comm.nranks, -1), operator)


def check_sparse(tensor: Tensor, operator: str | float) -> None:
    """Refuse what there is not for a sparse tensor, before any rank waits for it.

    Raises
    ------
    UnsupportedError
        The operator is not a sum, or torch does not add sparse tensors of its type.
    InvalidOperandError
        It may be the real view of a complex inference tensor, which does not say whose view it is.
    """
    if operator != "sum":
        raise UnsupportedError(f"op: {operator} of sparse tensors; use SUM")
    if tensor.dtype not in _ADDED:
        raise UnsupportedError(
            f"tensor: a sparse tensor of {tensor.dtype}, which torch does not add; convert it, for instance to "
            "torch.float32"
        )
    may_be_view = tensor.is_floating_point() and tensor.dense_dim() > 0 and tensor.shape[-1] == 2
    if may_be_view and tensor.is_inference():
        raise InvalidOperandError(
            f"tensor: a sparse inference tensor of shape {tuple(tensor.shape)} or a real view of a complex one, to "
            "which no sum is written; pass a clone() made outside torch.inference_mode"
        )


def _complex_of(tensor: Tensor) -> Tensor | None:
    """Return the complex sparse tensor whose real view this is, which torch passes instead; it has its own entries."""
    base = tensor._base
    if base is None or not base.is_complex() or tensor.is_complex() or tensor.shape != (*base.shape, 2):
        return None
    views = ((tensor._indices(), base._indices()), (tensor._values(), base._values()))
    return base if all(view.data_ptr() == own.data_ptr() for view, own in views) else None


@default_arithmetic
def _coalesced(tensor: Tensor) -> Tensor:
    return tensor.coalesce()


@default_arithmetic
def _sum_of(indices: Tensor, values: Tensor, shape: torch.Size) -> Tensor:
    """Return the sparse tensor of entries, those with one index added; 16-bit floats are rounded once, as in RCCL."""
    wide = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
    # On their own device, whatever torch's default device is.
    total = torch.sparse_coo_tensor(indices, wide, shape, device=values.device, check_invariants=False).coalesce()
    return total if wide is values else total.to(values.dtype)


def sparse_all_reduce(comm: Communicator, tensor: Tensor, how: How) -> None:
    """Sum a sparse tensor (coordinate format) over the ranks, in place; ranks may have different elements."""
    held = _coalesced(tensor.detach())
    indices, values = held.indices().contiguous(), held.values().contiguous()
    shape = torch.tensor([held.sparse_dim(), *held.shape], dtype=torch.int64, device="cpu")
    # The number of dimensions first, so that the shapes that follow are of one length.
    known = torch.tensor([indices.shape[1], shape.numel()], dtype=torch.int64, device="cpu")
    counts = known.new_empty((comm.nranks, 2))
    comm.all_gather(known, out=counts, **how)
    if not bool((counts[:, 1] == shape.numel()).all()):
        raise InvalidProblemError(f"tensor: the ranks' sparse tensors have {(counts[:, 1] - 1).tolist()} dimensions")
    shapes = shape.new_empty((comm.nranks, shape.numel()))
    comm.all_gather(shape, out=shapes, **how)
    if not bool((shapes == shape).all()):
        raise InvalidProblemError(
            f"tensor: the ranks' sparse tensors differ in shape or in sparse dimensions: {shapes[:, 1:].tolist()}"
        )
    most = int(counts[:, 0].max())
    parts = [_gathered(comm, indices.t(), most, how), _gathered(comm, values, most, how)]
    chosen = [[part[rank, :count] for rank, count in enumerate(counts[:, 0].tolist())] for part in parts]
    total = _sum_of(torch.cat(chosen[0]).t(), torch.cat(chosen[1]), held.shape)
    whole = _complex_of(tensor)
    with torch.no_grad():  # not by detach(), whose result does not share the number of elements
        tensor.copy_(total)
        if whole is not None:
            whole.copy_(torch.view_as_complex(total))


def _gathered(comm: Communicator, rows: Tensor, most: int, how: How) -> Tensor:
    """Gather rows of which each rank has its own number; returns (ranks, most, ...)."""
    own = rows.new_zeros((most, *rows.shape[1:]))
    own[: rows.shape[0]] = rows
    whole = rows.new_empty((comm.nranks, *own.shape))
    if own.numel():  # the ranks agree on the shape: all of them gather, or none
        target = copied(whole)
        comm.all_gather(copied(own), out=target, **how)
        whole = target.view(whole.dtype).view(whole.shape)
    return whole
