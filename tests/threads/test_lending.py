# SPDX-License-Identifier: MIT
"""A handle and a workspace that the user lends stay as long as a product of any thread uses them."""

from __future__ import annotations

import ctypes
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import rocpy
from rocpy.blaslt.engine.lending import Lending
from rocpy.errors import ClosedError

A, B = np.full((4, 5), 2.0, np.float32), np.full((5, 6), 3.0, np.float32)


class Pause:
    """A launch that waits until it is let go on; it notes the workspace."""

    def __init__(self, slot):
        address, size = ctypes.c_void_p, ctypes.c_size_t
        kind = ctypes.CFUNCTYPE(ctypes.c_int, *[address] * 14, size, address)
        self.original, self.launching, self.go_on = kind(slot.value), threading.Event(), threading.Event()
        self.workspaces = []
        self.function = kind(self.launch)

    def launch(self, *arguments):
        self.workspaces.append(arguments[13])
        self.launching.set()
        assert self.go_on.wait(60)
        return self.original(*arguments)


def test_closing_waits_for_the_product_that_uses_it(platform_functions):
    rocpy.matmul(A, B)
    memory = rocpy.Buffer((1 << 20,))
    kept, address = weakref.ref(memory), memory.handle
    lending = Lending(0, 0)
    lending.give_workspace(memory, address, memory.nbytes)
    del memory
    pause = Pause(platform_functions.slot("hipblasLtMatmul"))

    def multiply():
        with lending:
            return rocpy.matmul(A, B)

    with platform_functions.replaced({"hipblasLtMatmul": pause.function}), ThreadPoolExecutor(1) as other:
        running = other.submit(multiply)
        assert pause.launching.wait(60)
        lending.close()
        assert kept() is not None
        with pytest.raises(ClosedError), lending:
            pass
        pause.go_on.set()
        np.testing.assert_array_equal(running.result(60), 30.0)
    assert kept() is None
    np.testing.assert_array_equal(rocpy.matmul(A, B), 30.0)
    lending.close()


def test_threads_that_enter_one_after_the_other_leave_what_was_there(platform_functions):
    """A thread gets back what it preferred itself, whoever entered in between."""
    rocpy.matmul(A, B)
    outer, shared = Lending(0, 0), Lending(0, 0)
    inside, leave = threading.Event(), threading.Event()

    def first():
        with outer, shared:
            inside.set()
            assert leave.wait(60)
        return rocpy.matmul(A, B)

    with ThreadPoolExecutor(1) as other:
        running = other.submit(first)
        assert inside.wait(60)
        with shared:
            leave.set()
            np.testing.assert_array_equal(running.result(60), 30.0)
            outer.close()
        np.testing.assert_array_equal(rocpy.matmul(A, B), 30.0)
    shared.close()
    np.testing.assert_array_equal(rocpy.matmul(A, B), 30.0)
