# SPDX-License-Identifier: MIT
"""What waits for the end of the group that a thread has open."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rocpy.errors import RocpyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocpy.rccl.engine.call import Call

__all__ = [
    "Caller",
    "GroupState",
    "PendingCall",
    "PendingGroup",
    "Step",
    "cancel_steps",
    "current_group",
    "open_groups",
    "run_ends",
    "run_step",
]

# The attribute ``group``: what this thread has open.
open_groups = threading.local()


class Caller(Protocol):
    """What a group needs of a communicator whose calls it launches."""

    @property
    def rank(self) -> int:
        """Number of the calling rank."""

    def check_open(self) -> None:
        """Raise where it was closed."""

    def launch_group_call(self, call: Call, seconds: float) -> None:
        """Give a call to RCCL, between ncclGroupStart and ncclGroupEnd."""

    def finish_group_launch(self, call: Call) -> None:
        """Wait until its stream has a call, after ncclGroupEnd."""

    def hold_call(self, call: Call) -> bool:
        """Keep what the call uses; return whether it must be waited for."""

    def await_call(self, call: Call, timeout_s: float | None) -> Any:
        """Wait for a call that was launched."""

    def status(self) -> dict[str, Any]:
        """Return what is known of the communicator."""

    def abort(self) -> None:
        """Abort it at once."""


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

    owner: Any
    start: Callable[[], object]
    finish: Callable[[], object]
    cancel: Callable[[], object]


@dataclass
class GroupState:
    """What became of a group, for those who hold a Work of one of its calls.

    Attributes
    ----------
    is_open
        Its block has not ended.
    is_launched
        RCCL has its calls.
    """

    is_open: bool = True
    is_launched: bool = False


@dataclass(frozen=True)
class PendingCall:
    """A checked call of an open group.

    Attributes
    ----------
    communicator, call
        Whose it is, and the call.
    seconds
        How long it may take.
    block
        Whether the group's end waits for it, if its memory is the CPU's.
    """

    communicator: Caller
    call: Call
    seconds: float
    block: bool


@dataclass(frozen=True)
class Savepoint:
    """How much a group held when an inner one began, and the state of the calls before it."""

    steps: int
    calls: int
    ends: int
    states: int
    state: GroupState


@dataclass
class PendingGroup:
    """What an open group holds: communicators and windows to make, calls, communicators to end; in this order."""

    steps: list[Step]
    calls: list[PendingCall]
    ends: list[Step]
    # Of its own calls and of those of inner groups; the state of the next call.
    states: list[GroupState]
    state: GroupState

    @property
    def is_open(self) -> bool:
        """Whether its block has not ended."""
        return self.states[0].is_open

    def savepoint(self) -> Savepoint:
        """Return how much it holds before an inner group."""
        return Savepoint(len(self.steps), len(self.calls), len(self.ends), len(self.states), self.state)

    def note_launch(self) -> None:
        """Note that RCCL has its calls."""
        for state in self.states:
            state.is_launched = True

    def add(self, communicator: Caller, call: Call, seconds: float, block: bool) -> None:
        """Note a checked call."""
        self.calls.append(PendingCall(communicator, call, seconds, block))

    def add_end(self, step: Step) -> None:
        """Note how a communicator, or what belongs to one, comes to its end; once, however often it is said."""
        if all(other.owner is not step.owner for other in self.ends):
            self.ends.append(step)

    def drop(self) -> None:
        """Give back what was begun: the block has raised."""
        cancel_steps(self.steps)


def cancel_steps(steps: list[Step]) -> None:
    """Give back what steps began."""
    for step in steps:
        with suppress(RocpyError):  # it fails for the reason that is being raised
            step.cancel()


def current_group() -> PendingGroup | None:
    """Return the group that this thread has open."""
    group: PendingGroup | None = getattr(open_groups, "group", None)
    # Another thread may have left its block, which raised there.
    return group if group is not None and group.is_open else None


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
