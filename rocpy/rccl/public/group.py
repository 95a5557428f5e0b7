# SPDX-License-Identifier: MIT
"""Groups: calls that go to RCCL together when their block ends, or not at all."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rocpy.rccl.engine import library
from rocpy.rccl.engine.call import count_group
from rocpy.rccl.engine.pending import PendingGroup, Step, begin_group, current_group, end_group, run_ends
from rocpy.rccl.model.failures import error_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["group"]


@contextmanager
def group() -> Iterator[None]:
    """Collect the calls of a block and launch them together when it ends (ncclGroupStart, ncclGroupEnd).

    A group is needed if one thread calls for several ranks, and for sends and receives that wait for one another. Calls
    are checked and their results allocated immediately; the results are valid after the block has ended. The Work of a
    call with ``block=False`` can be waited for after the block has ended, which does not wait for it. Communicators
    and windows that `init`, `split`, `shrink` and `window` create in the block can be used after it has ended, and
    those that are closed in it remain open until then. If the block raises, nothing is launched. An inner group is part
    of the outer one.

    Raises
    ------
    RcclError
        At the end of the block, if one of its calls failed.

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
    pending = begin_group()
    count_group(1)
    try:
        yield
    except BaseException:
        pending.drop()
        raise
    finally:
        count_group(-1)
        end_group()
        pending.state.is_open = False
    _launch(pending)


def _launch(pending: PendingGroup) -> None:
    """Do what was noted, each kind for all ranks together."""
    if pending.steps:
        _run_steps(pending)
    if pending.calls:
        _launch_calls(pending)
    if pending.ends:
        run_ends(pending.ends)


def _run_steps(pending: PendingGroup) -> None:
    """Do each communicator's first step, then its second, and so on."""
    rounds: list[list[Step]] = []
    for i, step in enumerate(pending.steps):
        earlier = sum(other.owner is step.owner for other in pending.steps[:i])
        if earlier == len(rounds):
            rounds.append([])
        rounds[earlier].append(step)
    try:
        for steps in rounds:
            _run_together(steps)
    except BaseException:
        pending.drop()
        raise


def _run_together(steps: list[Step]) -> None:
    failure: BaseException | None = None
    library.group_start()
    try:
        for step in steps:
            step.start()
    except BaseException as error:  # noqa: BLE001  (kept: the group that was opened must be ended first)
        failure = error
    code, text = library.group_end()
    if failure is not None:
        raise failure
    if code != 0:
        raise error_of(code, op="group", seq=None, rank=None, text=text)
    for step in steps:
        step.finish()


def _launch_calls(pending: PendingGroup) -> None:
    """Give all calls to RCCL between ncclGroupStart and ncclGroupEnd, then wait for blocking ones on CPU memory."""
    failure: BaseException | None = None
    library.group_start()
    try:
        for one in pending.calls:
            one.communicator.launch_group_call(one.call, one.seconds if one.block else 0)
    except BaseException as error:  # noqa: BLE001  (kept: the group that was opened must be ended first)
        failure = error
    code, text = library.group_end()
    if failure is not None:
        raise failure
    if code != 0:
        first = pending.calls[0]
        raise error_of(
            code,
            op=first.call.op_name,
            seq=first.call.seq,
            rank=first.communicator.rank,
            text=text,
            status=first.communicator.status(),
        )
    pending.state.is_launched = True
    awaited = [one for one in pending.calls if one.communicator.hold_call(one.call) and one.block]
    for one in awaited:
        one.communicator.await_call(one.call, one.seconds)
