# SPDX-License-Identifier: MIT
"""Debug mode: methods and functions of whole arrays, undefined results that are converted, numbers like its poison."""

import inspect

import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.errors import GlobalMemoryRaceError, KernelIndexError, SharedMemoryRaceError, UninitializedResultError


def elements(count=4, dtype=np.int64):
    return np.arange(count)[::-1].astype(dtype)


# What a thread does with a whole array of the grid, which others write to.
WHOLE = {
    "sum": lambda x: x.sum(),
    "np.max": np.max,
    "np.argmax": np.argmax,
    "min": lambda x: x.min(),
    "copy": lambda x: x.copy()[0],
    "of a part": lambda x: x[1:].sum(),
    "of Python": sum,
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_arrays_that_are_read_race(name):
    read = WHOLE[name]

    @coop.jit(debug=True)
    def kernel(x):
        x[coop.threadIdx.x] = read(x) + 9

    with pytest.raises(GlobalMemoryRaceError):
        kernel[1, 4](elements())


def test_whole_arrays_that_are_written_race():
    @coop.jit(debug=True)
    def fills(x):
        x.fill(coop.threadIdx.x)

    @coop.jit(debug=True)
    def sorts(x):
        x.sort()

    for kernel in (fills, sorts):
        with pytest.raises(GlobalMemoryRaceError):
            kernel[1, 4](elements())


@pytest.mark.parametrize("name", ["sum", "np.max"])
@pytest.mark.parametrize("writes", [True, False])
def test_whole_shared_arrays(name, writes):
    read = WHOLE[name]

    @coop.jit(debug=True)
    def kernel(out, writes, waits):
        held, i = coop.shared.array(4, np.int64), coop.threadIdx.x
        if writes:
            held[i] = i
        if waits:
            coop.syncthreads()
        out[i] = read(held)

    with pytest.raises(SharedMemoryRaceError if writes else UninitializedResultError):
        kernel[1, 4](elements(), writes, False)
    if writes:
        kernel[1, 4](elements(), True, True)


def test_correct_kernels_with_whole_arrays():
    @coop.jit(debug=True)
    def kernel(x, out, same):
        i, shared = coop.threadIdx.x, coop.shared.array(4, np.int64)
        if i == 0:
            shared.fill(7)
        own = coop.local.array(3, np.int64)
        own.fill(i)
        own.sort()
        same.fill(5)  # by all threads, the same
        coop.syncthreads()
        out[i] = shared[i] + shared.sum() + own.sum() + x[:4].sum() + out.size + same.shape[0]
        x[4 + i : 5 + i].fill(0)

    x, out, same = np.arange(8), np.zeros(4, np.int64), np.zeros(2)
    kernel[1, 4](x, out, same)
    np.testing.assert_array_equal(out, 7 + 28 + 3 * np.arange(4) + 6 + 4 + 2)
    assert not x[4:].any()
    assert (same == 5).all()


# Values that only thread 0 knows, and what becomes of them.


def total_of(value):
    return coop.sum(coop.this_block(), value)


def store_total(out):
    out[coop.threadIdx.x] = coop.sum(coop.this_block(), np.int32(1))


def store_total_of_int64(out):
    out[coop.threadIdx.x] = total_of(1)


def store_total_of_int8(out):
    total = coop.sum(coop.this_block(), np.int8(1))
    out[coop.threadIdx.x] = total


def store_sum(out):
    out[coop.threadIdx.x] = total_of(1) * 2 + 1


def store_converted(out):
    out[coop.threadIdx.x] = int(coop.sum(coop.this_block(), np.float32(1.5)))


def add(out):
    out[coop.threadIdx.x] += coop.sum(coop.this_block(), 1)


def add_atomically(out):
    coop.atomic.add(out, coop.threadIdx.x, coop.sum(coop.this_block(), 1))


def exchange(out):
    coop.atomic.exch(out, coop.threadIdx.x, coop.sum(coop.this_block(), 1))


UNDEFINED = (
    store_total,
    store_total_of_int64,
    store_total_of_int8,
    store_sum,
    store_converted,
    add,
    add_atomically,
    exchange,
)


@pytest.mark.parametrize("function", UNDEFINED, ids=lambda each: each.__name__)
def test_undefined_results_are_told_of_however_they_are_stored(function):
    kernel = coop.jit(debug=True)(function)
    for dtype in (np.int64, np.float32):
        with pytest.raises(UninitializedResultError, match="leaves undefined"):
            kernel[1, 4](np.zeros(4, dtype))


def stored_by_one(out):
    total = coop.sum(coop.this_block(), 1) + 1
    out[coop.threadIdx.x] = total if coop.threadIdx.x == 0 else 5


def chosen(i, total):
    return total if i == 0 else 5


def chosen_by_a_function(out):
    out[coop.threadIdx.x] = chosen(coop.threadIdx.x, total_of(1) + 1)


def times_zero(out):
    out[coop.threadIdx.x] = (
        total_of(1) * (coop.threadIdx.x == 0) + 5 * (coop.threadIdx.x != 0) + (coop.threadIdx.x == 0)
    )


def overwritten(out):
    total = coop.sum(coop.this_block(), 1) + 1
    for k in range(2):
        own = coop.local.array(2, np.int64)
        own[k] = total
        total = 5
    out[coop.threadIdx.x] = total


def ones_by_all(out):
    out[coop.threadIdx.x] = coop.sum(coop.this_block(), 1, all=True) + 1


@pytest.mark.parametrize(
    "function",
    [stored_by_one, chosen_by_a_function, times_zero, overwritten, ones_by_all],
    ids=lambda each: each.__name__,
)
def test_correct_kernels_with_undefined_results(function):
    out = np.zeros(4, np.int64)
    coop.jit(debug=True)(function)[1, 4](out)
    assert out.tolist() == [5, 5, 5, 5]


POISON = [
    np.array([-842150451], np.int32),
    np.frombuffer(b"\xcd" * 8, np.int64),
    np.frombuffer(b"\xcd" * 8, np.uint64),
    np.array([0x7FC0DEAD], np.uint32).view(np.float32),
    np.array([0x7FF81BD5A0000000], np.uint64).view(np.float64),
]


@pytest.mark.parametrize("x", POISON, ids=lambda x: x.dtype.name)
def test_numbers_with_the_bits_of_undefined_results_are_numbers(x):
    @coop.jit(debug=True)
    def kernel(x, out, totals):
        out[0] = x[0]
        totals[coop.threadIdx.x] = coop.max(coop.this_block(), x[0], all=True)

    out, totals = np.zeros_like(x), np.zeros_like(x)
    kernel[1, 1](x, out, totals)
    assert out.tobytes() == totals.tobytes() == x.tobytes()


def taken(x, n):
    for i in range(n):
        yield x[i]  # element


def test_generators_that_a_kernel_calls():
    @coop.jit(debug=True)
    def kernel(x, out):
        for value in taken(x, 4):
            out[value] = value + 9  # result

    lines, first = inspect.getsourcelines(kernel.function)
    result = first + next(i for i, line in enumerate(lines) if "# result" in line)
    lines, first = inspect.getsourcelines(taken)
    element = first + next(i for i, line in enumerate(lines) if "# element" in line)
    out = np.zeros(4, np.int64)
    kernel[1, 1](elements(), out)
    assert out.tolist() == [9, 10, 11, 12]
    for x, line in ((elements(), result), (np.zeros(3, np.int64), element)):
        with pytest.raises(KernelIndexError, match=f"{__file__}:{line}:"):
            kernel[1, 1](x, out[:2])
