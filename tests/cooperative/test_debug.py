# SPDX-License-Identifier: MIT
"""Debug mode finds each planted fault with its block, thread and line, and says nothing of correct kernels."""

import inspect

import numba
import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.errors import (
    DivergentBarrierError,
    KernelError,
    KernelIndexError,
    SharedMemoryRaceError,
    UninitializedResultError,
)


def line_of(kernel, mark):
    """Line of the kernel's source that holds the mark."""
    lines, first = inspect.getsourcelines(kernel.function)
    return first + next(i for i, line in enumerate(lines) if mark in line)


@coop.jit(debug=True)
def racy(x, out):
    held = coop.shared.array(64, np.float64)
    i = coop.threadIdx.x
    held[i] = x[i]
    out[i] = held[(i + 1) % 64]  # race


@coop.jit(debug=True)
def unordered_writes(out):
    held = coop.shared.array(1, np.int64)
    held[0] = coop.threadIdx.x  # race
    coop.syncthreads()
    out[0] = held[0]


@coop.jit(debug=True)
def divergent(x):
    if coop.threadIdx.x < 10:
        coop.syncthreads()  # first
    else:
        coop.syncthreads()  # second
    x[0] = 1


@coop.jit(debug=True)
def beyond(x, out):
    i = coop.grid(1)
    out[i] = x[i + 1]  # beyond


@coop.jit(debug=True)
def unwritten(out):
    held = coop.shared.array(8, np.float32)
    out[coop.threadIdx.x] = held[coop.threadIdx.x]  # unwritten


@coop.jit(debug=True)
def everyone_stores(x, out):
    total = coop.sum(coop.this_block(), x[coop.threadIdx.x])
    out[coop.threadIdx.x] = total * 2  # undefined


@coop.jit(debug=True)
def missing_collective(x, out):
    total = 0.0
    if coop.threadIdx.x != 5:
        total = coop.sum(coop.this_block(), x[coop.threadIdx.x])  # waits
    out[0] = total


@coop.jit(debug=True)
def stores_all(x, out):
    coop.store(coop.this_block(), out, coop.sum(coop.this_block(), x[coop.threadIdx.x]))  # undefined


@coop.jit(debug=True)
def store_and_read(x):
    held = coop.shared.array(16, np.float64)
    coop.store(coop.this_block(), held, x[coop.threadIdx.x])
    x[coop.threadIdx.x] = held[15 - coop.threadIdx.x]  # race


@coop.jit(debug=True)
def write_and_load(x):
    held, items = coop.shared.array(16, np.float64), coop.ThreadData(1, np.float64)
    held[15 - coop.threadIdx.x] = x[coop.threadIdx.x]
    coop.load(coop.this_block(), held, items)  # race
    x[coop.threadIdx.x] = items[0]


CASES = [
    (racy, (np.zeros(64), np.zeros(64)), 64, SharedMemoryRaceError, "race"),
    (unordered_writes, (np.zeros(1, np.int64),), 32, SharedMemoryRaceError, "race"),
    (divergent, (np.zeros(1),), 20, DivergentBarrierError, ""),
    (beyond, (np.zeros(32), np.zeros(32)), 32, KernelIndexError, "beyond"),
    (unwritten, (np.zeros(8, np.float32),), 8, UninitializedResultError, "unwritten"),
    (everyone_stores, (np.zeros(16), np.zeros(16)), 16, UninitializedResultError, "undefined"),
    (everyone_stores, (np.zeros(16, np.float32), np.zeros(16)), 16, UninitializedResultError, "undefined"),
    (missing_collective, (np.zeros(16), np.zeros(1)), 16, DivergentBarrierError, "waits"),
    (stores_all, (np.zeros(16), np.zeros(16)), 16, UninitializedResultError, "undefined"),
    (store_and_read, (np.zeros(16),), 16, SharedMemoryRaceError, ""),
    (write_and_load, (np.zeros(16),), 16, SharedMemoryRaceError, ""),
]


