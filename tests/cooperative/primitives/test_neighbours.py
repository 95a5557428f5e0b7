# SPDX-License-Identifier: MIT
"""Discontinuities, differences, runs, histograms and reductions by slot over types, groups and sizes, against numpy."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocpy import cooperative as coop
from rocpy.errors import KernelIndexError, UninitializedResultError
from rocpy.testing import primitives

NUMBERS = (*primitives.INTEGERS, *primitives.FLOATS, *primitives.COMPLEX)


def groups_of(threads, width):
    step = width or threads
    return [slice(begin, min(begin + step, threads)) for begin in range(0, threads, step)]


def few(rng, dtype, shape):
    return rng.integers(0, 3, shape).astype(dtype)


@functools.cache
def flagger(dtype, items, warp_size):
    @coop.jit(threads=1, warp_size=warp_size)
    def kernel(x, width, beside, heads, tails, first):
        i = coop.threadIdx.x
        own = coop.ThreadData(items, dtype)
        for k in range(items):
            own[k] = x[i, k]
        if width:
            group = coop.this_warp(width)
            a, b = coop.discontinuity(group, own, "heads_and_tails")
            c = coop.discontinuity(group, own, tile_predecessor=beside[0])
        else:
            block = coop.this_block()
            a, b = coop.discontinuity(block, own, "heads_and_tails")
            c = coop.discontinuity(block, own, tile_predecessor=beside[0])
        for k in range(items):
            heads[i, k], tails[i, k], first[i, k] = a[k], b[k], c[k]

    return kernel


def check_discontinuity(dtype, items, threads, width, warp_size, rng):
    x = few(rng, dtype, (threads, items))
    beside = few(rng, dtype, 1)
    heads, tails, first = (np.zeros(x.shape, np.int32) for _ in range(3))
    flagger(np.dtype(dtype), items, warp_size)[1, threads](x, width, beside, heads, tails, first)
    for group in groups_of(threads, width):
        expected = primitives.discontinuity_oracle(x[group])
        np.testing.assert_array_equal(heads[group], expected[0])
        np.testing.assert_array_equal(tails[group], expected[1])
        np.testing.assert_array_equal(first[group], primitives.discontinuity_oracle(x[group], beside[0])[0])


@functools.cache
def differ(dtype, items, warp_size):
    @coop.jit(threads=1, warp_size=warp_size)
    def kernel(x, width, valid, beside, left, right):
        i = coop.threadIdx.x
        own = coop.ThreadData(items, dtype)
        for k in range(items):
            own[k] = x[i, k]
        if width:
            group = coop.this_warp(width)
            a = coop.adjacent_difference(group, own, valid_items=valid)
            b = coop.adjacent_difference(group, own, "right", tile_successor=beside[0])
        else:
            block = coop.this_block()
            a = coop.adjacent_difference(block, own, valid_items=valid)
            b = coop.adjacent_difference(block, own, "right", tile_successor=beside[0])
        for k in range(items):
            left[i, k], right[i, k] = a[k], b[k]

    return kernel


def check_difference(dtype, items, threads, width, warp_size, valid, rng):
    x, beside = few(rng, dtype, (threads, items)), few(rng, dtype, 1)
    left, right = np.zeros_like(x), np.zeros_like(x)
    differ(np.dtype(dtype), items, warp_size)[1, threads](x, width, valid, beside, left, right)
    for group in groups_of(threads, width):
        np.testing.assert_array_equal(left[group], primitives.difference_oracle(x[group], "left", valid=valid))
        np.testing.assert_array_equal(right[group], primitives.difference_oracle(x[group], "right", beside[0]))


@functools.cache
def decoder(dtype, items, warp_size):
    @coop.jit(threads=1, warp_size=warp_size)
    def kernel(x, lengths, width, window, out, places, totals, whole):
        i = coop.threadIdx.x
        own, runs = coop.ThreadData(items, dtype), coop.ThreadData(items, np.uint16)
        for k in range(items):
            own[k], runs[k] = x[i, k], lengths[i, k]
        if width:
            a, b, total = coop.run_length_decode(coop.this_warp(width), own, runs, 2, window=window, relative=True)
        else:
            a, b, total = coop.run_length_decode(coop.this_block(), own, runs, 2, window=window, relative=True)
            coop.run_length_decode_into(coop.this_block(), whole, own, runs, offset=1)
        totals[i] = total
        for k in range(2):
            out[i, k], places[i, k] = a[k], b[k]

    return kernel


def check_decode(dtype, items, threads, width, warp_size, window, rng):
    x, lengths = few(rng, dtype, (threads, items)), rng.integers(0, 4, (threads, items)).astype(np.uint16)
    out, places, totals = np.zeros((threads, 2), dtype), np.zeros((threads, 2), np.int32), np.zeros(threads, np.int64)
    whole = np.zeros(1 + lengths.sum(), dtype)
    decoder(np.dtype(dtype), items, warp_size)[1, threads](x, lengths, width, window, out, places, totals, whole)
    for group in groups_of(threads, width):
        decoded, own = primitives.decode_oracle(x[group], lengths[group])
        assert (totals[group] == len(decoded)).all()
        kept = min(max(len(decoded) - window, 0), 2 * (group.stop - group.start))
        np.testing.assert_array_equal(out[group].ravel()[:kept], decoded[window : window + kept])
        np.testing.assert_array_equal(places[group].ravel()[:kept], own[window : window + kept])
    if not width:
        np.testing.assert_array_equal(whole[1:], primitives.decode_oracle(x, lengths)[0])


@functools.cache
def counter(dtype, items, warp_size):
    @coop.jit(threads=1, warp_size=warp_size)
    def kernel(x, width, out):
        i = coop.threadIdx.x
        own = coop.ThreadData(items, dtype)
        for k in range(items):
            own[k] = x[i, k]
        if width:
            a = coop.histogram(coop.this_warp(width), own, bins=11, bins_per_thread=11)
        else:
            a = coop.histogram(coop.this_block(), own, bins=11, bins_per_thread=11)
        for k in range(11):
            out[i, k] = a[k]

    return kernel


def check_histogram(dtype, items, threads, width, warp_size, rng):
    x, out = rng.integers(0, 11, (threads, items)).astype(dtype), np.zeros((threads, 11), np.int32)
    counter(np.dtype(dtype), items, warp_size)[1, threads](x, width, out)
    for group in groups_of(threads, width):
        expected = primitives.histogram_oracle(x[group], 11, group.stop - group.start, 11)
        np.testing.assert_array_equal(out[group], expected)


@functools.cache
def batcher(dtype, op, items, warp_size):
    @coop.jit(threads=1, warp_size=warp_size)
    def kernel(x, width, striped, whole):
        i = coop.threadIdx.x
        own = coop.ThreadData(items, dtype)
        for k in range(items):
            own[k] = x[i, k]
        if width:
            a = coop.reduce_batched(coop.this_warp(width), own, op)
            b = coop.reduce_batched(coop.this_warp(width), own, op, all=True)
        else:
            a = coop.reduce_batched(coop.this_block(), own, op)
            b = coop.reduce_batched(coop.this_block(), own, op, all=True)
        for k in range(items):
            striped[i, k], whole[i, k] = a[k], b[k]

    return kernel


def check_batched(dtype, op, items, threads, width, warp_size, rng):
    x = few(rng, dtype, (threads, items))
    striped, whole = np.zeros_like(x), np.zeros_like(x)
    batcher(np.dtype(dtype), op, items, warp_size)[1, threads](x, width, striped, whole)
    for group in groups_of(threads, width):
        size = group.stop - group.start
        expected = primitives.batched_oracle(x[group], op)
        np.testing.assert_array_equal(whole[group], np.broadcast_to(expected, (size, items)))
        np.testing.assert_array_equal(striped[group].T.ravel()[:items], expected)


def test_discontinuity(rng):
    for threads, width in ((1, 0), (64, 0), (50, 16)):
        check_discontinuity("float32", 3, threads, width, 64, rng)


def test_adjacent_difference(rng):
    for threads, width, valid in ((1, 0, 9), (64, 0, 999), (50, 0, 44), (50, 16, 20), (5, 0, 0)):
        check_difference("int32", 3, threads, width, 64, valid, rng)


def test_run_length_decode(rng):
    for threads, width, window in ((1, 0, 0), (64, 0, 3), (50, 16, 0), (50, 0, 999)):
        check_decode("float64", 3, threads, width, 64, window, rng)


def test_histogram(rng):
    for threads, width in ((1, 0), (64, 0), (50, 16)):
        check_histogram("uint8", 3, threads, width, 64, rng)


def test_reduce_batched(rng):
    for threads, width in ((1, 0), (2, 0), (64, 0), (50, 16)):
        check_batched("int32", "+", 5, threads, width, 64, rng)


THREADS, WIDTHS = st.integers(1, 200), st.sampled_from([0, 1, 8, 32])
SEEDS = st.integers(0, 99)


@pytest.mark.slow
@pytest.mark.parametrize("warp_size", [32, 64])
@pytest.mark.parametrize("items", [1, 4])
@pytest.mark.parametrize("dtype", NUMBERS)
class TestEveryType:
    """Each type; hypothesis draws the rest."""

    def test_discontinuity(self, dtype, items, warp_size):
        @settings(deadline=None, max_examples=15)
        @given(THREADS, WIDTHS, SEEDS)
        def check(threads, width, seed):
            check_discontinuity(dtype, items, threads, width, warp_size, np.random.default_rng(seed))

        check()

    def test_adjacent_difference(self, dtype, items, warp_size):
        @settings(deadline=None, max_examples=15)
        @given(THREADS, WIDTHS, st.integers(0, 300), SEEDS)
        def check(threads, width, valid, seed):
            check_difference(dtype, items, threads, width, warp_size, valid, np.random.default_rng(seed))

        check()

    def test_run_length_decode(self, dtype, items, warp_size):
        @settings(deadline=None, max_examples=15)
        @given(THREADS, WIDTHS, st.integers(0, 300), SEEDS)
        def check(threads, width, window, seed):
            check_decode(dtype, items, threads, width, warp_size, window, np.random.default_rng(seed))

        check()

    def test_reduce_batched(self, dtype, items, warp_size):
        @settings(deadline=None, max_examples=15)
        @given(THREADS, WIDTHS, SEEDS)
        def check(threads, width, seed):
            for op in primitives.operators_of(dtype)[warp_size == 32 :: 2]:
                check_batched(dtype, op, items, threads, width, warp_size, np.random.default_rng(seed))

        check()


@pytest.mark.slow
@pytest.mark.parametrize("warp_size", [32, 64])
@pytest.mark.parametrize("dtype", primitives.INTEGERS)
def test_histogram_of_every_type(dtype, warp_size):
    @settings(deadline=None, max_examples=15)
    @given(THREADS, WIDTHS, SEEDS)
    def check(threads, width, seed):
        check_histogram(dtype, 2, threads, width, warp_size, np.random.default_rng(seed))

    check()


def test_what_is_no_bin_and_too_few_counters_are_refused():
    @coop.jit(threads=1)
    def kernel(x, out):
        counts = coop.histogram(coop.this_block(), x[coop.threadIdx.x], bins=4, bins_per_thread=1)
        out[coop.threadIdx.x] = counts[0]

    out = np.zeros(4, np.int32)
    with pytest.raises(KernelIndexError, match="an item is not a valid bin"):
        kernel[1, 4](np.array([0, 1, 4, 2]), out)
    with pytest.raises(KernelIndexError, match="raise bins_per_thread"):
        kernel[1, 3](np.zeros(3, np.int64), out)


def test_undefined_items_are_poisoned_in_debug_mode():
    @coop.jit(debug=True, threads=1)
    def kernel(x, lengths, out):
        i = coop.threadIdx.x
        items, _ = coop.run_length_decode(coop.this_block(), x[i], lengths[i], 1)
        out[i] = items[0]

    out = np.zeros(4)
    kernel[1, 4](np.arange(4.0), np.array([2, 0, 1, 1]), out)
    assert out.tolist() == [0, 0, 2, 3]
    with pytest.raises(UninitializedResultError, match="leaves undefined in this thread"):
        kernel[1, 4](np.arange(4.0), np.array([2, 0, 0, 1]), out)
