# SPDX-License-Identifier: MIT
"""Each collective on one tensor of any type: what RCCL is given in its place, and what the ranks compare.

Where RCCL lacks a tensor's type or an operator, it is given bytes, wider integers, pairs, or a gather. Two ranks whose
tensors or operators differ may then make the same call. Such calls are described, so that the ranks compare the
tensor's own type, its number of elements and the operator.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rocpy.rccl import group
from rocpy.rccl.engine.described import Described
from rocpy.torch.process_group.caller import inference_mode
from rocpy.torch.process_group.gathered import BITWISE, bitwise_all_reduce, bitwise_reduce_scatter, sparse_all_reduce
from rocpy.torch.process_group.staging import (
    apart,
    bound,
    copied,
    extents,
    is_copied_as_it_is,
    is_reduced_as_it_is,
    reduced,
    reducible,
    spread,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocpy.rccl import Communicator
    from rocpy.torch.process_group.lanes import How

__all__ = [
    "all_gather",
    "all_gather_list",
    "all_reduce",
    "all_to_all",
    "all_to_all_v",
    "barrier",
    "broadcast",
    "gather",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_list",
    "scatter",
    "send",
]


_UNDESCRIBED: AbstractContextManager[None] = nullcontext()


def _name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _copy(comm: Communicator, tensor: Tensor, root: int | None = None) -> AbstractContextManager[None]:
    """Describe a call that moves a tensor, if RCCL is given bytes in its place."""
    if is_copied_as_it_is(tensor):
        return _UNDESCRIBED
    at = "" if root is None else f", root={root}"
    return Described(comm, f"(count={tensor.numel()}, dtype={_name(tensor)}{at})")


def _reduction(
    comm: Communicator, call: str, tensor: Tensor, operator: str | float, root: int | None = None
) -> AbstractContextManager[None]:
    """Describe a call that combines tensors, if RCCL is given another type or another call in its place."""
    if is_reduced_as_it_is(tensor, operator):
        return _UNDESCRIBED
    op = operator if isinstance(operator, str) else "premul_sum"
    at = "" if root is None else f", root={root}"
    return Described(comm, f"{call}(count={tensor.numel()}, dtype={_name(tensor)}, op={op}{at})")


# ---- reductions ----


def all_reduce(comm: Communicator, tensor: Tensor, operator: str | float, how: How) -> None:
    """Combine a tensor over the ranks, in place; a sparse one is summed."""
    if tensor.layout == torch.sparse_coo:
        described = Described(comm, f"all_reduce(sparse, dtype={_name(tensor)}, op={operator})")
        with described, inference_mode(tensor.is_inference()):
            sparse_all_reduce(comm, tensor, how)
        return
    with _reduction(comm, "all_reduce", tensor, operator):
        if operator in BITWISE:
            spread(bitwise_all_reduce(comm, tensor, str(operator), how), tensor)
            return
        row, op = reducible(tensor, operator)
        comm.all_reduce(row, out=row, op=bound(comm, op, row), **how)
    reduced(row, tensor)


def reduce(
    comm: Communicator, tensor: Tensor, operator: str | float, root: int, output: Tensor | None, how: How
) -> None:
    """Combine a tensor at one rank, which passes the output; it may be the tensor itself."""
    with _reduction(comm, "reduce", tensor, operator, root):
        if operator in BITWISE:
            total = bitwise_all_reduce(comm, tensor, str(operator), how)
            if output is not None:
                spread(total, output)
            return
        row, op = reducible(tensor, operator)
        out = None if output is None else row if output is tensor else torch.empty_like(row)
        comm.reduce(row, root=root, out=out, op=bound(comm, op, row), **how)
    if output is not None and out is not None:
        reduced(out, output)


def reduce_scatter_list(
    comm: Communicator, parts: Sequence[Tensor], output: Tensor, operator: str | float, how: How
) -> None:
    """Combine a tensor for each rank, which may differ in size; each rank gets its own."""
    later = [apart(part, extents([output])) for part in parts[comm.rank + 1 :]]
    for rank, part in enumerate((*parts[: comm.rank + 1], *later)):
        reduce(comm, part, operator, rank, output if rank == comm.rank else None, how)


def reduce_scatter(comm: Communicator, source: Tensor, output: Tensor, operator: str | float, how: How) -> None:
    """Combine a tensor over the ranks; each gets its part."""
    with _reduction(comm, "reduce_scatter", output, operator):
        if operator in BITWISE:
            spread(bitwise_reduce_scatter(comm, source, str(operator), how), output)
            return
        row, op = reducible(source, operator)
        part, _ = reducible(output, operator)
        row = apart(row, extents([part]), part.data_ptr() - comm.rank * part.nbytes)
        comm.reduce_scatter(row.reshape(-1), out=part.reshape(-1), op=bound(comm, op, row), **how)
    reduced(part, output)


# ---- copies ----


def broadcast(comm: Communicator, tensor: Tensor, root: int, how: How, *, source: Tensor | None = None) -> None:
    """Give one rank's tensor to all, in place; or its source, which is then left as it is."""
    row = copied(tensor if source is None else source)
    target = row if source is None else torch.empty_like(row)
    with _copy(comm, tensor, root):
        comm.broadcast(row, root=root, out=target, **how)
    spread(target, tensor)


