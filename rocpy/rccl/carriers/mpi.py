# SPDX-License-Identifier: MIT
"""MPI as a transport, by an mpi4py communicator."""

from __future__ import annotations

from typing import Any

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
        self._comm = comm.Dup()
        self.rank, self.nranks = comm.Get_rank(), comm.Get_size()

    def start(self, kind: str, source: Any, target: Any, rank: int, timeout_s: float) -> Any:  # noqa: ARG002
        """Start a nonblocking operation of MPI's."""
        comm = self._comm
        if kind == "broadcast":
            return comm.Ibcast(target, rank)
        if kind == "all_gather":
            return comm.Iallgather(source, target)
        if kind == "all_to_all":
            return comm.Ialltoall(source, target)
        if kind == "gather":
            return comm.Igather(source, target, rank)
        if kind == "scatter":
            return comm.Iscatter(source, target, rank)
        if kind == "send":
            return comm.Isend(source, rank)
        return comm.Irecv(target, rank)

    def test(self, request: Any) -> bool:
        """Let MPI move, and tell."""
        return bool(request.Test())
