# SPDX-License-Identifier: MIT
"""Groups: calls that go to RCCL together when their block ends, or not at all."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from rocpy.errors import RocpyError
from rocpy.rccl.engine.call import hold_calls
from rocpy.rccl.engine.pending import cancel_steps, run_ends
from rocpy.rccl.engine.scope import GroupScope, run_grouped
from rocpy.rccl.handles import grouped
from rocpy.rccl.model.failures import error_of, raise_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocpy.rccl.engine.pending import Caller, PendingCall, PendingGroup, Step

__all__ = ["GroupScope", "group", "launch"]

_INVALID_USAGE = 5  # ncclInvalidUsage


def group() -> GroupScope:
    """Collect the calls of a block and launch them together when it ends (ncclGroupStart, ncclGroupEnd).

    A group is needed if one thread calls for several ranks, and for sends and receives that wait for one another. Calls
    are checked and their results allocated immediately; the results are valid after the block has ended. The Work of a
    call with ``block=False`` can be waited for after the block has ended, which does not wait for it. Calls of one
    communicator may name several streams: they wait for what was queued on all of these before, and later work of each
    waits for all of them. Communicators and windows that `init`, `split`, `shrink` and `window` create in the block can
    be used after it has ended, and those that are closed in it remain open until then, as do registrations and the
    operators of `premul_sum`: they are closed even if a call fails, and a communicator that failed is aborted. `abort`
    is immediate, or as soon as there is a communicator. If the block raises, nothing is launched, nor closed. An inner
    group is part of the outer one; if its block raises, its own calls are dropped, and those of the outer one, or of
    other tasks' inner ones, only if that raises too. A group belongs to its thread, to its task of asyncio and to tasks
    started in the block; a child of ``fork`` has none of its parent's. A generator that is suspended in a block shares
    the group with its consumer, whose calls join it: leave the block before ``yield``. As a decorator,
    ``@rccl.group()`` opens a group around each call of an ordinary function.

    Raises
    ------
    RcclError
        At the end of the block, if one of its calls failed. If RCCL refuses one that rocpy could not check before, such
        as a put beyond the peer's window, none is launched.
    InvalidUsageError
        The block is left in another thread, task or process than it was entered in, or before a block that was entered
        in it; nothing is launched. Or what `group` returned is entered again before its block has ended, or decorates
        a coroutine function, a generator function or what is no function.

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
    return GroupScope(launch)


def _failure(code: int, text: str, callers: Sequence[Caller], op: str, seq: int | None) -> RocpyError:
    """Return the error that a group came to, as that of the communicator that failed, where one did."""
    closed = next((caller for caller in callers if grouped.is_closed(caller)), None)
    if closed is not None and code == _INVALID_USAGE:  # as RCCL answers for one that was aborted meanwhile
        return grouped.failure_of(closed, code, op, seq)
    for caller in callers:
        status = caller.status()
        failure = status.get("failure") or {}
        if failure.get("code") == code and text in failure.get("text", ""):
            return error_of(code, op=op, seq=None, rank=caller.rank, text=text, status=status)
    if len(callers) > 1:  # which of them was refused, RCCL does not say
        op, seq = "group", None
    rank = callers[0].rank if all(caller is callers[0] for caller in callers) else None
    return error_of(code, op=op, seq=seq, rank=rank, text=text)


def launch(pending: PendingGroup) -> None:
    """Do what was noted, each kind for all ranks together.

    What was closed has its end even if something before it failed.
    """
    ends = [*pending.releases, *pending.ends]
    try:
        if pending.steps:
            _run_steps(pending)
        if pending.calls:
            _launch_calls(pending)
    except Exception:
        with suppress(RocpyError):  # the first error is the one to know
            run_ends(ends)
        raise
    except BaseException:  # interrupted: nothing is waited for
        cancel_steps(ends)
        raise
    run_ends(ends)


def _run_steps(pending: PendingGroup) -> None:
    """Do each communicator's first step, then its second, and so on."""
    rounds: list[list[Step]] = []
    counts: Counter[int] = Counter()
    for step in pending.steps:
        earlier = counts[id(step.owner)]
        counts[id(step.owner)] += 1
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
    numbers = [step.owner.seq for step in steps]
    try:
        code, text = run_grouped([step.start for step in steps])
    except RocpyError:
        for step, number in zip(steps, numbers, strict=True):
            step.withdraw(number)
        raise
    if code != 0:
        raise _failure(code, text, [step.owner for step in steps], "group", None)
    for step in steps:
        step.finish()


def _launch_calls(pending: PendingGroup) -> None:
    """Give all calls to RCCL between ncclGroupStart and ncclGroupEnd, then wait for blocking ones on CPU memory."""
    stopped = pending.calls
    try:
        try:
            _give(pending)
        except BaseException:
            for one in pending.calls:
                one.call.drop()
            raise
        pending.note_launch()
        hold_calls(one.call for one in pending.calls)
        stopped = [one for one in pending.calls if one.block and one.call.in_cpu_memory]
        _await(stopped)
    except RocpyError:
        raise
    except BaseException:  # interrupted: none of them is to write its result later
        for one in stopped:
            one.communicator.abort()
        raise


def _await(calls: Sequence[PendingCall]) -> None:
    """Wait for calls, each as long as it may take when those before it on its communicator are done.

    The others are waited for even if one fails: none is to write its result later.
    """
    begin = monotonic()
    limits: dict[int, float] = {}
    failures: list[BaseException] = []
    for one in calls:
        key = id(one.communicator)
        limits[key] = limits.get(key, begin) + one.seconds
        try:
            grouped.await_call(one.communicator, one.call, limits[key])
        except RocpyError as error:
            failures.append(error)
    raise_first(failures)


def _give(pending: PendingGroup) -> None:
    for one in pending.calls:
        one.communicator.check_open()
    try:
        code, text = run_grouped(
            [
                partial(grouped.launch_call, one.communicator, one.call, one.seconds if one.block else 0)
                for one in pending.calls
            ]
        )
        if code != 0:
            first = pending.calls[0].call
            raise _failure(code, text, [one.communicator for one in pending.calls], first.op_name, first.seq)
    except RocpyError:
        for one in reversed(pending.calls):
            grouped.withdraw_call(one.communicator, one.call)
        raise
    try:
        for one in pending.calls:
            grouped.finish_launch(one.communicator, one.call)
    except BaseException:  # the others' calls have begun, or are about to: none is to write its result later
        for one in pending.calls:
            one.communicator.abort()
        raise
