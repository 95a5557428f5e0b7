# SPDX-License-Identifier: MIT
"""Indices of atomic operations: they mean what they mean in ordinary indexing, in release and in debug mode."""

import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.errors import KernelIndexError, KernelTypeError

CHANGES = {
    "add": (lambda a, i: coop.atomic.add(a, i, 3), 8),
    "sub": (lambda a, i: coop.atomic.sub(a, i, 3), 2),
    "max": (lambda a, i: coop.atomic.max(a, i, 9), 9),
    "min": (lambda a, i: coop.atomic.min(a, i, 3), 3),
    "and_": (lambda a, i: coop.atomic.and_(a, i, 6), 4),
    "or_": (lambda a, i: coop.atomic.or_(a, i, 2), 7),
    "xor": (lambda a, i: coop.atomic.xor(a, i, 1), 4),
    "exch": (lambda a, i: coop.atomic.exch(a, i, 1), 1),
    "cas": (lambda a, i: coop.atomic.cas(a, i, 5, 8), 8),
}


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_a_negative_index_counts_from_the_end(name, debug):
    change, expected = CHANGES[name]

    @coop.jit(debug=debug)
    def kernel(line, plane, at, row, column):
        change(line, at)
        change(line, -1)
        change(plane, (row, column))

    around = np.full(12, 5)
    line, plane = around[4:8], np.full((4, 6), 5)[1:3, 1:5:2]
    kernel[1, 1](line, plane, -3, -1, -2)
    assert around.tolist() == [5, 5, 5, 5, 5, expected, 5, expected, 5, 5, 5, 5]
    assert plane.base.sum() == 5 * 23 + expected
    assert plane[1, 0] == expected


@pytest.mark.parametrize("debug", [False, True])
def test_a_negative_index_of_shared_and_local_arrays(debug):
    @coop.jit(debug=debug)
    def parts(out):
        held, own = coop.shared.array(4, np.int64), coop.local.array(3, np.int64)
        i = coop.threadIdx.x
        held[2 * i] = held[2 * i + 1] = own[0] = own[1] = own[2] = 0
        coop.syncthreads()
        coop.atomic.add(held, -2, 1)
        coop.atomic.add(own, i - 3, 7)
        coop.syncthreads()
        for j in range(4):
            out[i, j] = held[j]
        for j in range(3):
            out[i, 4 + j] = own[j]

    out = np.zeros((2, 7), int)
    parts[1, 2](out)
    assert out.tolist() == [[0, 0, 2, 0, 7, 0, 0], [0, 0, 2, 0, 0, 7, 0]]


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8", "uint32", "uint64"])
def test_an_index_of_any_integer_type(dtype, debug):
    @coop.jit(debug=debug)
    def kernel(a, at):
        coop.atomic.add(a, at[0], 1)
        a[at[0]] += 1

    at = np.array([-1 if dtype[0] == "i" else 3]).astype(dtype)
    a = np.zeros(200, int)
    kernel[1, 1](a, at)
    assert np.flatnonzero(a).tolist() == [199 if dtype[0] == "i" else 3]
    assert a.sum() == 2


def test_a_boolean_is_an_index():
    @coop.jit
    def kernel(a, x):
        coop.atomic.add(a, x[coop.threadIdx.x] > 1, 1)

    a = np.zeros(2, int)
    kernel[1, 5](a, np.arange(5))
    assert a.tolist() == [2, 3]


@pytest.mark.parametrize("at", [-5, 4, (-3, 0), (0, 3), (2, 0), (0, -4)])
def test_debug_mode_refuses_what_indexing_refuses(at):
    @coop.jit(debug=True)
    def changes(a, at):
        coop.atomic.add(a, at, 1)

    @coop.jit(debug=True)
    def reads(a, at):
        a[at] = 1

    a = np.zeros((2, 3) if isinstance(at, tuple) else 4, int)
    for kernel in (changes, reads):
        with pytest.raises(KernelIndexError, match="out of bounds"):
            kernel[1, 1](a, at)
    assert not a.any()


def test_indices_that_are_no_integers_are_refused():
    @coop.jit
    def kernel(a, at):
        coop.atomic.add(a, at, 1)

    for at, shown in ((1.0, "float64"), ((0, 1.5), r"Tuple\(int64, float64\)")):
        with pytest.raises(
            KernelTypeError, match=rf"atomic.add: the index is {shown}; it must be an integer, or a tup"
        ):
            kernel[1, 1](np.zeros((2, 2) if isinstance(at, tuple) else 2, int), at)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_16_bit_floats(name, debug):
    @coop.jit(debug=debug)
    def kernel(x, out, before):
        i = coop.threadIdx.x
        coop.atomic.add(out, 0, x[i])
        coop.atomic.sub(out, 1, x[i])
        coop.atomic.max(out, 2, x[i])
        coop.atomic.min(out, 3, x[i])
        coop.atomic.max(out, 4, x[i])
        before[i] = coop.atomic.exch(out, 5, x[i])

    dtype = np.dtype(getattr(pytest.importorskip("ml_dtypes"), name)) if name == "bfloat16" else np.dtype(name)
    x = np.arange(16).astype(dtype)
    out, before = np.array([0, 0, 3, 3, np.nan, -1]).astype(dtype), np.zeros_like(x)
    kernel[1, 16](x, out, before)
    assert out[:5].astype(int).tolist() == [120, -120, 15, 0, 15]
    assert sorted([*before, out[5]]) == [-1, *range(16)]


def test_bits_of_bfloat16_are_not_changed():
    @coop.jit
    def kernel(x):
        coop.atomic.or_(x, 0, 1)

    with pytest.raises(KernelTypeError, match="bits are changed in integers only"):
        kernel[1, 1](np.zeros(1, pytest.importorskip("ml_dtypes").bfloat16))
