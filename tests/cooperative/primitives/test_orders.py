# SPDX-License-Identifier: MIT
"""Sorts, ranks and top-k over types, groups and sizes, against numpy."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocpy import cooperative as coop
from rocpy.errors import KernelIndexError
from rocpy.testing import primitives

REAL = ("bool", *primitives.INTEGERS, *primitives.FLOATS)


def keys_of(rng, dtype, shape):
    """Keys with many equal ones and, of floats, with NaN, infinities and both zeros."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        x = np.round(rng.standard_normal(shape) * 3).astype(dtype)
        special = rng.random(shape)
        x[special < 0.05] = np.nan
        x[special > 0.97] = -np.inf
        x[(special > 0.5) & (special < 0.55)] = -0.0
        return x
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    edge = np.iinfo(dtype)
    x = rng.integers(max(edge.min, -20), 20, shape, dtype=dtype)
    x[rng.random(shape) < 0.05] = edge.max
    x[rng.random(shape) < 0.05] = edge.min
    return x


def groups_of(threads, width):
    step = width or threads
    return [slice(begin, min(begin + step, threads)) for begin in range(0, threads, step)]


@functools.cache
def pair_sorter(function, option, dtype, items, warp_size):
    """Kernel of a primitive of pairs with one option: the operator, `descending`, or none."""

    @coop.jit(threads=1, warp_size=warp_size)
    def kernel(keys, width, first, second, out_keys, out_values):
        i = coop.threadIdx.x
        own, number = coop.ThreadData(items, dtype), coop.ThreadData(items, np.int32)
        for k in range(items):
            own[k], number[k] = keys[i, k], i * items + k
        if width:
            call(coop.this_warp(width), own, number, first, second, out_keys[i], out_values[i])
        else:
            call(coop.this_block(), own, number, first, second, out_keys[i], out_values[i])

    if function is coop.merge_sort_pairs:

        def call(group, own, number, first, second, out_keys, out_values):
            a, b = coop.merge_sort_pairs(group, own, number, option, valid_items=first)
            copy(a, b, out_keys, out_values)
    elif function is coop.radix_sort_pairs:

        def call(group, own, number, first, second, out_keys, out_values):
            a, b = coop.radix_sort_pairs(group, own, number, descending=option, begin_bit=first, end_bit=second)
            copy(a, b, out_keys, out_values)
    elif option == "max":

        def call(group, own, number, first, second, out_keys, out_values):
            a, b = coop.topk_max_pairs(group, own, number, first, valid_items=second)
            copy(a, b, out_keys, out_values)
    else:

        def call(group, own, number, first, second, out_keys, out_values):
            a, b = coop.topk_min_pairs(group, own, number, first, valid_items=second)
            copy(a, b, out_keys, out_values)

    def copy(a, b, out_keys, out_values):
        for k in range(items):
            out_keys[k], out_values[k] = a[k], b[k]

    return kernel


def check_pairs(function, option, dtype, items, threads, width, warp_size, options, expected_order, rng):
    keys = keys_of(rng, dtype, (threads, items))
    out_keys, out_values = np.zeros_like(keys), np.zeros(keys.shape, np.int32)
    pair_sorter(function, option, np.dtype(dtype), items, warp_size)[1, threads](
        keys, width, *options, out_keys, out_values
    )
    for group in groups_of(threads, width):
        order = expected_order(keys[group])
        numbers = np.arange(group.start * items, group.stop * items)[order]
        found = out_values[group].ravel()[: len(order)]
        np.testing.assert_array_equal(found, numbers)
        np.testing.assert_array_equal(out_keys[group].ravel()[: len(order)], keys[group].ravel()[order])


def check_merge_sort(dtype, op, items, threads, width, warp_size, valid, rng):
    def expected(keys):
        return primitives.merge_sort_oracle(keys, descending=op == ">", valid=valid)

    check_pairs(coop.merge_sort_pairs, op, dtype, items, threads, width, warp_size, (valid, 0), expected, rng)


def check_radix_sort(dtype, descending, items, threads, width, warp_size, bits, rng):
    def expected(keys):
        return primitives.radix_sort_oracle(keys, descending=descending, begin=bits[0], end=bits[1])

    check_pairs(coop.radix_sort_pairs, descending, dtype, items, threads, width, warp_size, bits, expected, rng)


def check_topk(dtype, side, items, threads, width, warp_size, k, valid, rng):
    def expected(keys):
        return primitives.topk_oracle(keys, k, greatest=side == "max", valid=valid)

    check_pairs(
        {"max": coop.topk_max_pairs, "min": coop.topk_min_pairs}[side],
        side, dtype, items, threads, width, warp_size, (k, valid), expected, rng,
    )  # fmt: skip


