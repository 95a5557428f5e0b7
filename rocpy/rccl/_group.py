# SPDX-License-Identifier: MIT
"""Groups: calls that go to RCCL together when their block ends, or not at all."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocpy.rccl import _library
from rocpy.rccl._call import count_group
from rocpy.rccl._failures import error_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rocpy.rccl._call import Call
    from rocpy.rccl.communicator import Handle

__all__ = ["group"]

_open = threading.local()


@dataclass(frozen=True)
class Step:
    """Something collective that one thread may do for several ranks: all are started before any is waited for.

    Attributes
    ----------
    owner
        Whose it is: a communicator does one thing at a time.
    start
        Begins it, between ncclGroupStart and ncclGroupEnd in a group.
    finish
        Waits for it.
    cancel
        Gives back what came of it, where another one fails.
    """

    owner: object
    start: Callable[[], object]
    finish: Callable[[], object]
    cancel: Callable[[], object]


class Group:
    """What an open group holds: communicators and windows to make, calls, communicators to end; in this order."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.calls: list[tuple[Handle, Call, float]] = []
        self.ends: list[Step] = []

    def add(self, communicator: Handle, call: Call, seconds: float) -> None:
        """Note a checked call."""
        self.calls.append((communicator, call, seconds))

    def add_end(self, step: Step) -> None:
        """Note how a communicator, or what belongs to one, comes to its end; once, however often it is said."""
        if all(known.owner is not step.owner for known in self.ends):
            self.ends.append(step)

    def launch(self) -> None:
        """Do what was noted, each kind for all ranks together."""
        if self.steps:
            self._make()
        if self.calls:
            self._call()
        if self.ends:
            run_ends(self.ends)

    def drop(self) -> None:
        """Give back what was begun: the block has raised."""
        for step in self.steps:
            step.cancel()

    def _make(self) -> None:
        """Do each communicator's first step, then its second, and so on."""
        rounds: list[list[Step]] = []
        for i, step in enumerate(self.steps):
            earlier = sum(known.owner is step.owner for known in self.steps[:i])
            if earlier == len(rounds):
                rounds.append([])
            rounds[earlier].append(step)
        try:
            for steps in rounds:
                self._make_together(steps)
        except BaseException:
            self.drop()
            raise

    def _make_together(self, steps: list[Step]) -> None:
        failure: BaseException | None = None
        _library.group_start()
        try:
            for step in steps:
                step.start()
        except BaseException as error:  # noqa: BLE001  (kept: the group that was opened must be ended first)
            failure = error
        code, text = _library.group_end()
        if failure is not None:
            raise failure
        if code != 0:
            raise error_of(code, op="group", seq=None, rank=None, text=text)
        for step in steps:
            step.finish()

    def _call(self) -> None:
        """Give all calls to RCCL between ncclGroupStart and ncclGroupEnd, then wait for those on CPU memory."""
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


def run_step(step: Step) -> None:
    """Do a step now, or leave it to the group that this thread has open."""
    group = current_group()
    if group is not None:
        group.steps.append(step)
        return
    step.start()
    step.finish()


def run_ends(steps: list[Step]) -> None:
    """End communicators of one thread: each waits for the others, so all begin before any is waited for.

    Raises
    ------
    RcclError
        What the first that failed came to; it was cancelled, and the others were ended all the same.
    """
    failures: list[BaseException] = []

    def attempt(step: Step, action: Callable[[], object]) -> bool:
        try:
            action()
        except BaseException as error:  # noqa: BLE001  (kept: the others are ended first)
            step.cancel()
            failures.append(error)
            return False
        return True

    started = [step for step in steps if attempt(step, step.start)]
    for step in started:
        attempt(step, step.finish)
    if failures:
        raise failures[0]


def current_group() -> Group | None:
    """Return the group that this thread has open."""
    return getattr(_open, "group", None)


@contextmanager
def group() -> Iterator[None]:
    """Collect the calls of a block and launch them together when it ends (ncclGroupStart, ncclGroupEnd).

    Needed where one thread calls for several ranks, and for sends and receives that wait for one another. Calls are
    checked and their results made at once; the results are filled when the block has ended. Communicators and windows
    that `init`, `split`, `shrink` and `window` make in the block can be used once it has ended, and those that are
    closed there are open until then. If the block raises, nothing is launched. An inner group is part of the outer one.

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
    except BaseException:
        made.drop()
        raise
    finally:
        count_group(-1)
        del _open.group
    made.launch()
