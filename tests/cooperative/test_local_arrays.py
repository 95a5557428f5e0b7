# SPDX-License-Identifier: MIT
"""Large local arrays: how long they take to compile, the stack that they need, and how large they may be."""

import time

import numpy as np
import pytest
from device_kernels import NO_COMPILER

from rocpy import cooperative as coop
from rocpy.cooperative.amdgpu import device_library
from rocpy.errors import KernelTypeError, OutOfMemoryError


def reversed_of(count, *, waits=False, **options):
    @coop.jit(**options)
    def kernel(out):
        own, i = coop.local.array(count, np.float64), coop.threadIdx.x
        for k in range(count):
            own[k] = i + k
        if waits:
            coop.syncthreads()
        for k in range(out.shape[1]):
            out[i, k] = own[count - 1 - k]

    return kernel


def check(kernel, count):
    out = np.zeros((3, 5))
    kernel[1, 3](out)
    assert out.tolist() == [[i + count - 1 - k for k in range(5)] for i in range(3)]


def test_the_time_to_compile_does_not_grow_with_the_elements():
    """A hundred times the elements took a thousand times as long and more."""
    check(reversed_of(63), 63)
    begin = time.process_time()
    check(reversed_of(1000), 1000)
    small = time.process_time() - begin
    begin = time.process_time()
    check(reversed_of(100_000), 100_000)
    assert time.process_time() - begin < 10 * small + 1


@pytest.mark.parametrize("options", [{}, {"debug": True}, {"stack_bytes": 16384}])
@pytest.mark.parametrize("waits", [False, True])
def test_arrays_larger_than_the_stack(waits, options):
    check(reversed_of(20_000, waits=waits, **options), 20_000)


def test_arrays_of_a_function_and_of_all_forms():
    def last(count):
        own = coop.local.array(30_000, np.int64)
        for k in range(count):
            own[k] = k
        return own[count - 1]

    @coop.jit
    def kernel(out):
        for i in range(2):
            out[coop.threadIdx.x, i] = last(out.shape[0] + 10 * i)
            if out.shape[0] > 1:
                coop.syncthreads()

    out = np.zeros((4, 2), int)
    kernel[1, 4](out)
    assert out.tolist() == [[3, 13]] * 4


def test_an_array_from_the_disk_has_its_stack(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    check(reversed_of(40_000, cache=True), 40_000)
    again = reversed_of(40_000, cache=True)
    check(again, 40_000)
    assert again.launcher.cache_hits == 1


@pytest.mark.parametrize("count", [2**27 + 1, 2**40])
def test_an_array_too_large_is_refused_with_its_size(count):
    with pytest.raises(KernelTypeError, match=rf"{8 * count} bytes is created for each thread, and 1073741824 are"):
        reversed_of(count)[1, 3](np.zeros((3, 5)))


def test_arrays_too_large_together_are_refused():
    @coop.jit
    def kernel(out):
        a, b = coop.local.array(2**26, np.float64), coop.local.array(2**26 + 8, np.float64)
        for k in range(out.shape[0]):
            a[k] = b[k] = out[k]
        out[0] = a[out.shape[0] - 1] + b[out.shape[0] - 2]

    with pytest.raises(OutOfMemoryError, match=r"local arrays have 10737418\d\d bytes per thread, and 1073741824 are"):
        kernel[1, 1](np.zeros(4))


@pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
@pytest.mark.parametrize(("arch", "limit"), [("gfx942", 126960), ("gfx1100", 126972), ("gfx1200", 1044476)])
def test_the_limit_of_gpus(arch, limit):
    """Beyond it LLVM would end the process."""
    assert device_library.private_limit_bytes(arch, 64) == limit
    info = coop.compile(reversed_of(limit // 8), "void(float64[:,::1])", arch).info
    assert limit - 8 <= info.scratch_bytes <= limit + 4096
    with pytest.raises(
        OutOfMemoryError, match=rf"needs {limit // 8 * 8 + 8} bytes of local arrays .* {limit} are supp"
    ):
        coop.compile(reversed_of(limit // 8 + 1), "void(float64[:,::1])", arch)