def test_merge_sort(rng):
    for threads, width, valid in ((1, 0, 9), (64, 0, 10**6), (50, 0, 77), (100, 16, 10**6), (100, 32, 50), (40, 8, -1)):
        check_merge_sort("float32", "<", 3, threads, width, 64, valid, rng)


def test_radix_sort(rng):
    for threads, width, bits in ((64, 0, (0, 32)), (33, 0, (4, 13)), (100, 16, (31, 32)), (7, 0, (5, 5))):
        check_radix_sort("float32", True, 3, threads, width, 64, bits, rng)


@pytest.mark.slow
def test_topk(rng):
    for threads, width, k, valid in (
        (64, 0, 5, 10**6),
        (64, 0, 100, 10**6),
        (50, 16, 7, 20),
        (9, 0, 99, 5),
        (9, 0, 0, 9),
    ):
        check_topk("float32", "max", 3, threads, width, 64, k, valid, rng)


@pytest.mark.slow
@pytest.mark.parametrize("warp_size", [32, 64])
@pytest.mark.parametrize("items", [1, 4])
@pytest.mark.parametrize("dtype", REAL)
class TestEveryType:
    """Each type; hypothesis draws the rest."""

    @pytest.mark.parametrize("op", ["<", ">"])
    def test_merge_sort(self, dtype, items, warp_size, op):
        @settings(deadline=None, max_examples=15)
        @given(st.integers(1, 200), st.sampled_from([0, 1, 8, 32]), st.integers(-1, 500), st.integers(0, 99))
        def check(threads, width, valid, seed):
            check_merge_sort(dtype, op, items, threads, width, warp_size, valid, np.random.default_rng(seed))

        check()

    @pytest.mark.parametrize("descending", [False, True])
    def test_radix_sort(self, dtype, items, warp_size, descending):
        most = 1 if dtype == "bool" else 8 * np.dtype(dtype).itemsize

        @settings(deadline=None, max_examples=15)
        @given(st.integers(1, 200), st.sampled_from([0, 1, 8, 32]), st.data(), st.integers(0, 99))
        def check(threads, width, data, seed):
            begin = data.draw(st.integers(0, most))
            bits = begin, data.draw(st.integers(begin, most))
            check_radix_sort(dtype, descending, items, threads, width, warp_size, bits, np.random.default_rng(seed))

        check()

    @pytest.mark.parametrize("side", ["max", "min"])
    def test_topk(self, dtype, items, warp_size, side):
        @settings(deadline=None, max_examples=15)
        @given(
            st.integers(1, 200),
            st.sampled_from([0, 1, 8, 32]),
            st.integers(0, 120),
            st.integers(-1, 500),
            st.integers(0, 99),
        )
        def check(threads, width, k, valid, seed):
            check_topk(dtype, side, items, threads, width, warp_size, k, valid, np.random.default_rng(seed))

        check()


@pytest.mark.slow
def test_keys_alone_ranks_and_stripes(rng):
    @coop.jit(threads=1)
    def kernel(x, merged, radix, ranks, single):
        i = coop.threadIdx.x
        own = coop.ThreadData(2, np.int16)
        for k in range(2):
            own[k] = x[i, k]
        a = coop.merge_sort_keys(coop.this_block(), own, ">")
        b = coop.radix_sort_keys(coop.this_block(), own, blocked_to_striped=True)
        c = coop.radix_rank(coop.this_block(), own, begin_bit=2)
        for k in range(2):
            merged[i, k], radix[i, k], ranks[i, k] = a[k], b[k], c[k]
        single[i] = coop.topk_min_keys(coop.this_block(), x[i, 0], coop.blockDim.x)

    x = rng.integers(-9, 9, (70, 2)).astype(np.int16)
    merged, radix, ranks, single = (
        np.zeros_like(x),
        np.zeros_like(x),
        np.zeros((70, 2), np.int32),
        np.zeros(70, np.int16),
    )
    kernel[1, 70](x, merged, radix, ranks, single)
    np.testing.assert_array_equal(merged.ravel(), np.sort(x.ravel())[::-1])
    np.testing.assert_array_equal(radix.T.ravel(), np.sort(x.ravel()))
    order = primitives.radix_sort_oracle(x, begin=2, end=16)
    np.testing.assert_array_equal(ranks.ravel()[order], np.arange(140))
    np.testing.assert_array_equal(single, np.sort(x[:, 0]))


def test_bits_beyond_the_key_are_refused():
    @coop.jit(threads=1)
    def kernel(x, end):
        i = coop.threadIdx.x
        x[i] = coop.radix_sort_keys(coop.this_block(), x[i], end_bit=end)

    kernel[1, 4](np.arange(4, dtype=np.int8), 8)
    with pytest.raises(KernelIndexError, match="bits are from begin_bit up to end_bit, at most 8"):
        kernel[1, 4](np.arange(4, dtype=np.int8), 9)