@pytest.mark.parametrize(
    ("kernel", "arguments", "block", "error", "mark"), CASES, ids=lambda v: getattr(v, "name", None)
)
def test_planted_faults_are_found_with_their_line(kernel, arguments, block, error, mark):
    with pytest.raises(error) as caught:
        kernel[2, block](*arguments)
    found = caught.value
    assert isinstance(found, KernelError)
    assert found.kernel == kernel.name
    assert found.block == (0, 0, 0) or kernel is beyond
    assert 0 <= found.thread[0] < block
    assert found.filename == __file__
    if mark:
        assert f"{__file__}:{line_of(kernel, f'# {mark}')}" in str(found)
        assert f"{__file__}:{found.line}" in str(found)
    elif kernel is divergent:
        assert found.line in (line_of(kernel, "# first"), line_of(kernel, "# second"))


def test_primitives_may_write_and_read_shared_memory():
    @coop.jit(debug=True)
    def kernel(x, out):
        held, decoded, items = (
            coop.shared.array(8, np.int64),
            coop.shared.array(8, np.int64),
            coop.ThreadData(1, np.int64),
        )
        i, block = coop.threadIdx.x, coop.this_block()
        coop.store(block, held, x[i])
        coop.run_length_decode_into(block, decoded, x[i], 1)
        coop.syncthreads()
        coop.load(block, decoded, items)
        out[i] = held[7 - i] + items[0]

    out = np.zeros(8, np.int64)
    kernel[1, 8](np.arange(8), out)
    assert out.tolist() == [7] * 8


def test_an_index_error_is_an_index_error():
    with pytest.raises(IndexError, match=r"thread \(31, 0, 0\)"):
        beyond[1, 32](np.zeros(32), np.zeros(32))


def test_a_collective_that_a_thread_misses_is_an_error_in_every_mode():
    kernel = coop.jit(missing_collective.function)
    with pytest.raises(DivergentBarrierError, match="left the kernel"):
        kernel[1, 16](np.zeros(16), np.zeros(1))


def _either(x, out):
    i, block = coop.threadIdx.x, coop.this_block()
    out[i] = coop.sum(block, x[i], all=True) if i < 4 else coop.max(block, x[i], all=True)


def _total_in_block(value):
    return coop.sum(coop.this_block(), value, all=True)


def _of_two_types(x, out):
    i = coop.threadIdx.x
    out[i] = _total_in_block(x[i]) if i < 4 else _total_in_block(np.float64(x[i]))


@numba.njit
def _compiled_total(value):
    return coop.sum(coop.this_block(), value, all=True)


@numba.njit
def _compiled_most(value):
    return coop.max(coop.this_block(), value, all=True)


def _of_compiled(x, out):
    i = coop.threadIdx.x
    out[i] = _compiled_total(x[i]) if i < 4 else _compiled_most(x[i])


@pytest.mark.parametrize(
    ("function", "debug"),
    [
        (_either, False),
        pytest.param(_either, True, marks=pytest.mark.slow),
        (_of_two_types, False),
        (_of_compiled, False),
    ],
    ids=["calls", "debug", "types", "compiled"],
)
def test_calls_of_one_line_are_calls_of_their_own(function, debug):
    with pytest.raises(DivergentBarrierError, match="in another call of that line"):
        coop.jit(debug=debug)(function)[1, 8](np.arange(8), np.zeros(8))


def test_a_call_in_the_test_of_a_loop_is_one_call():
    @coop.jit  # CPython compiles the test of a `while` twice
    def kernel(out):
        i = coop.threadIdx.x
        passes = 1 + i % 2
        for _ in range(passes):
            left = 3 - passes
            while left > 0 and coop.sum(coop.this_block(), 1, all=True) > 0:
                out[i] += 1
                left -= 1

    out = np.zeros(8)
    kernel[1, 8](out)
    assert out.tolist() == [2.0] * 8


