# SPDX-License-Identifier: MIT
"""16-bit floats in kernels on the CPU: float16 of numpy, bfloat16 of ml_dtypes and torch; small integers are exact."""

import functools

import numpy as np
import pytest

from rocpy import cooperative as coop

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
