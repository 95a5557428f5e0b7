# SPDX-License-Identifier: MIT
"""A handle and an allocator of the user's, as programs written for nvmath-python give them."""

from __future__ import annotations

import ctypes
import logging
import threading

import numpy as np
import pytest
from hipblaslt_support.host import library

import rocpy
from rocpy.compat import nvmath

advanced = nvmath.linalg.advanced
# A product whose algorithms want a workspace.
SHAPE = (96, 512, 2048)


class Allocator:
    """Memory of the device, counted."""

    def __init__(self, device_id=0, logger=None):
        self.device_id, self.logger = device_id, logger or logging.getLogger("allocator")
        self.sizes, self.live = [], 0

    def memalloc(self, size):
        buffer = rocpy.Buffer(size, "uint8")
        self.sizes.append(size)
        self.live += 1

        def free():
            self.live -= 1
            buffer.close()

        return nvmath.MemoryPointer(buffer.handle, size, free)


class AsyncAllocator(Allocator):
    """The same, in the order of a stream."""

    memalloc = None

    def memalloc_async(self, size, stream):
        self.streams = [*getattr(self, "streams", []), stream]
        return Allocator.memalloc(self, size)


@pytest.fixture
def handle():
    lt = library("hipblaslt")
    made = ctypes.c_void_p()
    assert lt.hipblasLtCreate(ctypes.byref(made)) == 0
    yield made.value
    assert lt.hipblasLtDestroy(made) == 0


@pytest.fixture
def operands(rng):
    m, n, k = SHAPE
    return rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


def test_a_handle_is_used_and_stays_the_users(handle, operands):
    a, b = operands
    contexts = rocpy.plan_cache.handles()
    rocpy.plan_cache.clear()
    before = rocpy.plan_cache.handles()
    options = advanced.MatmulOptions(handle=handle)
    with advanced.Matmul(a, b, options=options) as mm:
        mm.plan(epilog=advanced.MatmulEpilog.RELU)
        close(mm.execute(), np.maximum(a @ b, 0))
        mm.reset_operands(a=-a)
        close(mm.execute(), np.maximum(-a @ b, 0))
        assert rocpy.plan_cache.handles() == before, "the pool made none"
    close(advanced.matmul(a, b, options={"handle": handle}), a @ b)
    version = ctypes.c_int()
    assert library("hipblaslt").hipblasLtGetVersion(ctypes.c_void_p(handle), ctypes.byref(version)) == 0
    assert contexts >= 0


def test_a_handle_that_is_none_is_told_by_the_library(operands):
    with advanced.Matmul(*operands, options={"handle": 4096}) as mm, pytest.raises(rocpy.LibraryError):
        mm.plan()
    with pytest.raises(rocpy.LibraryError):
        advanced.matmul(*operands, options={"handle": 4096})
    rocpy.matmul(*operands)


@pytest.mark.parametrize("kind", [Allocator, AsyncAllocator])
def test_workspaces_come_from_the_allocator(kind, operands):
    a, b = operands
    allocator = kind()
    with advanced.Matmul(a, b, options={"allocator": allocator}) as mm:
        wanted = max(one.record.workspace_bytes for one in mm.plan(preferences={"limit": 32}))
        assert wanted, "the shape was chosen so that one has a workspace"
        assert allocator.live == 0
        for algorithm in mm.algorithms:
            close(mm.execute(algorithm=algorithm), a @ b)
        assert len(allocator.sizes) == 1
        assert allocator.sizes[0] >= wanted
        assert allocator.live == 1
        mm.autotune(iterations=1)
        assert allocator.live == 1
        close(mm.execute(release_workspace=True), a @ b)
        assert allocator.live == 0
        close(mm.execute(), a @ b)
        assert allocator.live == 1
    assert allocator.live == 0
    if kind is AsyncAllocator:
        assert allocator.streams == [None, None]


def test_an_allocator_on_a_stream_of_ones_own(operands):
    a, b = operands
    allocator = Allocator()
    with rocpy.Stream(nonblocking=True) as stream, advanced.Matmul(a, b, options={"allocator": allocator}) as mm:
        mm.plan(preferences={"limit": 32})
        results = [mm.execute(stream=stream, algorithm=one) for one in mm.algorithms]
        stream.synchronize()
        for result in results:
            close(result, a @ b)
    assert allocator.live == 0


def test_the_plain_product_takes_an_allocator(operands):
    a, b = operands
    allocator = Allocator()
    close(nvmath.linalg.matmul(a, b, options={"allocator": allocator}), a @ b)
    assert allocator.live == 0


def test_other_threads_keep_the_pools(handle, operands):
    a, b = operands
    failures = []

    def others():
        try:
            for _ in range(20):
                close(rocpy.matmul(a, b), a @ b)
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=others)
    thread.start()
    with advanced.Matmul(a, b, options={"handle": handle, "allocator": Allocator()}) as mm:
        mm.plan()
        for _ in range(20):
            close(mm.execute(), a @ b)
    thread.join()
    assert not failures


def test_an_allocator_that_raises_leaves_the_product_usable(operands):
    a, b = operands

    class Failing(Allocator):
        """Has no memory the first time."""

        def memalloc(self, size):
            if not self.sizes:
                self.sizes.append(size)
                raise MemoryError("none left")
            return super().memalloc(size)

    with advanced.Matmul(a, b, options={"allocator": Failing()}) as mm:
        mm.plan(preferences={"limit": 32})
        with pytest.raises(MemoryError, match="none left"):
            mm.execute()
        close(mm.execute(), a @ b)


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"allocator": object()}, TypeError, "allocator.*memalloc"),
        ({"allocator": Allocator}, TypeError, "allocator"),
        ({"handle": "text"}, TypeError, "handle"),
        ({"handle": True}, TypeError, "handle"),
        ({"handle": 0}, ValueError, "handle: got 0"),
        ({"handle": 1 << 70}, ValueError, "handle: got 1180591620717411303424"),
    ],
)
def test_what_is_no_resource(options, error, match):
    a = np.ones((4, 4), np.float32)
    with pytest.raises(error, match=match) as caught:
        advanced.matmul(a, a, options=options)
    assert isinstance(caught.value, rocpy.RocpyError)


def test_memory_without_an_address_is_told(operands):
    class Odd(Allocator):
        """Gives something else."""

        def memalloc(self, size):
            return object()

    with advanced.Matmul(*operands, options={"allocator": Odd()}) as mm:
        mm.plan(preferences={"limit": 32})
        with pytest.raises(TypeError, match="device_ptr"):
            mm.execute()
