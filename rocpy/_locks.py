# SPDX-License-Identifier: MIT
"""Locks of objects that are made while memory may run out, and of state that a fork must not find half changed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

__all__ = ["forks_wait", "hold_over_forks", "reentrant_lock"]


def reentrant_lock() -> Any:
    """Return a new reentrant lock.

    Raises
    ------
    MemoryError
        There is no memory for it, where CPython raises a RuntimeError.
    """
    try:
        return threading.RLock()
    except RuntimeError as error:
        raise MemoryError(str(error)) from None


# How long a fork waits for other threads' imports: one of them may itself wait for the thread that forks, which runs
# the body of a module.
_LONGEST_WAIT_S = 60.0


class _Forks:
    """What whoever forks waits for, and holds meanwhile: a child does not have the threads that would go on with it.

    Imports exclude one another by importlib's locks alone, among which it finds deadlocks; a fork waits for them all.
    """

    def __init__(self) -> None:
        self._gate = threading.Condition(reentrant_lock())  # the last of the locks that whoever forks takes
        self._importing: list[int] = []  # threads
        self._locks: list[Any] = []
        self._held: list[Any] = []  # by the thread that forks; read and written by who has the gate
        self._forking: list[int] = []  # that thread
        os.register_at_fork(before=self._take, after_in_parent=self._give_back, after_in_child=self._after_in_child)

    def add(self, lock: Any) -> None:
        self._locks.append(lock)

    @contextmanager
    def wait_for_import(self) -> Iterator[None]:
        me = threading.get_ident()
        with self._gate:
            self._importing.append(me)
        try:
            yield
        finally:
            with self._gate:
                self._importing.remove(me)
                self._gate.notify_all()

    def _take(self) -> None:
        until = time.monotonic() + _LONGEST_WAIT_S
        while not self._try_to_take(until):
            pass

    def _try_to_take(self, until: float) -> bool:
        """Take all locks, or none of them if an import began meanwhile, which may wait for one."""
        taken: list[Any] = []
        try:
            with self._gate:
                while (left := until - time.monotonic()) > 0 and self._others_import():
                    self._gate.wait(left)
            for lock in [*reversed(self._locks), self._gate]:
                lock.acquire()
                taken.append(lock)
            if time.monotonic() < until and self._others_import():
                _release(taken)
                return False
        except BaseException:  # an interrupt: the fork goes on
            _release(taken)
            raise
        self._held = taken
        self._forking.append(threading.get_ident())
        return True

    def _others_import(self) -> bool:
        # A thread that itself imports does not wait: another one that does, too, would wait for it.
        return bool(self._importing) and threading.get_ident() not in self._importing

    def _give_back(self) -> None:
        if self._forking == [threading.get_ident()]:  # not where the fork began before this module was there
            self._forking.clear()
            held, self._held = self._held, []
            _release(held)

    def _after_in_child(self) -> None:
        me = threading.get_ident()
        self._importing = [thread for thread in self._importing if thread == me]
        self._give_back()


def _release(locks: list[Any]) -> None:
    for lock in reversed(locks):
        lock.release()


_forks = _Forks()


def forks_wait() -> AbstractContextManager[None]:
    """Let forks of other threads wait until a block, which imports a part of rocpy, is over."""
    return _forks.wait_for_import()


def hold_over_forks(lock: Any) -> None:
    """Let whoever forks hold a lock meanwhile: the child does not have the thread that would give it back.

    A fork that has begun already does not know of the lock, and leaves it alone.
    """
    _forks.add(lock)