@pytest.mark.parametrize("debug", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_call_in_a_function_is_the_same_call_wherever_that_is_called(debug):
    @coop.jit(debug=debug)
    def kernel(x, out):
        def total(value):
            return coop.sum(coop.this_block(), value, all=True)

        i = coop.threadIdx.x
        if i < 4:
            out[i] = _total_in_block(x[i])
            out[i] += total(x[i])
        else:
            out[i] = _total_in_block(10 * x[i])
            out[i] += total(10 * x[i])

    out = np.zeros(8, np.int64)
    kernel[1, 8](np.ones(8, np.int64), out)
    assert out.tolist() == [88] * 8


def _clipped(value):
    if value > 0:
        return value
    return value * 0


def test_a_function_that_returns_restores_the_line_of_its_caller():
    def shifted(x, out):
        i = coop.threadIdx.x
        out[i] = coop.shuffle(coop.this_block(), _clipped(x[i]), "rotate", 1)

    def divergent_sums(x, out):
        i = coop.threadIdx.x
        if i < 4:
            out[i] = coop.sum(coop.this_block(), _clipped(x[i]), all=True)
        else:
            out[i] = coop.sum(coop.this_block(), _clipped(x[i]) + 1, all=True)

    def beyond_the_end(x, out):
        out[_clipped(x[coop.threadIdx.x]) + 8] = 1  # index

    x, out = np.arange(-3, 5), np.zeros(8, np.int64)
    coop.jit(debug=True)(shifted)[1, 8](x, out)
    assert out.tolist() == [0, 0, 0, 1, 2, 3, 4, 0]
    with pytest.raises(DivergentBarrierError):
        coop.jit(debug=True)(divergent_sums)[1, 8](x, out)
    kernel = coop.jit(debug=True)(beyond_the_end)
    with pytest.raises(KernelIndexError, match=f":{line_of(kernel, '# index')}:"):
        kernel[1, 8](x, out)


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_threads_is_shuffled(seed):
    @coop.jit(debug=True, seed=seed, threads=1)
    def order(counter, out):
        out[coop.atomic.add(counter, 0, 1)] = coop.threadIdx.x

    first, again = np.zeros(64, np.int64), np.zeros(64, np.int64)
    order[1, 64](np.zeros(1, np.int64), first)
    order[1, 64](np.zeros(1, np.int64), again)
    np.testing.assert_array_equal(first, again)
    assert sorted(first) == list(range(64))
    assert not np.array_equal(first, np.arange(64))


def test_the_variable_turns_it_on(monkeypatch):
    monkeypatch.setenv("ROCPY_SIMT_DEBUG", "1")
    assert coop.jit(racy.function).debug
    monkeypatch.setenv("ROCPY_SIMT_DEBUG", "0")
    assert not coop.jit(racy.function).debug


# Correct kernels, in the ways that people write them: none may raise.


def tree(x, out):
    held = coop.shared.array(64, np.float64)
    i = coop.threadIdx.x
    held[i] = x[i]
    step = 32
    while step:
        coop.syncthreads()
        if i < step:
            held[i] += held[i + step]
        step //= 2
    if i == 0:
        out[0] = held[0]


def double_buffer(x, out):
    held = coop.shared.array((2, 64), np.float64)
    i = coop.threadIdx.x
    held[0, i] = x[i]
    coop.syncthreads()
    for k in range(6):
        here, there = k % 2, 1 - k % 2
        held[there, i] = held[here, i] + (held[here, i - 2**k] if i >= 2**k else 0.0)
        coop.syncthreads()
    out[i] = held[0, i]


def neighbours(x, out):
    held = coop.shared.array(66, np.float64)
    i = coop.threadIdx.x
    held[i + 1] = x[i]
    if i == 0:
        held[0] = held[65] = 0.0
    coop.syncthreads()
    out[i] = held[i] + held[i + 1] + held[i + 2]


def early_return(x, out):
    i = coop.threadIdx.x
    if i >= 40:
        return
    held = coop.shared.array(64, np.float64)
    held[i] = x[i]
    coop.syncthreads()
    out[i] = held[39 - i]


def warp_synchronous(x, out):
    held = coop.shared.array(64, np.float64)
    i = coop.threadIdx.x
    held[i] = x[i]
    coop.syncwarp()
    out[i] = held[i ^ 1]


def histogram(x, out):
    bins = coop.shared.array(8, np.int64)
    i = coop.threadIdx.x
    if i < 8:
        bins[i] = 0
    coop.syncthreads()
    coop.atomic.add(bins, int(x[i] * 8), 1)
    coop.syncthreads()
    if i < 8:
        out[i] = bins[i]


def uniform_loop(x, out):
    held = coop.shared.array(1, np.float64)
    i = coop.threadIdx.x
    for k in range(5):
        if i == k:
            held[0] = x[k]
        coop.syncthreads()
        out[i] += held[0]
        coop.syncthreads()


def all_threads_use_a_total(x, out):
    out[coop.threadIdx.x] = coop.sum(coop.this_block(), x[coop.threadIdx.x], all=True)


def first_thread_uses_a_total(x, out):
    total = coop.max(coop.this_warp(), x[coop.threadIdx.x])
    if coop.this_warp().rank() == 0:
        out[coop.threadIdx.x] = total


def own_elements(x, out):
    held = coop.shared.array(64, np.float64)
    i = coop.threadIdx.x
    held[i] = x[i]
    held[i] *= 2
    out[i] = held[i]


def thread_data(x, out):
    items = coop.ThreadData(4, np.float64)
    for k in range(4):
        items[k] = x[(coop.threadIdx.x + k) % 64]
    out[coop.threadIdx.x] = coop.sum(coop.this_block(), items, all=True)


def scanned(x, out):
    before = coop.exclusive_sum(coop.this_block(), x[coop.threadIdx.x])
    after, total = coop.inclusive_sum(coop.this_block(), before, aggregate=True)
    out[coop.threadIdx.x] = after + total


def no_barrier(x, out):
    i = coop.grid(1) % 64
    out[i] = np.sqrt(x[i])


def reuse_after_barrier(x, out):
    held = coop.shared.array(64, np.float64)
    i = coop.threadIdx.x
    for k in range(3):
        held[i] = x[i] + k
        coop.syncthreads()
        out[i] += held[63 - i]
        coop.syncthreads()


def two_arrays(x, out):
    first = coop.shared.array(64, np.float64)
    second = coop.shared.array(64, np.float32)
    i = coop.threadIdx.x
    first[i] = x[i]
    second[i] = x[i]
    coop.syncthreads()
    out[i] = first[63 - i] - second[63 - i]


def broadcast_read(x, out):
    held = coop.shared.array(1, np.float64)
    if coop.threadIdx.x == 63:
        held[0] = x[0]
    coop.syncthreads()
    out[coop.threadIdx.x] = held[0]


def conditional_work_between(x, out):
    held = coop.shared.array(64, np.float64)
    i = coop.threadIdx.x
    if i % 2:
        held[i] = x[i]
    else:
        held[i] = -x[i]
    coop.syncthreads()
    if i % 3 == 0:
        out[i] = held[i // 2]


def atomics_on_global(x, out):
    coop.atomic.max(out, 0, x[coop.threadIdx.x])


def bytes_side_by_side(x, out):
    flags = coop.shared.array(64, np.uint8)
    i = coop.threadIdx.x
    flags[i] = x[i] > 0.5
    coop.syncthreads()
    out[i] = flags[63 - i]


def nan_of_the_users(x, out):
    out[coop.threadIdx.x] = x[coop.threadIdx.x] * np.nan


CORRECT = [
    tree, double_buffer, neighbours, early_return, warp_synchronous, histogram, uniform_loop, all_threads_use_a_total,
    first_thread_uses_a_total, own_elements, thread_data, scanned, no_barrier, reuse_after_barrier, two_arrays,
    broadcast_read, conditional_work_between, atomics_on_global, bytes_side_by_side, nan_of_the_users,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*have returned from the kernel before the barrier")  # one does, on purpose
@pytest.mark.parametrize(
    "function",
    [*CORRECT[:10], *(pytest.param(function, marks=pytest.mark.slow) for function in CORRECT[10:])],
    ids=lambda function: function.__name__,
)
def test_correct_kernels_raise_nothing(function, rng):
    coop.jit(debug=True, threads=1)(function)[1, 64](rng.random(64), np.zeros(64))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*have returned from the kernel before the barrier")
@pytest.mark.parametrize("function", CORRECT, ids=lambda function: function.__name__)
def test_correct_kernels_give_the_same_in_any_order(function, rng):
    x = rng.random(64)
    plain = np.zeros(64)
    coop.jit(threads=1)(function)[1, 64](x, plain)
    for seed in range(1, 4):
        out = np.zeros(64)
        coop.jit(debug=True, seed=seed, threads=1)(function)[1, 64](x, out)
        np.testing.assert_array_equal(out, plain)
