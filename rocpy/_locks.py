# SPDX-License-Identifier: MIT
"""Locks of objects that are made while memory may run out."""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["reentrant_lock"]


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