def all_gather(comm: Communicator, source: Tensor, output: Tensor, how: How) -> None:
    """Gather a tensor of each rank into one."""
    row, whole = copied(source), copied(output)
    row = apart(row, extents([whole]), whole.data_ptr() + comm.rank * row.nbytes)
    with _copy(comm, source):
        comm.all_gather(row, out=whole, **how)
    spread(whole, output)


def all_gather_list(comm: Communicator, source: Tensor, parts: Sequence[Tensor], how: How) -> None:
    """Gather a tensor of each rank into a list; they may differ in size."""
    if any(part.numel() != source.numel() for part in parts):
        source = apart(source, extents(parts[: comm.rank]))
        for rank, part in enumerate(parts):
            broadcast(comm, part, rank, how, source=source if rank == comm.rank else None)
        return
    row = copied(source)
    whole = row.new_empty(row.numel() * comm.nranks)
    with _copy(comm, source):
        comm.all_gather(row, out=whole, **how)
    for received, part in zip(whole.chunk(comm.nranks) if row.numel() else (), parts, strict=False):
        spread(received, part)


def gather(comm: Communicator, source: Tensor, targets: Sequence[Tensor], root: int, how: How) -> None:
    """Gather a tensor of each rank at one of them, which passes a list for them."""
    row = copied(source)
    whole = row.new_empty(row.numel() * comm.nranks) if targets else None
    with _copy(comm, source, root):
        comm.gather(row, root=root, out=whole, **how)
    if whole is not None:
        for part, target in zip(whole.chunk(comm.nranks), targets, strict=True):
            spread(part, target)


def scatter(comm: Communicator, parts: Sequence[Tensor], output: Tensor, root: int, how: How) -> None:
    """Give each rank a tensor of one rank's list; the others pass none."""
    row = copied(output)
    whole = torch.cat([copied(part) for part in parts]) if parts else None
    with _copy(comm, output, root):
        comm.scatter(whole, root=root, out=row, **how)
    spread(row, output)


def all_to_all(comm: Communicator, outputs: Sequence[Tensor], inputs: Sequence[Tensor], how: How) -> None:
    """Trade the tensors of a list: each rank gets one of each rank."""
    rows = [copied(output) for output in outputs]
    results = extents(rows)
    passed = [apart(copied(source), results) for source in inputs]
    with group():
        for rank, source in enumerate(inputs):
            with _copy(comm, source):
                comm.send(passed[rank], rank, **how)
        for rank, row in enumerate(rows):
            with _copy(comm, outputs[rank]):
                comm.recv(row, rank, **how)
    for row, output in zip(rows, outputs, strict=True):
        spread(row, output)


def all_to_all_v(
    comm: Communicator, source: Tensor, output: Tensor, sends: Sequence[int], takes: Sequence[int], how: How
) -> None:
    """Trade the parts of a tensor, cut along its first axis."""
    row = copied(output)
    passed = apart(copied(source), extents([row]))
    # Elements of a row, or bytes where RCCL lacks the type.
    width = math.prod(source.shape[1:]) * (source.element_size() // passed.element_size())
    counts = [[count * width for count in rows] for rows in (sends, takes)]
    text = f"(rows of 1 elements, dtype={_name(source)})"
    with _UNDESCRIBED if is_copied_as_it_is(source) else Described(comm, text):
        comm.all_to_all_v(passed, *counts, out=row, **how)
    spread(row, output)


# ---- one to one ----


def send(comm: Communicator, tensor: Tensor, peer: int, how: How) -> None:
    """Send a tensor to another rank."""
    with _copy(comm, tensor):
        comm.send(copied(tensor), peer, **how)


def recv(comm: Communicator, tensor: Tensor, peer: int, how: How) -> None:
    """Receive a tensor from another rank."""
    row = copied(tensor)
    with _copy(comm, tensor):
        comm.recv(row, peer, **how)
    spread(row, tensor)


def barrier(comm: Communicator, how: How) -> None:
    """Wait until all ranks have come here; a rank that makes the same all-reduce as a call of its own has not."""
    byte = torch.zeros(1, dtype=torch.uint8, device="cpu")  # whatever torch's default device is
    with Described(comm, "barrier()"):
        comm.all_reduce(byte, out=byte, op="max", **how)
