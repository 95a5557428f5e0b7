# SPDX-License-Identifier: MIT
"""Groups: calls that go to RCCL together when their block ends, or not at all."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rocpy.rccl import _library
from rocpy.rccl._call import count_group
from rocpy.rccl._failures import error_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocpy.rccl._call import Call
    from rocpy.rccl.communicator import Handle

__all__ = ["group"]

_open = threading.local()


class Group:
    """The calls of an open group."""

    def __init__(self) -> None:
        self.calls: list[tuple[Handle, Call, float]] = []

    def add(self, communicator: Handle, call: Call, seconds: float) -> None:
        """Note a checked call."""
        self.calls.append((communicator, call, seconds))

    def launch(self) -> None:
        """Give all calls to RCCL between ncclGroupStart and ncclGroupEnd, then wait for those on CPU memory."""
        if not self.calls:
            return
        failure: BaseException | None = None
        _library.group_start()
        try:
            for communicator, call, seconds in self.calls:
                communicator.launch_group_call(call, seconds)
        except BaseException as error:  # noqa: BLE001  (kept: the group that was opened must be ended first)
            failure = error
        code, text = _library.group_end()
        if failure is not None:
            raise failure
        if code != 0:
            communicator, call, _ = self.calls[0]
            raise error_of(
                code, op=call.op_name, seq=call.seq, rank=communicator.rank, text=text, status=communicator.status()
            )
        for communicator, call, seconds in self.calls:
            if communicator.hold_call(call):
                communicator.await_call(call, seconds)


def current_group() -> Group | None:
    """Return the group that this thread has open."""
    return getattr(_open, "group", None)


@contextmanager
def group() -> Iterator[None]:
    """Collect the calls of a block and launch them together when it ends (ncclGroupStart, ncclGroupEnd).

    Needed where one thread calls for several ranks, and for sends and receives that wait for one another. Calls are
    checked and their results made at once; the results are filled when the block has ended. If the block raises,
    nothing is launched. An inner group is part of the outer one.

    Raises
    ------
    RcclError
        When the block ends: what its calls came to.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import rccl
    >>> with rccl.Communicator.init(1, 0, rccl.UniqueId.make()) as comm:
    ...     received = np.zeros(3)
    ...     with rccl.group():
    ...         comm.send(np.arange(3.0), 0)
    ...         _ = comm.recv(received, 0)
    ...     received
    array([0., 1., 2.])
    """
    if current_group() is not None:
        yield
        return
    made = _open.group = Group()
    count_group(1)
    try:
        yield
    finally:
        count_group(-1)
        del _open.group
    made.launch()
