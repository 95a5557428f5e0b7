# SPDX-License-Identifier: MIT
"""Locks: of files, of objects made while memory may run out, and of state that a fork must not find half changed."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["file_lock", "hold_over_forks", "reentrant_lock", "wait_before_others"]


def reentrant_lock() -> Any:
    """Return a new reentrant lock.

    Raises
    ------
    MemoryError
        There is no memory for it, where CPython raises a RuntimeError.
    """
    try:
        return threading.RLock()
    except RecursionError:
        raise
    except RuntimeError as error:
        raise MemoryError(str(error)) from None


# How long a fork waits for other threads' imports: one of them may itself wait for the thread that forks, which runs
# the body of a module.
_LONGEST_WAIT_S = 60.0
_BETWEEN_LOOKS_S = 0.001

# Modules of Python's that take a lock for a fork, which threads that import may need, and their names for it.
_LOCKS_OF_OTHERS = {"concurrent.futures.thread": "_global_shutdown_lock", "logging": "_lock"}

# Weak references to the locks of the modules that are being imported, by name. Only importlib knows which thread holds
# one; a Python without this table has forks that do not wait.
_module_locks: dict[str, Any] = getattr(importlib._bootstrap, "_module_locks", {})


def _importing_threads() -> set[int]:
    """Return the threads that import a module of rocpy, or another package's module for rocpy."""
    threads = set()
    for name, reference in list(_module_locks.items()):
        owner = getattr(reference(), "owner", None)
        if owner is not None and (_is_ours(name) or _imports_for_rocpy(owner)):
            threads.add(owner)
    return threads


def _is_ours(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] == "rocpy"


def _imports_for_rocpy(thread: int) -> bool:
    """Whether an import of a thread began in a function of rocpy: a program's own imports may go on for ever."""
    imports = False
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_globals is vars(importlib._bootstrap):
            imports = True
        elif imports and _is_ours(frame.f_globals.get("__name__")):
            return True
        frame = frame.f_back
    return False


class _Forks:
    """What whoever forks waits for, and holds meanwhile: a child does not have the threads that would go on with it.

    Imports exclude one another by importlib's locks alone, among which it finds deadlocks; a fork waits for them all.
    """

    def __init__(self) -> None:
        self._locks: list[Any] = [reentrant_lock()]  # the first, which is taken last, guards the two below
        self._held: list[Any] = []  # by the thread that forks
        self._forking: list[int] = []  # that thread
        self._hooked: set[str] = set()  # modules of `_LOCKS_OF_OTHERS` that have been imported
        os.register_at_fork(before=self._take, after_in_parent=self._give_back, after_in_child=self._give_back)

    def wait_first(self, module: str) -> None:
        """Wait before the hooks that a module has registered by now: those of who comes last are called first."""
        os.register_at_fork(before=self._take)
        self._hooked.add(module)

    def add(self, lock: Any) -> None:
        self._locks.append(lock)

    def _take(self) -> None:
        if self._is_mine():
            return
        until = time.monotonic() + _LONGEST_WAIT_S
        hooked = set(self._hooked)
        while not self._try_to_take(until):
            time.sleep(_BETWEEN_LOOKS_S)
        for module in self._hooked - hooked:
            _take_of(module)

    def _try_to_take(self, until: float) -> bool:
        """Take all locks, or none of them while others import, which may wait for one."""
        if _must_wait(until):
            return False
        taken: list[Any] = []
        try:
            for lock in reversed(self._locks):
                lock.acquire()
                taken.append(lock)
            if _must_wait(until):
                _release(taken)
                return False
        except BaseException:  # an interrupt: the fork goes on
            _release(taken)
            raise
        self._held = taken
        self._forking.append(threading.get_ident())
        return True

    def _is_mine(self) -> bool:
        return self._forking == [threading.get_ident()]

    def _give_back(self) -> None:
        if self._is_mine():  # not where the fork began before this module was there
            self._forking.clear()
            held, self._held = self._held, []
            _release(held)


def _take_of(module: str) -> None:
    """Take a lock in place of the hook of a module imported meanwhile, of which only the one after a fork is called."""
    lock = getattr(sys.modules.get(module), _LOCKS_OF_OTHERS[module], None)
    if lock is not None and not (lock._is_owned() if hasattr(lock, "_is_owned") else lock.locked()):
        lock.acquire()


def _must_wait(until: float) -> bool:
    # A thread that itself imports does not wait: another one that does, too, would wait for it.
    threads = _importing_threads()
    return bool(threads) and threading.get_ident() not in threads and time.monotonic() < until


def _release(locks: list[Any]) -> None:
    for lock in reversed(locks):
        lock.release()


_forks = _Forks()


def wait_before_others(when_imported: Callable[[str, Callable[[], None]], None]) -> None:
    """Have forks wait before modules of Python's take locks for them, which threads that import may need.

    Parameters
    ----------
    when_imported
        Calls a function once the module of a name has been imported.
    """
    for module in _LOCKS_OF_OTHERS:
        when_imported(module, functools.partial(_forks.wait_first, module))


def hold_over_forks(lock: Any) -> None:
    """Let whoever forks hold a lock meanwhile: the child does not have the thread that would give it back.

    A fork that has begun already does not know of the lock, and leaves it alone.
    """
    _forks.add(lock)


@contextlib.contextmanager
def file_lock(path: str | os.PathLike[str], timeout_s: float) -> Iterator[None]:
    """Hold a file's lock between processes, which the system gives back when a process ends.

    A system or file system without such locks goes on without.

    Raises
    ------
    TimeoutError
        If another process holds it for so long.
    OSError
        If the file cannot be opened.
    """
    with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123  (pathlib is not imported with the package)
        unlock = _lock_within(file.fileno(), path, timeout_s)
        owner = os.getpid()
        try:
            yield
        finally:
            # Closing is not enough: a child that was forked meanwhile has the file open, too.
            if os.getpid() == owner:
                unlock()


def _lock_within(descriptor: int, path: str | os.PathLike[str], timeout_s: float) -> Callable[[], object]:
    """Lock an open file, and return what unlocks it."""
    try:
        import fcntl
    except ImportError:
        return lambda: None
    until = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimeoutError(
                    f"another process has held the lock of {os.fspath(path)} for {timeout_s:g} s"
                ) from None
            time.sleep(_BETWEEN_LOOKS_S)
        except OSError:  # without such locks
            return lambda: None
        else:
            return lambda: fcntl.flock(descriptor, fcntl.LOCK_UN)
