# SPDX-License-Identifier: MIT
"""16-bit floats in kernels on the CPU: float16 of numpy, bfloat16 of ml_dtypes and torch; small integers are exact."""

import functools

import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.errors import KernelTypeError

NAMES = ("float16", "bfloat16")


def _dtype(name):
    return np.dtype(getattr(pytest.importorskip("ml_dtypes"), name)) if name == "bfloat16" else np.dtype(name)


@coop.jit
def convert(x, half, single, double):
    i = coop.grid(1)
    half[i] = x[i]
    single[i] = half[i]
    double[i] = half[i]


def _doubles(rng):
    spread = rng.standard_normal(400) * 10.0 ** rng.integers(-12, 8, 400)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 65519.99, 65520.0, 1e300, -1e-300, 2.0**-25, 2.0**-24 * 1.5]
    ties = [1 + 2.0**-11, 1 + 2.0**-11 + 2.0**-40, 1 + 3 * 2.0**-11 - 2.0**-45, 1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-40]
    return np.concatenate([spread, special, ties])


def _nearest(x, dtype):
    """Round doubles once: to the nearer of two neighbours, or the even one; through float32 numpy would round twice."""
    single = x.astype(np.float32)
    inexact = (single != x) & np.isfinite(single)
    toward_zero = np.where(np.abs(single.astype(np.float64)) > np.abs(x), np.nextafter(single, np.float32(0)), single)
    odd = (toward_zero.view(np.uint32) | 1).view(np.float32)
    return np.where(inexact, odd, single).astype(dtype)


@pytest.mark.parametrize("name", NAMES)
def test_conversions_round_once(name, rng):
    dtype, x = _dtype(name), _doubles(rng)
    half, single, double = np.zeros(len(x), dtype), np.zeros(len(x), np.float32), np.zeros(len(x))
    with np.errstate(over="ignore"):
        convert[1, len(x)](x, half, single, double)
        expected = x.astype(dtype) if name == "float16" else _nearest(x, dtype)
    np.testing.assert_array_equal(half.astype(np.float64), expected.astype(np.float64))
    np.testing.assert_array_equal(single, half.astype(np.float32))
    np.testing.assert_array_equal(double, half.astype(np.float64))


@pytest.mark.parametrize("name", NAMES)
def test_arithmetic_is_that_of_float32(name, rng):
    @coop.jit
    def kernel(x, y, out, order):
        i = coop.grid(1)
        out[i] = x[i] * y[i] - x[i] / (y[i] + 3)
        order[i] = x[i] < y[i]

    dtype = _dtype(name)
    x, y = (rng.standard_normal(200).astype(dtype) for _ in range(2))
    out, order = np.empty_like(x), np.empty(200, bool)
    kernel[2, 100](x, y, out, order)
    a, b = x.astype(np.float32), y.astype(np.float32)
    np.testing.assert_array_equal(
        out.astype(np.float32), (a * b - a / (b + np.float32(3))).astype(dtype).astype(np.float32)
    )
    np.testing.assert_array_equal(order, a < b)


@functools.cache
def _primitives(name):
    @coop.jit(threads=1)
    def kernel(x, one, sums, scans, orders):
        block, i = coop.this_block(), coop.threadIdx.x
        items = coop.ThreadData(2, name)
        coop.load(block, x, items, algorithm="transpose")
        one[i, 0] = coop.sum(block, items, all=True)
        one[i, 1] = coop.max(block, x[i], all=True)
        one[i, 2] = coop.shuffle(block, x[i], "rotate", 1)
        one[i, 3] = coop.broadcast(block, x[i], 2)
        coop.store(block, sums, coop.exchange(block, items, "blocked_to_striped"))
        coop.store(block, scans, coop.inclusive_sum(block, items))
        held = coop.shared.array(64, name)
        held[i] = x[i]
        coop.syncthreads()
        one[i, 4] = held[coop.blockDim.x - 1 - i]
        sorted_items = coop.merge_sort_keys(block, items)
        coop.store(block, orders[0], sorted_items)
        by_bits = coop.radix_sort_keys(block, items, descending=True)
        coop.store(block, orders[1], by_bits)
        best = coop.topk_min_keys(block, items, 4)
        coop.store(block, orders[2], best, valid_items=4)

    return kernel


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_primitives(name, rng):
    dtype, threads = _dtype(name), 48
    x = rng.integers(-3, 4, 2 * threads).astype(dtype)
    wide = x.astype(np.float64)
    one, sums, scans, orders = (np.zeros(s, dtype) for s in ((threads, 5), 96, 96, (3, 96)))
    _primitives(name)[1, threads](x, one, sums, scans, orders)
    own = wide[:threads]
    expected = np.stack([np.full(threads, wide.sum()), np.full(threads, own.max()), np.roll(own, -1)], 1)
    np.testing.assert_array_equal(one[:, :3].astype(np.float64), expected)
    np.testing.assert_array_equal(one[:, 3].astype(np.float64), own[2])
    np.testing.assert_array_equal(one[:, 4].astype(np.float64), own[::-1])
    np.testing.assert_array_equal(sums.astype(np.float64), wide.reshape(2, threads).T.ravel())
    np.testing.assert_array_equal(scans.astype(np.float64), np.cumsum(wide))
    np.testing.assert_array_equal(orders[0].astype(np.float64), np.sort(wide))
    np.testing.assert_array_equal(orders[1].astype(np.float64), np.sort(wide)[::-1])
    np.testing.assert_array_equal(orders[2, :4].astype(np.float64), np.sort(wide)[:4])


