# SPDX-License-Identifier: MIT
"""What a kernel is compiled for besides the types of its arguments: part of the key of all that is kept of it."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

NATIVE = "native"


@dataclass(frozen=True)
class Mode:
    """How a kernel, and the functions that it calls, are compiled.

    Attributes
    ----------
    warp_size
        Threads of a warp.
    debug
        Whether accesses are checked.
    float_type
        ``"float32"``: literals are of this type; empty: they are float64, as Python's are.
    """

    warp_size: int = 64
    debug: bool = False
    float_type: str = ""


def mode_of(kernel: Any, native: int = 64) -> Mode:
    """Return how a kernel is compiled for a target whose waves have so many lanes; the CPU's warps are of 64."""
    return Mode(native if kernel.warp_size == NATIVE else kernel.warp_size, kernel.debug, kernel.float_type)


_current: contextvars.ContextVar[Mode | None] = contextvars.ContextVar("rocpy_cooperative_mode", default=None)


def current_mode() -> Mode | None:
    """Return the mode of the kernel that is being compiled; None where another compiler than ours compiles."""
    return _current.get()


@contextlib.contextmanager
def compiling_in(mode: Mode) -> Iterator[None]:
    """Compile in a mode."""
    token = _current.set(mode)
    try:
        yield
    finally:
        _current.reset(token)
