# SPDX-License-Identifier: MIT
"""Lanes of a process group, which run a communicator's jobs in their order, and the Work that torch gets of them."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.distributed import Work as TorchWork

from rocpy.errors import ClosedError, CollectiveTimeoutError, RocpyError
from rocpy.runtime.stream import Stream
from rocpy.torch.process_group.callbacks import Order, let_others_pass
from rocpy.torch.process_group.caller import inference_mode, without_modes
from rocpy.torch.process_group.futures import future_of_list, is_for_half_hook
from rocpy.torch.process_group.naming import rename_ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from rocpy.rccl import Communicator

__all__ = ["How", "Job", "Lane", "LaneWork", "refuse_fork"]

# How much longer than a call of a lane may take a wait goes on without one that begins or ends.
SLACK_S = 30.0

# What a call is told beside its operands: its deadline and its stream.
How: TypeAlias = dict[str, Any]
Job: TypeAlias = "Callable[[Communicator, How], None]"


def refuse_fork(process: int, name: str) -> None:
    """Raise ClosedError in a forked child, which has neither the threads nor the communicators of its parent."""
    if process != os.getpid():
        raise ClosedError(
            f"{name} was created before a fork and belongs to the parent process; create a new process group here"
        )


class LaneWork(TorchWork):  # type: ignore[misc]
    """An operation of a process group, going on or done.

    Parameters
    ----------
    tensors
        What its future gives.
    source
        The rank that a receive takes from.
    """

    def __init__(self, tensors: list[torch.Tensor], source: int = -1) -> None:
        super().__init__()
        self._tensors = tensors
        self._source = source
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._ended: threading.Event | None = None
        self._future: torch.futures.Future[Any] | None = None
        self._followers: list[Callable[[], None]] = []
        # After which other futures its own is completed.
        self.order: Order | None = None
        # Where it waits for its turn: how long that may stand still, in seconds, and what changes where it does not.
        self.progress: Callable[[], tuple[float, Any]] | None = None
        self._is_done = False
        self._error: BaseException | None = None

    def finish(self, error: BaseException | None = None) -> None:
        """Note that the operation is through, and tell those who wait."""
        with self._lock:
            self._error = error
            self._is_done = True
            ended, future, followers = self._ended, self._future, self._followers
        if ended is not None:
            ended.set()
        # Its callbacks are anybody's: on the thread of a lane they would hold up what they may wait for.
        if future is not None:
            (self.order or Order()).run(lambda: self._tell(future))
        for follower in followers:
            follower()

    def follow(self, follower: Callable[[], None]) -> None:
        """Have something called when the operation is through, which must not wait."""
        with self._lock:
            if not self._is_done:
                self._followers.append(follower)
                return
        follower()

    def _tell(self, future: torch.futures.Future[Any]) -> None:
        if isinstance(self._error, Exception):
            future.set_exception(self._error)
        else:
            future.set_result(self._tensors)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the operation is done; what it failed with is raised.

        Parameters
        ----------
        timeout
            How long; by default as long as the operation itself may take.

        Raises
        ------
        RcclError
            What the operation came to; `CollectiveTimeoutError` when the time is over first, or when nothing has moved
            for longer than an operation may take.
        ClosedError
            This is a forked child, and the operation its parent's.
        """
        let_others_pass()
        if not self.is_completed():
            refuse_fork(self._process, "this operation")
            with self._lock:
                if self._ended is None:
                    self._ended = threading.Event()
                if self.is_completed():
                    self._ended.set()
            seconds = timeout.total_seconds() if timeout is not None else 0
            if seconds <= 0:
                self._await_end(self._ended)
            elif not self._ended.wait(seconds):
                raise CollectiveTimeoutError(
                    f"the operation did not complete within {seconds:g} s; it continues, and can be waited for again",
                    op="wait",
                )
        if self._future is not None and not self._future.done():
            # Who has waited may read it. What it fails with is this operation's error.
            with suppress(Exception):
                self._future.wait()
        if self._error is not None:
            try:
                raise self._error
            finally:
                del self  # which has the error, whose traceback has this frame
        return True

    def _await_end(self, ended: threading.Event) -> None:
        """Wait for as long as its lane gets on: each call there has a deadline of its own."""
        if self.progress is None:
            ended.wait()
            return
        limit, mark = self.progress()
        while not ended.wait(limit):
            waited, before = limit, mark
            limit, mark = self.progress()
            if mark == before and not ended.is_set():
                raise CollectiveTimeoutError(
                    f"the operation did not begin, or did not end, within {waited:g} s, and neither did any before it; "
                    "it can be waited for again",
                    op="wait",
                )

    def synchronize(self) -> None:
        """Wait, as `wait` does."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it is through, well or not."""
        return self._is_done

    def is_success(self) -> bool:
        """Whether it is through and has not failed."""
        return self._is_done and self._error is None

    def exception(self) -> BaseException | None:
        """Return what it failed with."""
        return self._error

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that it filled."""
        return self._tensors

    def source_rank(self) -> int:
        """Return the rank that a receive took from."""
        return self._source

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future that ends with the operation."""
        if is_for_half_hook(self._tensors):
            return future_of_list(self)
        with self._lock:
            if self._future is not None:
                return self._future
            self._future = torch.futures.Future()
            is_done = self._is_done
        if is_done:
            self._tell(self._future)
        return self._future


