# SPDX-License-Identifier: MIT
"""What waits for the end of the group that a thread has open."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rocpy.errors import RocpyError
from rocpy.rccl.engine.open_group import current_group
from rocpy.rccl.model.failures import raise_first

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
    "nothing",
    "release",
    "run_ends",
    "run_step",
]


# The order of notes: tasks in one group may have blocks in it at the same time.
_numbers = count()


class Caller(Protocol):
    """What a group needs of a communicator whose calls it launches."""

    @property
    def rank(self) -> int:
        """Number of the calling rank."""

    def check_open(self) -> None:
        """Raise where it was closed."""

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
    withdraw
        Takes back what `start` noted, where another one was refused and nothing was done; is passed the owner's `seq`
        of before.
    order
        Later steps and calls have larger numbers.
    """

    owner: Any
    start: Callable[[], object]
    finish: Callable[[], object]
    cancel: Callable[[], object]
    withdraw: Callable[[int], object] = lambda _: None
    order: int = field(default_factory=lambda: next(_numbers), init=False)


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


class PendingCall(NamedTuple):
    """A checked call of an open group.

    Attributes
    ----------
    communicator, call
        Whose it is, and the call.
    seconds
        How long it may take.
    block
        Whether the group's end waits for it, if its memory is the CPU's.
    order
        Later calls and steps have larger numbers.
    """

    communicator: Caller
    call: Call
    seconds: float
    block: bool
    order: int


@dataclass
class PendingGroup:
    """What was noted in a block of an open group, and in those that were entered and left in it.

    Communicators and windows to create, calls, what the calls may use and is released, communicators to end: in this
    order.
    """

    # Of the calls of its own block.
    state: GroupState = field(default_factory=GroupState)
    steps: list[Step] = field(default_factory=list)
    calls: list[PendingCall] = field(default_factory=list)
    releases: list[Step] = field(default_factory=list)
    ends: list[Step] = field(default_factory=list)
    # Of its own calls and of those of inner groups.
    states: list[GroupState] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.states.append(self.state)

    def note_launch(self) -> None:
        """Note that RCCL has its calls."""
        for state in self.states:
            state.is_launched = True

    def add(self, communicator: Caller, call: Call, seconds: float, block: bool) -> None:
        """Note a checked call."""
        self.calls.append(PendingCall(communicator, call, seconds, block, next(_numbers)))

    def drop(self) -> None:
        """Give back what was begun: nothing is launched."""
        cancel_steps(self.steps)


def nothing() -> None:
    """Do nothing, for a step that has no such part."""


def cancel_steps(steps: list[Step]) -> None:
    """Give back what steps began."""
    for step in steps:
        with suppress(RocpyError):  # it fails for the reason that is being raised
            step.cancel()


def run_step(step: Step) -> None:
    """Do a step now, or leave it to the group that is open here."""
    group: PendingGroup | None = current_group()
    if group is not None:
        group.steps.append(step)
        return
    step.start()
    step.finish()


def release(owner: Any, action: Callable[[], object]) -> None:
    """Release what calls of a communicator may use: now, or after the calls of the group that is open here.

    Parameters
    ----------
    owner
        What is released.
    action
        Releases it; nothing happens if it is called again.
    """
    group: PendingGroup | None = current_group()
    if group is None:
        action()
    else:
        group.releases.append(Step(owner, action, nothing, action))


def run_ends(steps: list[Step]) -> None:
    """End communicators of one thread: each waits for the others, so all begin before any is waited for.

    One that is named several times has its end once.

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
            cancel_steps([step])
            failures.append(error)
            return False
        return True

    firsts: dict[int, Step] = {}
    for step in steps:
        firsts.setdefault(id(step.owner), step)
    started = [step for step in firsts.values() if attempt(step, step.start)]
    for step in started:
        attempt(step, step.finish)
    raise_first(failures)
