# SPDX-License-Identifier: MIT
"""Debug mode: races on arrays, integers divided by zero, and barriers that threads leave before, each with its line."""

import inspect
import warnings

import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.errors import GlobalMemoryRaceError, KernelDivisionError, RocpyWarning, SharedMemoryRaceError


def line_of(kernel, mark):
    """Line of the kernel's source that holds the mark."""
    lines, first = inspect.getsourcelines(kernel.function)
    return first + next(i for i, line in enumerate(lines) if mark in line)


@coop.jit(debug=True)
def neighbours(x, out, waits):
    i, size = coop.grid(1), coop.gridsize(1)
    x[i] = i + 1  # written
    if waits:
        coop.syncthreads()
    out[i] = x[(i + 1) % size]  # read


@coop.jit(debug=True)
def last_writes(out):
    out[0] = coop.grid(1)


@coop.jit(debug=True)
def counts(out, seen):
    coop.atomic.add(out, 0, 1)
    if seen.size:
        seen[coop.grid(1)] = out[0]  # read


@coop.jit(debug=True)
def own_elements(x):
    for _ in range(2):
        x[coop.grid(1)] += 1


@coop.jit(debug=True)
def within_warps(x, out):
    i, warp = coop.threadIdx.x, coop.this_warp()
    x[i] = i + 1
    coop.syncwarp()
    out[i] = x[warp.size() - 1]  # read


@coop.jit(debug=True)
def within_groups(x, out, width, distance, shared):
    held = coop.shared.array(128, np.int64)
    i, group = coop.threadIdx.x, coop.this_warp(width)
    if i < x.shape[0]:  # a barrier of some of the groups
        for _ in range(2):
            if shared:
                held[i] = i
            else:
                x[i] = i + 1
            coop.barrier(group)
            out[i] = held[i ^ distance] if shared else x[i ^ distance]
            coop.barrier(group)


@coop.jit(debug=True)
def stores(x, out):
    coop.store(coop.this_block(), out, x[coop.grid(1)])  # written


@coop.jit(debug=True)
def flags(out):
    out[0] = 7


def arrays(count, dtype=np.float64):
    return np.zeros(count, dtype), np.zeros(count, dtype)


def test_threads_of_a_block():
    with pytest.raises(GlobalMemoryRaceError, match=r"put coop\.syncthreads\(\) between") as told:
        neighbours[1, 8](*arrays(8), False)
    assert told.value.line in (line_of(neighbours, "# read"), line_of(neighbours, "# written"))
    assert told.value.block == (0, 0, 0)
    x, out = arrays(8)
    neighbours[1, 8](x, out, True)
    np.testing.assert_array_equal(out, np.roll(np.arange(8) + 1, -1))


def test_threads_of_two_blocks():
    with pytest.raises(GlobalMemoryRaceError, match=r"block \(0, 0, 0\), thread .*blocks run in any order"):
        neighbours[2, 4](*arrays(8), True)
    with pytest.raises(GlobalMemoryRaceError, match="writes what the other writes") as told:
        last_writes[2, 1](np.zeros(1))
    assert told.value.block == (1, 0, 0)
    for dtype in (np.int8, np.float16, np.int64):
        with pytest.raises(GlobalMemoryRaceError, match="writes what the other writes"):
            last_writes[1, 2](np.zeros(1, dtype))


def test_stores_of_primitives():
    with pytest.raises(GlobalMemoryRaceError) as told:
        stores[2, 4](np.arange(8.0), np.zeros(4))
    assert told.value.line == line_of(stores, "# written")
    stores[1, 4](np.arange(8.0), np.zeros(4))


def test_reports_are_the_same_each_time():
    told = set()
    for _ in range(3):
        with pytest.raises(GlobalMemoryRaceError) as error:
            neighbours[64, 4](*arrays(256), True)
        told.add(str(error.value))
    assert len(told) == 1


def test_atomics():
    out, seen = np.zeros(1, np.int64), np.zeros(8, np.int64)
    counts[4, 2](out, seen[:0])
    assert out[0] == 8
    with pytest.raises(GlobalMemoryRaceError) as told:
        counts[4, 2](out, seen)
    assert told.value.line in (line_of(counts, "# read"), line_of(counts, "atomic"))


@pytest.mark.parametrize("dtype", [np.int8, np.bool_, np.float32, np.complex128])
def test_neighbouring_elements_are_no_race(dtype):
    for x in (np.zeros(64, dtype), np.zeros(128, dtype)[::2], np.zeros(64, dtype)[::-1]):
        own_elements[4, 16](x)
        assert x.all()