class Lane:
    """Runs the jobs of one communicator in their order: on the caller's thread where it waits anyway, else on its own.

    Parameters
    ----------
    name
        Of the thread.
    make
        Joins the communicator, when the first job comes, within a time in seconds; calls what it is passed while it
        waits, which may raise.
    ranks
        What errors call the communicator's ranks, if not as it does.
    note
        Follows the messages of errors.
    op
        What the first job is to its caller, where the ranks join a communicator for it: ``"send"`` or ``"recv"``.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[Callable[[], None], float], Communicator],
        ranks: Sequence[int] = (),
        note: str = "",
        op: str = "",
    ) -> None:
        self._name = name
        self._make = make
        self._ranks, self._note, self._op = ranks, note, op
        self._running = threading.Lock()
        self._counting = threading.Lock()
        self._jobs: SimpleQueue[tuple[Job, LaneWork, float, bool, bool] | None] = SimpleQueue()
        self._order = Order()
        self._process = os.getpid()
        self._waiting = 0
        self._begun = 0
        self._seconds = 0.0
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._is_aborted = False
        self.communicator: Communicator | None = None
        # Not the null stream: other lanes of the process would wait for this one's peers.
        self._stream: Stream | None = None

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more jobs."""
        return self._is_closed

    def _check_open(self, is_closed: bool) -> None:
        if is_closed:
            raise ClosedError(f"the process group of {self._name} was shut down")

    def _check_goes_on(self) -> None:
        self._check_open(self._is_aborted)

    def _rename_ranks(self, error: RocpyError) -> None:
        if self._ranks:
            rename_ranks(error, self._ranks, self._note)

    def join(self, seconds: float) -> Communicator:
        """Return the communicator, joined now if it has not been, within a time."""
        self._check_open(self._is_closed)
        try:
            return self._joined(seconds)
        except RocpyError as error:
            self._rename_ranks(error)
            raise

    def _joined(self, seconds: float) -> Communicator:
        if self.communicator is None:
            try:
                self.communicator = self._make(self._check_goes_on, seconds)
            except CollectiveTimeoutError as error:
                if not self._op:
                    raise
                raise self._first_is_late(seconds) from error
            self._stream = Stream(self.communicator.device_index, nonblocking=True)
        return self.communicator

    def _first_is_late(self, seconds: float) -> CollectiveTimeoutError:
        """Return the error of a first transfer, for which the other rank has not joined."""
        own, other, its = (0, 1, "recv") if self._op == "send" else (1, 0, "send")
        return CollectiveTimeoutError(
            f"rank {own}: {self._op} number 1 did not complete within {seconds:g} s; waiting for rank {other} to call "
            f"{its}",
            waiting_for=[other],
            op=self._op,
            seq=1,
            rank=own,
            status=8,
            status_name="ncclTimeout",
            library="rccl",
        )

    def _carry_out(self, job: Job, seconds: float, in_own_stream: bool) -> None:
        with self._running:
            self._check_goes_on()
            self._begun, self._seconds = self._begun + 1, seconds
            try:
                deadline = None if self.communicator is not None else monotonic() + seconds
                comm = self._joined(seconds)
                left = seconds if deadline is None else max(deadline - monotonic(), 0.001)
                job(comm, {"timeout_s": left, "stream": self._stream if in_own_stream else None})
            except RocpyError as error:
                self._rename_ranks(error)
                raise

    def progress(self) -> tuple[float, Any]:
        """Return how long the lane may stand still, in seconds, and what changes where it does not."""
        comm = self.communicator
        return self._seconds + SLACK_S, (self._begun, None if comm is None else comm.seq)

    def run(
        self, job: Job, work: LaneWork, seconds: float, *, is_asynchronous: bool, in_own_stream: bool = True
    ) -> LaneWork:
        """Run a job, or have it run, after those before it.

        Parameters
        ----------
        job
            Called with the communicator and the arguments of its calls.
        work
            Ends with the job.
        seconds
            How long each of its calls may take.
        is_asynchronous
            Whether it may go on after this has returned.
        in_own_stream
            Whether its calls run in the lane's stream, not in the current one of their operands' framework.

        Raises
        ------
        ClosedError
            The lane was closed; or this is a forked child, and the lane its parent's.
        """
        let_others_pass()
        refuse_fork(self._process, f"the process group of {self._name}")
        self._check_open(self._is_closed)
        work.order, work.progress = self._order, self.progress
        if is_asynchronous or self._waiting:
            with self._counting:
                self._check_open(self._is_closed)
                self._waiting += 1
                self._jobs.put((job, work, seconds, in_own_stream, torch.is_inference_mode_enabled()))
                if self._thread is None:
                    self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
                    self._thread.start()
        else:
            with without_modes():
                self._carry_out(job, seconds, in_own_stream)
            work.finish()
        return work

    def _serve(self) -> None:
        while (entry := self._jobs.get()) is not None:
            self._serve_one(*entry)
            entry = None  # an idle lane keeps nobody's tensors
            with self._counting:
                self._waiting -= 1

    def _serve_one(self, job: Job, work: LaneWork, seconds: float, in_own_stream: bool, is_inference: bool) -> None:
        try:
            with inference_mode(is_inference):
                self._carry_out(job, seconds, in_own_stream)
        except BaseException as error:  # noqa: BLE001  (raised to whoever waits for the work)
            work.finish(error)
        else:
            work.finish()
        finally:
            del work  # which has the error, whose traceback has this frame

    def close(self, timeout_s: float) -> None:
        """Let the jobs end, then finalize the communicator; raises what that comes to."""
        self._end_jobs()
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive() and self.communicator is None:
                self.abort()  # it waits for a rank that does not come
        if self.communicator is not None and not self.communicator.is_closed:
            try:
                self.communicator.finalize(timeout_s=timeout_s)
            except RocpyError as error:
                self._rename_ranks(error)
                raise

    def _end_jobs(self) -> None:
        with self._counting:
            self._is_closed = True
            self._jobs.put(None)

    def abort(self) -> None:
        """End whatever runs."""
        self._is_aborted = True
        self._end_jobs()
        if self.communicator is not None:
            self.communicator.abort()

    def await_thread(self, timeout_s: float) -> None:
        """Wait until the thread of a lane that was aborted has ended."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
