# SPDX-License-Identifier: MIT
"""A stream that waits: what is queued behind it has not run yet."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import threading
import time
from collections.abc import Iterator

import rocpy


@contextlib.contextmanager
def blocked(stream: rocpy.Stream) -> Iterator[None]:
    """Keep a stream from going on, by a host function that waits (hipLaunchHostFunc).

    What earlier tests left is collected before: it may own memory, and hipFree waits for the whole device.
    """
    leave = threading.Event()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: leave.wait(60) and None)
    launch = ctypes.CDLL(rocpy.platform.current().libraries["hip"].path).hipLaunchHostFunc
    launch.argtypes = [ctypes.c_void_p] * 3
    gc.collect()
    collects = gc.isenabled()
    gc.disable()
    try:
        assert launch(stream.handle, function, None) == 0
        yield
    finally:
        leave.set()
        stream.synchronize()
        if collects:
            gc.enable()


def delay(stream: rocpy.Stream, seconds: float = 0.03) -> object:
    """Queue a host function that takes a while: who does not wait for the stream reads what was before its later work.

    Returns what must be kept until the stream is done. Whoever waits is right however long that takes.
    """
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: time.sleep(seconds))
    launch = ctypes.CDLL(rocpy.platform.current().libraries["hip"].path).hipLaunchHostFunc
    launch.argtypes = [ctypes.c_void_p] * 3
    assert launch(stream.handle, function, None) == 0
    return function