def test_parts_of_one_memory_are_one_array():
    memory = np.zeros(16, np.float32)
    with pytest.raises(GlobalMemoryRaceError):
        neighbours[1, 8](memory[:8], memory[8:0:-1], True)
    neighbours[1, 8](memory[:8], memory[8:], True)
    with pytest.raises(GlobalMemoryRaceError):
        neighbours[1, 16](memory, memory.view(np.int8)[:16], True)


def test_a_value_that_all_write_alike_is_no_race():
    out = np.zeros(1)
    flags[4, 8](out)
    assert out[0] == 7


def test_barriers_of_warps_order_their_own():
    within_warps[1, 64](*arrays(64))
    with pytest.raises(GlobalMemoryRaceError) as told:
        within_warps[1, 128](*arrays(128))
    assert told.value.line in (line_of(within_warps, "# read"), line_of(within_warps, "x[i] = i"))


@pytest.mark.parametrize(("shared", "error"), [(True, SharedMemoryRaceError), (False, GlobalMemoryRaceError)])
def test_barriers_of_groups_order_their_own(shared, error):
    for width in (2, 8, 32, 64):
        x, out = arrays(128, np.int64)
        within_groups[1, 192](x, out, width, width - 1, shared)
        np.testing.assert_array_equal(out, (np.arange(128) ^ (width - 1)) + (not shared))
        with pytest.raises(error):
            within_groups[1, 192](*arrays(128, np.int64), width, width, shared)


def test_nothing_is_remembered_from_launch_to_launch():
    x, out = arrays(8)
    for _ in range(2):
        neighbours[1, 8](x, out, True)
        neighbours[1, 8](out, x, True)
    neighbours[0, 8](x, out, False)
    neighbours[1, 1](x, out, False)


@coop.jit(debug=True)
def divides(x, by, out, how):
    if how == 0:
        out[0] = x[0] // by  # 0
    elif how == 1:
        out[0] = x[0] % by  # 1
    elif how == 2:
        out[0] = divmod(x[0], by)[0]  # 2
    elif how == 3:
        held = x[0]
        held //= by  # 3
        out[0] = held
    elif how == 5:
        out[0] = np.floor_divide(x[0], by)  # 5
    elif how == 6:
        x //= by  # 6
        out[0] = x[0]
    elif how == 7:
        out[:] = 7 // (x * by)  # 7
    else:
        out[0] = x[0] / by  # of floats, as numpy has it


@pytest.mark.parametrize("how", [0, 1, 2, 3, 5, 6, 7])
def test_integers_divided_by_zero(how):
    x, out = np.array([7]), np.zeros(1)
    with pytest.raises(KernelDivisionError, match="divides an integer by zero") as told:
        divides[1, 2](x, 0, out, how)
    assert isinstance(told.value, ZeroDivisionError)
    assert (told.value.filename, told.value.line) == (__file__, line_of(divides, f"# {how}"))
    divides[1, 1](x, 2, out, how)
    assert out[0] == {1: 1, 7: 0}.get(how, 3)


def test_floats_divided_by_zero_are_infinite():
    out = np.zeros(1)
    divides[1, 1](np.array([7]), 0, out, 4)
    assert out[0] == np.inf
    for how, expected in ((0, np.inf), (1, np.nan), (4, np.inf)):
        divides[1, 1](np.array([7.0]), 0.0, out, how)
        np.testing.assert_array_equal(out[0], expected)


@coop.jit(debug=True)
def leaves(x, count, first):
    i = coop.threadIdx.x
    if (i < count) == first:
        return
    coop.syncthreads()  # barrier
    x[i] = 1


@pytest.mark.parametrize("first", [False, True])
def test_a_barrier_that_threads_leave_before_is_told_of(first):
    x = np.zeros(8)
    with pytest.warns(RocpyWarning, match=r"5 of the 8 threads have returned .* before the barrier") as told:
        leaves[2 if first else 1, 8](x, 5 if first else 3, first)
    assert (told[0].filename, told[0].lineno) == (__file__, line_of(leaves, "# barrier"))
    assert len(told) == 1
    assert x.sum() == 3


def test_a_barrier_that_all_come_to_is_not_told_of():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        leaves[2, 8](np.zeros(8), 8, False)
        coop.jit(leaves)[1, 8](np.zeros(8), 3, False)
