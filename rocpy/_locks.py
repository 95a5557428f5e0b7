# SPDX-License-Identifier: MIT
"""Locks of objects that are made while memory may run out, and of state that a fork must not find half changed."""

from __future__ import annotations

import os
import threading
from typing import Any

__all__ = ["hold_over_forks", "reentrant_lock"]


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


def hold_over_forks(lock: Any) -> None:
    """Let whoever forks hold a lock meanwhile: the child does not have the thread that would give it back.

    A fork may be under way already, whose first half does not know of the lock: its second half leaves the lock alone.
    """
    forking: list[int] = []  # the thread that took the lock to fork; read and written by who has the lock

    def take() -> None:
        lock.acquire()
        forking.append(threading.get_ident())

    def give_back() -> None:
        if forking == [threading.get_ident()]:
            forking.clear()
            lock.release()

    os.register_at_fork(before=take, after_in_parent=give_back, after_in_child=give_back)
