# SPDX-License-Identifier: MIT
"""Threads that complete the futures of operations: their callbacks may wait for further operations of the group."""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Order", "await_callbacks", "let_others_pass"]

# How long a future waits for the callbacks of the one before it, which may be waiting for this one.
GRACE_S = 0.05
# Threads that are kept for later callbacks.
MOST_IDLE = 4

_current = threading.local()


class _Threads:
    """As many threads as there are calls at a time: none waits for another to return."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._changed = threading.Condition()
        self._idle = 0
        self._running = 0

    def run(self, call: Callable[[], None]) -> None:
        """Have a call made, at once."""
        with self._changed:
            self._running += 1
            needs_thread = self._idle == 0
            self._idle -= not needs_thread
        self._calls.put(call)
        if needs_thread:
            threading.Thread(target=self._serve, name="rocpy callbacks", daemon=True).start()

    def _serve(self) -> None:
        goes_on = True
        while goes_on:
            call = self._calls.get()
            try:
                call()
            finally:
                del call
                with self._changed:
                    self._running -= 1
                    goes_on = self._idle < MOST_IDLE
                    self._idle += goes_on
                    self._changed.notify_all()

    def wait(self, timeout_s: float) -> None:
        """Wait until all calls have returned."""
        with self._changed:
            self._changed.wait_for(lambda: self._running == 0, timeout_s)


_threads = _Threads()


def _after_fork() -> None:
    """Forget the threads, which a forked child does not have, and their lock, which one may have held."""
    global _threads
    _threads = _Threads()


os.register_at_fork(after_in_child=_after_fork)


def await_callbacks(timeout_s: float) -> None:
    """Wait until the callbacks that run have returned."""
    _threads.wait(timeout_s)


def let_others_pass() -> None:
    """In a callback: have the futures that follow completed now, since the callback is about to wait."""
    ended = getattr(_current, "ended", None)
    if ended is not None:
        ended.set()


class Order:
    """Completes futures one after another: each when the callbacks of the one before have returned, or wait."""

    def __init__(self) -> None:
        self._last: threading.Event | None = None

    def run(self, complete: Callable[[], None]) -> None:
        """Have a future completed, on another thread.

        Parameters
        ----------
        complete
            Completes the future, which calls its callbacks.
        """
        before, ended = self._last, threading.Event()
        self._last = ended

        def call() -> None:
            if before is not None:
                before.wait(GRACE_S)
            _current.ended = ended
            try:
                complete()
            finally:
                _current.ended = None
                ended.set()

        _threads.run(call)
