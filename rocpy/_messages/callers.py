# SPDX-License-Identifier: MIT
"""Warnings at the line of the caller's, however many of rocpy's functions are in between."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from rocpy.errors import RocpyWarning

__all__ = ["warn"]

# Packages whose functions run between a caller and rocpy, or between two functions of rocpy: layers, managers, caches.
_BETWEEN = frozenset({"contextlib", "functools", "jax", "numpy", "rocpy", "torch"})


def warn(message: str, category: type[Warning] = RocpyWarning) -> None:
    """Warn at the innermost line that is not of rocpy: filters by module and "once for each line" are about callers.

    Parameters
    ----------
    message
        Text of the warning.
    category
        Class of the warning.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_between(frame):
        frame = frame.f_back
    namespace = frame.f_globals
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=namespace.get("__name__") or "<unknown>",
        registry=namespace.setdefault("__warningregistry__", {}),
    )


def _is_between(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _BETWEEN
