# SPDX-License-Identifier: MIT
"""A process group of torch.distributed as a transport."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

from rocpy.rccl.carriers.carrier import REDUCTIONS
from rocpy.rccl.carriers.tensors import tensor_of

__all__ = ["TorchCarrier"]


class TorchCarrier:
    """A process group of torch.distributed on CPU memory: gloo's, or one of MPI's.

    Parameters
    ----------
    group
        The process group.
    """

    def __init__(self, group: Any) -> None:
        self._torch = sys.modules["torch"]
        self._group = group
        self.rank, self.nranks = group.rank(), group.size()
        self.name = f"torch.distributed {group.name()}"

    def _tensor(self, array: Any) -> Any:
        if array is None:
            return None
        row = array.reshape(-1)
        return tensor_of(row)

    def start(self, kind: str, x: Any, out: Any, op: str, root: int) -> Any:
        """Start an operation of the group's."""
        dist, group = self._torch.distributed, self._group
        source, target = self._tensor(x), self._tensor(out)
        operators = {
            "sum": dist.ReduceOp.SUM,
            "prod": dist.ReduceOp.PRODUCT,
            "max": dist.ReduceOp.MAX,
            "min": dist.ReduceOp.MIN,
        }
        if kind in REDUCTIONS:
            # torch reduces in place, and gloo scatters no sums: the whole is reduced, and cut.
            whole = source.clone()
            work = dist.all_reduce(whole, op=operators[op], group=group, async_op=True)
            return work, (lambda: None if target is None else target.copy_(self._cut(kind, whole)))
        if kind == "broadcast":
            if self.rank == root:
                target.copy_(source)
            return dist.broadcast(target, group_src=root, group=group, async_op=True), None
        if kind == "all_gather":
            return dist.all_gather(list(target.chunk(self.nranks)), source, group=group, async_op=True), None
        if kind == "all_to_all":
            return dist.all_to_all_single(target, source, group=group, async_op=True), None
        if kind == "gather":
            parts = None if target is None else list(target.chunk(self.nranks))
            return dist.gather(source, parts, group_dst=root, group=group, async_op=True), None
        if kind == "scatter":
            parts = list(source.chunk(self.nranks)) if self.rank == root else None
            return dist.scatter(target, parts, group_src=root, group=group, async_op=True), None
        if kind == "send":
            return dist.isend(source, group_dst=root, group=group), None
        return dist.irecv(target, group_src=root, group=group), None

    def _cut(self, kind: str, whole: Any) -> Any:
        return whole.chunk(self.nranks)[self.rank] if kind == "reduce_scatter" else whole

    def test(self, request: Any) -> bool:
        """Tell, and finish what is through."""
        work, finish = request
        if not work.is_completed():
            return False
        work.wait(timedelta(seconds=1))
        if finish is not None:
            finish()
        return True
