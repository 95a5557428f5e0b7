# SPDX-License-Identifier: MIT
"""A process group of torch.distributed as a transport."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from typing import Any

__all__ = ["TorchCarrier"]

_LONGEST_S = 1e8


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

    def start(self, kind: str, source: Any, target: Any, rank: int, timeout_s: float) -> Any:
        """Start an operation of the group's."""
        dist, group = self._torch.distributed, self._group
        sent: Any
        received: Any
        sent, received = (None if row is None else self._torch.from_numpy(row) for row in (source, target))
        if kind == "broadcast":
            return dist.broadcast(received, group_src=rank, group=group, async_op=True)
        if kind == "all_gather":
            return dist.all_gather(list(received.chunk(self.nranks)), sent, group=group, async_op=True)
        if kind == "all_to_all":
            return dist.all_to_all_single(received, sent, group=group, async_op=True)
        if kind == "gather":
            parts = None if received is None else list(received.chunk(self.nranks))
            return dist.gather(sent, parts, group_dst=rank, group=group, async_op=True)
        if kind == "scatter":
            parts = None if sent is None else list(sent.chunk(self.nranks))
            return dist.scatter(received, parts, group_src=rank, group=group, async_op=True)
        if kind == "send":
            return _Waited(dist.isend(sent, group_dst=rank, group=group), timeout_s)
        return _Waited(dist.irecv(received, group_src=rank, group=group), timeout_s)

    def test(self, request: Any) -> bool:
        """Tell, and raise what it failed with."""
        if not request.is_completed():
            return False
        request.wait(timedelta(seconds=1))
        return True


class _Waited:
    """A message of gloo's, which is complete only once it has been waited for: a thread does that.

    Parameters
    ----------
    work
        torch's.
    timeout_s
        When the caller will have given up.
    """

    def __init__(self, work: Any, timeout_s: float) -> None:
        self._work = work
        self._failure: Exception | None = None
        # The caller's deadline is first, to be reported as one.
        self._patience = timedelta(seconds=min(timeout_s, _LONGEST_S) + 1)
        self._thread = threading.Thread(target=self._await, daemon=True)
        self._thread.start()

    def _await(self) -> None:
        try:
            self._work.wait(self._patience)
        except Exception as error:  # noqa: BLE001  (raised by `wait`, in the caller's thread)
            self._failure = error

    def is_completed(self) -> bool:
        return not self._thread.is_alive()

    def wait(self, _: timedelta) -> None:
        if self._failure is not None:
            raise self._failure