@functools.cache
def _functions(name, debug):
    @coop.jit(debug=debug)
    def kernel(x, out):
        block, warp, i = coop.this_block(), coop.this_warp(4), coop.threadIdx.x
        items = coop.ThreadData(1, name)
        items[0] = x[i]

        def greater(a, b):
            return max(a, b)

        out[0, i] = coop.reduce(block, x[i], lambda a, b: a * b, all=True)
        out[1, i] = coop.inclusive_scan(block, items, greater)[0]
        out[2, i] = coop.merge_sort_keys(block, x[i], lambda a, b: a > b)
        out[3, i] = coop.merge_sort_pairs(warp, items, items, lambda a, b: a > b)[1][0]
        out[4, i] = coop.discontinuity(block, x[i], "heads", lambda a, b: a < b)
        out[5, i] = coop.adjacent_difference(block, x[i], "left", lambda a, b: a * b)
        out[6, i] = coop.reduce(warp, items, np.fmax, all=True)
        out[7, i] = coop.inclusive_scan(block, x[i], np.hypot)
        out[8, i] = coop.merge_sort_keys(block, x[i], np.less)

    return kernel


@pytest.mark.parametrize("name", NAMES)
def test_operators(name):
    @coop.jit
    def kernel(x, out):
        warp, i = coop.this_warp(2), coop.threadIdx.x
        out[0, i] = coop.reduce(warp, x[i], lambda a, b: a * b, all=True)
        out[1, i] = coop.reduce(warp, x[i], np.hypot, all=True)
        out[2, i] = coop.discontinuity(warp, x[i], "heads", np.less)

    out = np.zeros((3, 2), _dtype(name))
    kernel[1, 2](np.array([3, 4]).astype(out.dtype), out)
    assert out.astype(int).tolist() == [[12, 12], [5, 5], [1, 1]]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "debug"), [("float16", False), ("float16", True), ("bfloat16", False)])
def test_functions_of_python_and_numpy_as_operators(name, debug):
    x = np.array([3, 4, 0, 0]).astype(_dtype(name))
    out = np.zeros((9, 4), x.dtype)
    _functions(name, debug)[1, 4](x, out)
    assert out.astype(int).tolist() == [
        [0, 0, 0, 0],
        [3, 4, 4, 4],
        [4, 3, 0, 0],
        [4, 3, 0, 0],
        [1, 1, 0, 0],
        [3, 12, 0, 0],
        [4, 4, 4, 4],
        [3, 5, 5, 5],
        [0, 0, 3, 4],
    ]


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_numbers(name):
    @coop.jit
    def kernel(x, out, integers):
        out[0], out[1], out[2] = min(x[0], x[1]), max(x[0], x[1]), float(x[0])
        integers[0], integers[1], integers[2] = int(x[0]), bool(x[0]), bool(x[2])
        if x[0] and not x[2]:
            integers[3] = 1
        most = 1.0
        if x[0] > most:
            most = x[0]
        out[3] = most

    x = np.array([2.5, -1.5, 0]).astype(_dtype(name))
    out, integers = np.zeros(4), np.zeros(4, int)
    kernel[1, 1](x, out, integers)
    assert out.tolist() == [-1.5, 2.5, 2.5, 2.5]
    assert integers.tolist() == [2, 1, 0, 1]


@pytest.mark.parametrize("name", NAMES)
def test_numpys_functions_ask_for_another_type(name):
    @coop.jit
    def kernel(x):
        x[0] = np.sqrt(x[0])

    with pytest.raises(KernelTypeError, match=rf"numpy's functions take no {name}.*np\.float32\(x\)"):
        kernel[1, 1](np.zeros(1, _dtype(name)))


@pytest.mark.torch
def test_tensors(torch):
    @coop.jit
    def kernel(x, out):
        i = coop.grid(1)
        out[i] = x[i] + x[i]

    for dtype in (torch.float16, torch.bfloat16):
        x = torch.randn(50, dtype=dtype)
        out = torch.empty_like(x)
        kernel[1, 50](x, out)
        assert torch.equal(out, x + x)
