# SPDX-License-Identifier: MIT
"""A stream that waits: what is queued behind it has not run yet."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator

import rocpy


@contextlib.contextmanager
def blocked(stream: rocpy.Stream) -> Iterator[None]:
    """Keep a stream from going on, by a host function that waits (hipLaunchHostFunc)."""
    leave = threading.Event()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: leave.wait(60) and None)
    launch = ctypes.CDLL(rocpy.platform.current().libraries["hip"].path).hipLaunchHostFunc
    launch.argtypes = [ctypes.c_void_p] * 3
    assert launch(stream.handle, function, None) == 0
    try:
        yield
    finally:
        leave.set()
        stream.synchronize()
