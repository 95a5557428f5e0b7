# SPDX-License-Identifier: MIT
"""MPI as a transport, by an mpi4py communicator."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from rocpy.rccl.carriers.carrier import REDUCTIONS

__all__ = ["MpiCarrier"]


class MpiCarrier:
    """MPI, by an mpi4py communicator of its own.

    Parameters
    ----------
    comm
        Duplicated, so that no other messages meet these.
    """

    name = "mpi4py"

    def __init__(self, comm: Any) -> None:
        self._mpi = sys.modules["mpi4py.MPI"]
        self._comm = comm.Dup()
        self.rank, self.nranks = comm.Get_rank(), comm.Get_size()

    def start(self, kind: str, x: Any, out: Any, op: str, root: int) -> Any:
        """Start a nonblocking operation of MPI's."""
        operator = {"sum": self._mpi.SUM, "prod": self._mpi.PROD, "max": self._mpi.MAX, "min": self._mpi.MIN}.get(op)
        source: Any
        target: Any
        source, target = (None if array is None else array.reshape(-1) for array in (x, out))
        if source is not None and target is not None and np.may_share_memory(source, target):
            source = source.copy()  # MPI takes no aliases
        # MPI knows no float16 and no types of ml_dtypes: sums of them are computed in float32, and what only moves goes
        # as bytes.
        if kind in REDUCTIONS and source.dtype.itemsize < 4 and source.dtype.kind not in "iu":
            wide = None if target is None else np.empty(target.shape, np.float32)
            request, _ = self.start(kind, source.astype(np.float32), wide, op, root)
            return request, (lambda: None if wide is None else target.__setitem__(..., wide.astype(target.dtype)))
        if kind not in REDUCTIONS:
            source, target = (None if array is None else array.view(np.uint8) for array in (source, target))
        return self._begin(kind, source, target, operator, root), None

    def _begin(self, kind: str, source: Any, target: Any, operator: Any, root: int) -> Any:
        comm = self._comm
        if kind == "all_reduce":
            return comm.Iallreduce(source, target, operator)
        if kind == "reduce":
            return comm.Ireduce(source, target, operator, root)
        if kind == "reduce_scatter":
            return comm.Ireduce_scatter_block(source, target, operator)
        if kind == "broadcast":
            if self.rank == root:
                target[...] = source
            return comm.Ibcast(target, root)
        if kind == "all_gather":
            return comm.Iallgather(source, target)
        if kind == "all_to_all":
            return comm.Ialltoall(source, target)
        if kind == "gather":
            return comm.Igather(source, target, root)
        if kind == "scatter":
            return comm.Iscatter(source, target, root)
        if kind == "send":
            return comm.Isend(source, root)
        return comm.Irecv(target, root)

    def test(self, request: Any) -> bool:
        """Let MPI move, tell, and finish what is through."""
        started, finish = request
        if not started.Test():
            return False
        if finish is not None:
            finish()
        return True
