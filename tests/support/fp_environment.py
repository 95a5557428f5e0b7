# SPDX-License-Identifier: MIT
"""The calling thread's floating-point environment as tests set and read it: through the C library's fenv_t."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager

_libm = ctypes.CDLL(ctypes.util.find_library("m"))
_ARM = platform.machine() in ("aarch64", "arm64")
# Where fenv_t of the C library has the control word: MXCSR behind the 28 bytes of the x87 unit; FPCR first.
_OFFSET = 0 if _ARM else 28
# The x87 unit's control word stands above MXCSR here: its exceptions masked, 64 bits of significand, to nearest.
_X87 = 0 if _ARM else 0x037F << 32
# MXCSR: flush to zero, subnormals are zero, rounding up, down and to zero, exceptions that are not masked, a flag.
ENVIRONMENTS = (
    {"flush": 1 << 24, "up": 1 << 22, "down": 2 << 22, "zero": 3 << 22}
    if _ARM
    else {
        "ftz": _X87 | 0x9F80,
        "daz": _X87 | 0x1FC0,
        "ftz+daz": _X87 | 0x9FC0,
        "up": _X87 | 0x5F80,
        "down": _X87 | 0x3F80,
        "zero": _X87 | 0x7F80,
        # Of the x87 unit: 24 bits of significand, to zero.
        "x87": 0x0C7F << 32 | 0x1F80,
        # Divisions by zero, invalid operations, overflows and underflows end the process by SIGFPE.
        "unmasked": 0x0362 << 32 | (0x1F80 & ~(0x80 | 0x200 | 0x400 | 0x800)),
        "all of it": 0x0C62 << 32 | (0xDFC0 & ~(0x80 | 0x200 | 0x400 | 0x800)) | 0x1,
    }
)
# Of the control word those bits that arithmetic sets.
FLAGS = 0 if _ARM else 0x3F


def read() -> int:
    """Return the control word of the calling thread, with the flags that are set."""
    state = ctypes.create_string_buffer(64)
    _libm.fegetenv(state)
    x87 = 0 if _ARM else struct.unpack_from("<H", state)[0] << 32
    return int(struct.unpack_from("<I", state, _OFFSET)[0]) | x87


def write(word: int) -> None:
    """Set the control word of the calling thread."""
    state = ctypes.create_string_buffer(64)
    _libm.fegetenv(state)
    struct.pack_into("<I", state, _OFFSET, word & 0xFFFFFFFF)
    if not _ARM:
        struct.pack_into("<H", state, 0, word >> 32)
    _libm.fesetenv(state)


@contextmanager
def environment(name: str) -> Iterator[int]:
    """Give the calling thread an environment; when the block ends it has its own again."""
    before = read()
    write(ENVIRONMENTS[name])
    try:
        yield ENVIRONMENTS[name]
    finally:
        write(before)
