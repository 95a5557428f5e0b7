# SPDX-License-Identifier: MIT
"""Shapes: numpy.matmul's rules, empty extents, strides, and what `out=` may be."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import rocpy
from rocpy.testing import ORACLES, bounds, compare, evaluate
from rocpy.testing.runner import check_outputs

BATCHES = ((), (1,), (3,), (2, 3), (2, 1), (1, 3), (4, 1, 3), (0,), (2, 0))
MATRICES_A = ((4, 5), (1, 5), (0, 5), (4, 0), (5,), (0,))
MATRICES_B = ((5, 6), (5, 1), (5, 0), (0, 6), (5,), (0,))


def expect(a, b, c=None, *, outputs=None, exact=False, **options):
    """Compare a product with the oracle; returns what rocpy returned."""
    dtype = options.pop("dtype", a.dtype)
    if outputs is None:
        outputs = rocpy.matmul(a, b, c, **options) if c is not None else rocpy.matmul(a, b, **options)
    known = {key: value for key, value in options.items() if key not in ("out", "options", "stream")}
    for name, found in check_outputs(evaluate(a, b, c, **known), outputs, dtype, exact=exact).items():
        assert found.ok, f"{name}: {found.message}"
    return outputs


def test_promotion_and_broadcasting_follow_numpy(rng):
    combinations = itertools.product(BATCHES, BATCHES, MATRICES_A, MATRICES_B)
    for batch_a, batch_b, matrix_a, matrix_b in combinations:
        if (len(matrix_a) == 1 and batch_a) or (len(matrix_b) == 1 and batch_b):
            continue
        a = rng.standard_normal((*batch_a, *matrix_a), dtype=np.float32)
        b = rng.standard_normal((*batch_b, *matrix_b), dtype=np.float32)
        try:
            shape = np.matmul(a, b).shape
        except ValueError:
            with pytest.raises(rocpy.InvalidProblemError):
                rocpy.matmul(a, b)
            continue
        d = expect(a, b)
        assert d.shape == shape
        assert isinstance(d, np.ndarray)
        assert d.flags.c_contiguous


def test_a_vector_times_a_vector_is_zero_dimensional():
    a = np.arange(5, dtype=np.float32)
    d = rocpy.matmul(a, a)
    assert d.shape == ()
    assert d[()] == 30


@pytest.mark.parametrize("epilogue", ["default", "bias", "gelu_bias", "sigmoid", "gelu_aux_bias", "clamp"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_nothing_along_k_leaves_beta_c_and_bias(epilogue, dtype, rng):
    a, b = np.empty((3, 0), dtype=dtype), np.empty((0, 4), dtype=dtype)
    c = rng.standard_normal((3, 4)).astype(dtype)
    options = {"epilogue": epilogue}
    if ORACLES[epilogue].bias:
        options["bias"] = rng.standard_normal(4).astype(dtype)
    if epilogue == "clamp":
        options["clamp"] = (-0.25, 0.5)
    expect(a, b, **options)
    expect(a, b, c, beta=-0.5, **options)
    expect(a, b, c, beta=0.0, **options)


@pytest.mark.parametrize("factor", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.complex64])
def test_nothing_along_k_is_multiplied_by_nothing(factor, dtype, rng):
    a, b = np.empty((3, 0), dtype=dtype), np.empty((0, 4), dtype=dtype)
    c = rng.standard_normal((3, 4)).astype(dtype)
    np.testing.assert_array_equal(rocpy.matmul(a, b, c, alpha=factor, beta=2.0), 2 * c)
    np.testing.assert_array_equal(rocpy.matmul(a, b, alpha=factor), np.zeros_like(c))
    if dtype != np.complex64:
        bias = c[0].copy()
        biased = rocpy.matmul(a, b, alpha=factor, epilogue="bias", bias=bias)
        np.testing.assert_array_equal(biased, np.broadcast_to(bias, (3, 4)))
    np.testing.assert_array_equal(rocpy.matmul(a, rocpy.Weight(b), alpha=factor), np.zeros_like(c))


def test_nothing_along_k_gives_zero_sums(rng):
    a, b = np.empty((3, 0), dtype=np.float32), np.empty((0, 4), dtype=np.float32)
    for epilogue in ("bgrada", "bgradb"):
        expect(a, b, epilogue=epilogue)
    expect(a, b, epilogue="dgelu_bgrad", aux=rng.standard_normal((3, 4), dtype=np.float32))


@pytest.mark.parametrize("epilogue", ORACLES)
@pytest.mark.parametrize("extents", [(0, 4, 5), (3, 0, 5), (0, 0, 0)])
def test_empty_results(epilogue, extents):
    oracle = ORACLES[epilogue]
    m, n, k = extents
    options = {"epilogue": epilogue}
    if oracle.bias:
        options["bias"] = np.ones(n, dtype=np.float32)
    if oracle.aux_in:
        options["aux"] = np.ones((m, n), dtype=np.float32)
    if oracle.takes_clamp:
        options["clamp"] = (0.0, 1.0)
    expect(np.ones((m, k), dtype=np.float32), np.ones((k, n), dtype=np.float32), exact=True, **options)


def views(logical):
    """Arrays of the same values with other strides."""
    rows, columns = logical.shape
    wide = np.zeros((rows, 3 * columns), dtype=logical.dtype)
    wide[:, ::3] = logical
    tall = np.zeros((2 * rows, columns + 3), dtype=logical.dtype)
    tall[::2, :columns] = logical
    yield "contiguous", np.ascontiguousarray(logical)
    yield "transposed", np.asfortranarray(logical)
    yield "every third column", wide[:, ::3]
    yield "every second row", tall[::2, :columns]
    yield "reversed rows", np.ascontiguousarray(logical[::-1])[::-1]
    yield "reversed columns", np.ascontiguousarray(logical[:, ::-1])[:, ::-1]
    yield "both reversed", np.asfortranarray(logical[::-1, ::-1])[::-1, ::-1]


def test_strides_of_every_input(rng):
    a, b = rng.standard_normal((7, 5), dtype=np.float32), rng.standard_normal((5, 6), dtype=np.float32)
    c, aux = rng.standard_normal((2, 7, 6), dtype=np.float32)
    for (name_a, view_a), (name_b, view_b) in itertools.product(views(a), views(b)):
        found = rocpy.matmul(view_a, view_b)
        limits = evaluate(a, b)
        item = compare(found, limits.result, bounds(limits, np.float32)["result"])
        assert item.ok, f"{name_a}, {name_b}: {item.message}"
    for _, view_c in views(c):
        expect(a, b, view_c, alpha=0.5, beta=2.0)
        expect(a, b, view_c, beta=2.0, epilogue="gelu_aux")
    for _, view_aux in views(aux):
        expect(a, b, epilogue="dgelu_bgrad", aux=view_aux)
    bias = rng.standard_normal(6, dtype=np.float32)
    spread = np.zeros(12, dtype=np.float32)
    spread[::2] = bias
    for view_bias in (bias, spread[::2], np.ascontiguousarray(bias[::-1])[::-1], as_strided(bias, (6,), (0,))):
        expect(a, b, epilogue="gelu_bias", bias=view_bias)


def test_repeating_and_overlapping_inputs(rng):
    line = rng.standard_normal(20, dtype=np.float32)
    same_row = as_strided(line, (6, 5), (0, 4))
    same_column = as_strided(line, (6, 5), (4, 0))
    one_value = as_strided(line, (6, 5), (0, 0))
    sliding = as_strided(line, (6, 5), (4, 4))
    b = rng.standard_normal((5, 4), dtype=np.float32)
    for a in (same_row, same_column, one_value, sliding):
        expect(a, b)
        expect(b.T, a.T)
        expect(a, b, epilogue="bgrada")
    batched = as_strided(line, (3, 6, 5), (0, 4, 4))
    expect(batched, b)
    expect(batched, b, epilogue="relu_bias", bias=line[:4])


def test_strides_of_batch_axes(rng):
    store = rng.standard_normal((4, 5, 3, 6), dtype=np.float32)
    b = rng.standard_normal((6, 2), dtype=np.float32)
    for axes in itertools.permutations(range(4)):
        a = store.transpose(axes)
        other = rng.standard_normal((a.shape[-1], 3), dtype=np.float32)
        expect(a, other)
        expect(a, other, epilogue="gelu_aux")
    expect(store[::-1, ::2], b)
    expect(store[:, :, None], b[None])


@pytest.mark.parametrize("shape", [(2, 3, 4, 6), (3, 4, 6), (4, 6), (1, 6), (6,), (4, 1), (2, 1, 4, 6), (1, 1), ()])
def test_c_broadcasts(shape, rng):
    a, b = rng.standard_normal((2, 3, 4, 5), dtype=np.float32), rng.standard_normal((5, 6), dtype=np.float32)
    c = rng.standard_normal(shape, dtype=np.float32)
    expect(a, b, c, alpha=1.5, beta=0.5)
    assert np.array_equal(rocpy.matmul(a, b, c), rocpy.matmul(a, b, c, beta=1.0))


@pytest.mark.parametrize("shape", [(6,), (1, 6), (3, 6), (2, 3, 6), (2, 1, 6)])
def test_bias_per_batch_entry(shape, rng):
    a, b = rng.standard_normal((2, 3, 4, 5), dtype=np.float32), rng.standard_normal((5, 6), dtype=np.float32)
    expect(a, b, epilogue="gelu_bias", bias=rng.standard_normal(shape, dtype=np.float32))


def test_column_bias(rng):
    a, b = rng.standard_normal((2, 4, 5), dtype=np.float32), rng.standard_normal((5, 6), dtype=np.float32)
    column = rng.standard_normal((4, 1), dtype=np.float32)
    for epilogue in ("bias", "gelu_bias", "gelu_aux_bias"):
        expect(a, b, epilogue=epilogue, bias=column)
        expect(a[0], b, epilogue=epilogue, bias=column)


def test_vectors_with_epilogues(rng):
    a, b = rng.standard_normal((4, 5), dtype=np.float32), rng.standard_normal((5, 6), dtype=np.float32)
    for epilogue in ("relu", "gelu_aux", "silu"):
        for left, right in ((a[0], b), (a, b[:, 0]), (a[0], b[:, 0])):
            expect(left, right, epilogue=epilogue)
    expect(a[0], b, epilogue="gelu_bias", bias=b[0])
    expect(a, b[:, 0], epilogue="gelu_bias", bias=b[0, :1])


# ---- out= ----


def outs(shape, dtype=np.float32):
    """Writable arrays of a shape that a result may go to, each with the memory around it."""
    for name, order in (("row-major", "C"), ("column-major", "F")):
        store = np.full(shape, 7, dtype=dtype, order=order)
        yield name, store, store
    padded = np.full((shape[0] + 2, shape[1] + 3), 7, dtype=dtype)
    yield "padded rows", padded, padded[1:-1, 2 : 2 + shape[1]]
    padded = np.full((shape[1] + 2, shape[0] + 3), 7, dtype=dtype)
    yield "padded columns", padded, padded[1:-1, 2 : 2 + shape[0]].T
    spread = np.full((2 * shape[0], 2 * shape[1]), 7, dtype=dtype)
    yield "spread", spread, spread[::2, ::2]


@pytest.mark.parametrize("epilogue", ["default", "gelu_bias", "relu_aux", "dgelu_bgrad", "bgrada", "bgradb"])
def test_out_of_any_separate_layout(epilogue, rng):
    a, b = rng.standard_normal((7, 5), dtype=np.float32), rng.standard_normal((5, 6), dtype=np.float32)
    options = {"epilogue": epilogue}
    if ORACLES[epilogue].bias:
        options["bias"] = rng.standard_normal(6, dtype=np.float32)
    if ORACLES[epilogue].aux_in:
        options["aux"] = rng.standard_normal((7, 6), dtype=np.float32)
    for name, store, out in outs((7, 6)):
        outputs = rocpy.matmul(a, b, out=out, **options)
        assert (outputs[0] if isinstance(outputs, tuple) else outputs) is out, name
        expect(a, b, outputs=outputs, **options)
        if store is not out:
            # The same geometry over marks instead of values shows which elements `out` covers.
            marks = np.zeros(store.size, dtype=store.dtype)
            offset = (out.__array_interface__["data"][0] - store.__array_interface__["data"][0]) // store.itemsize
            as_strided(marks[offset:], out.shape, out.strides)[...] = 1
            assert (store.reshape(-1)[marks == 0] == 7).all(), f"{name}: memory beside out was written"


def test_out_decides_the_dtype(rng):
    a, b = (rng.standard_normal((5, 5)).astype(np.float16) for _ in range(2))
    out = np.empty((5, 5), dtype=np.float32)
    expect(a, b, out=out, dtype=np.dtype(np.float32), outputs=rocpy.matmul(a, b, out=out))


@pytest.mark.parametrize("shape", [(4, 5), (5, 4, 1), (20,), (1, 5, 4), (5,)])
def test_out_of_a_wrong_shape_is_refused(shape):
    a, b = np.ones((5, 3), dtype=np.float32), np.ones((3, 4), dtype=np.float32)
    out = np.full(shape, 7, dtype=np.float32)
    with pytest.raises(rocpy.InvalidProblemError, match=r"out: shape .*\(5, 4\)"):
        rocpy.matmul(a, b, out=out)
    assert (out == 7).all()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_out_of_a_wrong_dtype_is_refused(dtype):
    a = np.ones((5, 5), dtype=np.float32)
    out = np.full((5, 5), 7, dtype=dtype)
    with pytest.raises((rocpy.InvalidProblemError, rocpy.InvalidOperandError, rocpy.UnsupportedError), match="out"):
        rocpy.matmul(a, a, out=out)
    assert (out == 7).all()


def test_a_read_only_out_is_refused():
    a = np.ones((5, 5), dtype=np.float32)
    out = np.full((5, 5), 7, dtype=np.float32)
    out.flags.writeable = False
    with pytest.raises(rocpy.InvalidOperandError, match=r"out: .*read-only"):
        rocpy.matmul(a, a, out=out)


@pytest.mark.parametrize("strides", [(0, 4), (4, 0), (0, 0), (4, 4), (8, 4)])
def test_an_overlapping_out_is_refused(strides):
    a = np.ones((5, 5), dtype=np.float32)
    out = as_strided(np.full(100, 7, dtype=np.float32), (5, 5), strides)
    with pytest.raises(rocpy.InvalidOperandError, match="out"):
        rocpy.matmul(a, a, out=out)
    assert (out == 7).all()


def test_a_reversed_out_is_refused_or_right(rng):
    a = rng.standard_normal((5, 5), dtype=np.float32)
    for view in (np.s_[::-1], np.s_[:, ::-1]):
        store = np.full((5, 5), 7, dtype=np.float32)
        try:
            outputs = rocpy.matmul(a, a, out=store[view])
        except rocpy.InvalidOperandError:
            assert (store == 7).all()
        else:
            expect(a, a, outputs=outputs)


def test_out_that_is_an_operand_is_refused():
    a, b, bias = (np.ones(shape, dtype=np.float32) for shape in ((5, 5), (5, 5), (5,)))
    store = np.ones((9, 5), dtype=np.float32)
    cases = (
        ({"out": a}, "a"),
        ({"out": b}, "b"),
        ({"out": a.T}, "a"),
        ({"out": np.broadcast_to(bias, (5, 5)), "epilogue": "bias", "bias": bias}, None),
    )
    for options, name in cases:
        with pytest.raises(rocpy.InvalidOperandError, match=f"shares memory with {name}" if name else "out"):
            rocpy.matmul(a, b, **options)
    with pytest.raises(rocpy.InvalidOperandError, match="shares memory with a"):
        rocpy.matmul(store[:5], b, out=store[4:])
    with pytest.raises(rocpy.InvalidOperandError, match="shares memory with aux"):
        rocpy.matmul(a, b, epilogue="drelu", aux=store[:5], out=store[:5])
    for operand in (a, b, bias, store):
        assert (operand == 1).all()


def test_c_may_be_out(rng):
    a, b = rng.standard_normal((7, 5), dtype=np.float32), rng.standard_normal((5, 6), dtype=np.float32)
    for _, _, out in outs((7, 6)):
        c = rng.standard_normal((7, 6), dtype=np.float32)
        out[...] = c
        assert rocpy.matmul(a, b, out, alpha=2.0, beta=0.5, out=out) is out
        expect(a, b, c, alpha=2.0, beta=0.5, outputs=out)


def test_c_that_overlaps_out_without_being_it_is_refused():
    store = np.ones((12, 6), dtype=np.float32)
    a, b = np.ones((7, 5), dtype=np.float32), np.ones((5, 6), dtype=np.float32)
    with pytest.raises(rocpy.InvalidOperandError, match="overlaps c"):
        rocpy.matmul(a, b, store[:7], out=store[2:9])
    assert (store == 1).all()


def test_interleaved_memory_is_not_taken_for_shared(rng):
    store = rng.standard_normal((10, 6), dtype=np.float32)
    a, b = store[::2, :5].copy(), rng.standard_normal((5, 6), dtype=np.float32)
    out = store[1::2]
    expect(a, b, store[::2].copy(), outputs=rocpy.matmul(a, b, store[::2].copy(), out=out))


# ---- options ----


def test_copies_error_refuses_what_must_be_copied(rng):
    a, b = rng.standard_normal((8, 10), dtype=np.float32), rng.standard_normal((5, 6), dtype=np.float32)
    with rocpy.options(copies="error"):
        expect(a[:, :5], b)
        expect(a.T[:, :5], b)
        with pytest.raises(rocpy.UnsupportedError, match=r"a: .*strides"):
            rocpy.matmul(a[:, ::2], b)
        with pytest.raises(rocpy.UnsupportedError, match=r"b: .*strides"):
            rocpy.matmul(a[:, :5], b[::-1])
    expect(a[:, ::2], b)
    with pytest.raises(rocpy.UnsupportedError, match="a: "):
        rocpy.matmul(a[:, ::2], b, options={"copies": "error"})


def test_options_are_checked_where_they_are_written():
    with pytest.raises(rocpy.InvalidProblemError, match="copies"):
        rocpy.options(copies="never")
    with pytest.raises(rocpy.InvalidProblemError, match="no option 'copy'"):
        rocpy.options(copy="error")
    a = np.ones((2, 2), dtype=np.float32)
    with pytest.raises(rocpy.InvalidProblemError, match="options"):
        rocpy.matmul(a, a, options="error")
