# SPDX-License-Identifier: MIT
"""Edges: alpha of 0, sums that wrap, empty results, the largest magnitude, copies that are forbidden, matrices that lie
anywhere in memory."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import numpy as np
import pytest
from presented import skip_without

import rocpy
from rocpy import dtypes
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.blaslt.model.product_types import FAMILIES
from rocpy.errors import UnsupportedError

EXTENTS = [(m, n, k, batch) for m, n, k, batch in itertools.product((0, 4), (0, 4), (0, 32), ((), (0,), (2,)))]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.complex64])
@pytest.mark.parametrize("packed", [False, True], ids=["array", "weight"])
def test_alpha_of_0_does_not_read_the_operands(dtype, packed):
    skip_without(dtype)
    a = np.array([[np.nan, np.inf], [1, -1]], dtype)
    b = np.eye(2, dtype=dtype)
    right = rocpy.Weight(b) if packed else b
    np.testing.assert_array_equal(rocpy.matmul(a, right, alpha=0.0), np.zeros((2, 2)))
    np.testing.assert_array_equal(rocpy.matmul(a, right, b, alpha=0.0, beta=2.0), 2 * b)
    bias = np.array([3, 5], dtype)
    np.testing.assert_array_equal(rocpy.matmul(a, right, alpha=0.0, epilogue="bias", bias=bias), [bias, bias])


def test_sums_of_int8_wrap_around_in_int32():
    def wrapped(x):
        return (int(x) + 2**31) % 2**32 - 2**31

    row, one = np.full((1, 140000), 127, np.int8), np.full((1, 1), 127, np.int8)
    total = 127 * 127 * row.size
    assert total > 2**31
    assert rocpy.matmul(row, row.T)[0, 0] == wrapped(total)
    assert rocpy.matmul(one, one, alpha=2**20)[0, 0] == wrapped(127 * 127 * 2**20)
    largest = np.full((1, 1), 2**31 - 1, np.int32)
    assert rocpy.matmul(one, one, largest)[0, 0] == wrapped(127 * 127 + 2**31 - 1)
    assert rocpy.matmul(one, one, epilogue="bias", bias=largest[0])[0, 0] == wrapped(127 * 127 + 2**31 - 1)
    # What is narrowed saturates, from the sum that has wrapped.
    assert rocpy.matmul(one, one, dtype="int8")[0, 0] == 127
    assert rocpy.matmul(row, row.T, dtype="int8")[0, 0] == -128


def operands(family, operand, m, n, k, batch):
    """Return ones in a type, and scales of 1/2 and 1/4."""
    a, b = (np.ones(shape, dtypes.lookup(operand).numpy) for shape in ((*batch, m, k), (*batch, k, n)))
    if family.name == "MX":
        rows, columns = (*batch, m, k // 32), (*batch, k // 32, n)
        return a, b, {"scale_a": np.full(rows, 126, np.uint8), "scale_b": np.full(columns, 125, np.uint8)}
    if not family.scales:
        return a, b, {}
    return a, b, {"scale_a": np.full((m, 1), 0.5, np.float32), "scale_b": np.full((1, n), 0.25, np.float32)}


@pytest.mark.parametrize("epilogue", ["default", "relu_aux", "bgrada", "bgradb", "drelu_bgrad"])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_empty_extents_of_every_type_and_scale(family, epilogue):
    row = EPILOGUES[epilogue]
    for operand, result in itertools.product(family.operands[:2], family.results):
        kinds = {
            name: "block32" if family.name == "MX" else "vector" for name in ("scale_a", "scale_b") if family.scales
        }
        if not rocpy.blaslt.supported(operand, dtype=result, epilogue=epilogue, **kinds):
            continue
        for m, n, k, batch in EXTENTS:
            a, b, scales = operands(family, operand, m, n, k, batch)
            more = {"aux": np.ones((*batch, m, n), dtypes.lookup(result).numpy)} if row.aux == "load" else {}
            if family.scales:
                more["amax"] = True
            found = rocpy.matmul(a, b, epilogue=epilogue, dtype=result, **scales, **more)
            d, beside = found if isinstance(found, tuple) else (found, {})
            assert d.shape == (*batch, m, n)
            assert d.dtype == dtypes.lookup(result).numpy
            factor = 0.125 if scales else 1.0
            np.testing.assert_array_equal(np.unique(d.astype(np.complex128)), [k * factor] if d.size else [])
            if row.gradient in ("bgrada", "bgradb"):
                sums = beside[row.gradient]
                own = (0.5 if row.gradient == "bgrada" else 0.25) if scales else 1.0
                assert sums.shape == (*batch, m if row.gradient == "bgrada" else n)
                # A sum does not fit the smallest types, and scales make those of integers fractions.
                wide = result.startswith("float8") or (bool(scales) and result.startswith("int"))
                assert sums.dtype == dtypes.lookup("float32" if wide else result).numpy
                np.testing.assert_array_equal(sums.astype(np.complex128), np.full(sums.shape, k * own))
            if "amax" in more:
                assert float(beside["amax"]) == (k * factor if d.size else 0.0)
            with rocpy.Matmul(a, b, epilogue=epilogue, dtype=result, **scales, **more) as planned:
                again = planned.execute()
            for name, value in beside.items():
                assert again[1][name].dtype == value.dtype
                np.testing.assert_array_equal(again[1][name].astype(np.complex128), value.astype(np.complex128))


@pytest.mark.parametrize("epilogue", ["default", "bgrada", "relu"])
@pytest.mark.parametrize("result", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("name", ["float8_e4m3fn", "int8", "MX"])
def test_the_largest_magnitude_is_of_the_unrounded_result(name, result, epilogue):
    # 257 has nine bits: bfloat16 holds eight, and float16 eleven of 4097.
    target = 257 if result == "bfloat16" else 4097
    kind = "float8_e4m3fn" if name == "MX" else name
    a = np.zeros((1, 1, 96), dtypes.lookup(kind).numpy)
    values = [64.0, 64.0, 1.0] if target == 4097 else [16.0, 16.0, 1.0]
    a[0, 0, [0, 40, 80]] = [values[0], 0.0, 1.0]
    b = np.zeros((1, 96, 2), dtypes.lookup(kind).numpy)
    b[0, [0, 40, 80], 0] = [values[1], 0.0, 1.0]
    scales = (
        {"scale_a": np.full((1, 3), 127, np.uint8), "scale_b": np.full((3, 2), 127, np.uint8)}
        if name == "MX"
        else {"scale_a": 1.0, "scale_b": 1.0}
    )
    beside = rocpy.matmul(a, b, epilogue=epilogue, dtype=result, amax=True, **scales)[1]
    assert float(beside["amax"]) == target


def test_a_bias_per_row_is_no_copy_where_copies_are_forbidden():
    a, b, bias = np.ones((4, 5), np.float32), np.ones((5, 6), np.float32), np.ones((4, 1), np.float32)
    given = {"epilogue": "relu_bias", "bias": bias, "options": {"copies": "error"}}
    with pytest.raises(UnsupportedError, match="bias: .*one value per row"):
        rocpy.matmul(a, b, **given)
    with pytest.raises(UnsupportedError, match="bias: .*one value per row"):
        rocpy.Matmul(a, b, **given).execute()
    assert not rocpy.blaslt.supported("float32", epilogue="relu_bias", bias="column", options={"copies": "error"})
    out = np.empty((6, 4), np.float32).T
    np.testing.assert_array_equal(rocpy.matmul(a, b, out=out, **given), np.full((4, 6), 6.0))


@pytest.mark.parametrize("name", ["float6_e2m3fn", "float4_e2m1fn"])
def test_packing_is_a_copy(name):
    a, scale_a = rocpy.quantize_mx(np.ones((4, 32), np.float32), name)
    b, scale_b = rocpy.quantize_mx(np.ones((32, 4), np.float32), name, axis=0)
    for make in (rocpy.matmul, rocpy.Matmul):
        with pytest.raises(UnsupportedError, match=f"a: {name} that is not packed along K"):
            make(a, b, scale_a=scale_a, scale_b=scale_b, options={"copies": "error"})


def test_bounds_of_integers_are_whole_numbers():
    x = np.full((2, 3), 2, np.int8)
    for result in ("int32", "int8"):
        for bounds in ((-0.5, 7.0), (0.0, 5.5)):
            with pytest.raises(rocpy.InvalidProblemError, match="not an integer"):
                rocpy.matmul(x, x.T, epilogue="clamp", clamp=bounds, dtype=result)
        for bounds in ((-3.0, 7.0), (-math.inf, 7), (7, math.inf)):
            found = rocpy.matmul(x, x.T, epilogue="clamp", clamp=bounds, dtype=result)
            assert (found == np.clip(12, *bounds)).all()


@pytest.mark.parametrize(
    ("dtype", "epilogue"),
    [
        (np.int8, "gelu_aux"), (np.int8, "silu"), (np.int8, "sigmoid_bias"), (np.complex64, "relu"),
        (np.complex64, "clamp"), (np.complex64, "dgelu_bgrad"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", [rocpy.matmul, lambda *a, **given: rocpy.Matmul(*a, **given).execute()])
@pytest.mark.parametrize(("m", "n", "batch"), [(4, 8, ()), (4, 0, ()), (0, 8, ()), (4, 8, (0,))])
def test_functions_that_no_product_has_are_refused_for_empty_results(form, dtype, epilogue, m, n, batch):
    a, b = np.ones((*batch, m, 4), dtype), np.ones((4, n), dtype)
    row, result = EPILOGUES[epilogue], np.int32 if dtype == np.int8 else dtype
    given = {"bias": np.ones(n, result)} if row.bias else {"clamp": (0, 1)} if row.clamp else {}
    if row.aux == "load":
        given["aux"] = np.ones((*batch, m, n), result)
    with pytest.raises(UnsupportedError, match=epilogue):
        form(a, b, epilogue=epilogue, **given)


NARROW_TOO = {
    "float32": {},
    "float64": {},
    "float16": {},
    "bfloat16": {},
    "int8": {},
    "float8_e4m3fn": {"scale_a": 1.0, "scale_b": 1.0, "dtype": "float32"},
}
FEW_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 11)


def numpy_type(name):
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def placed(values, offset, apart):
    """The same values `offset` bytes after the beginning of a line of the cache, in rows `apart` elements longer."""
    rows, columns = values.shape
    size = values.itemsize
    memory = np.zeros(rows * (columns + apart) * size + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    whole = memory[begin : begin + rows * (columns + apart) * size].view(values.dtype).reshape(rows, columns + apart)
    whole[:, :columns] = values
    return whole[:, :columns]


@pytest.mark.parametrize("name", NARROW_TOO)
@pytest.mark.parametrize("transposed", [False, True], ids=["rows", "columns"])
def test_results_do_not_depend_on_where_the_matrix_lies(name, transposed):
    """A few rows against a matrix that begins anywhere in a cache line, in rows of any distance."""
    dtype, random = numpy_type(name), np.random.default_rng(5)
    for depth, columns in ((70, 100), (33, 2100)):
        right = random.integers(-4, 5, (depth, columns)).astype(dtype)
        lefts = [random.integers(-4, 5, (rows, depth)).astype(dtype) for rows in FEW_ROWS]
        wanted = [left.astype("f8") @ right.astype("f8") for left in lefts]
        stored = right.T if transposed else right
        whole = -stored.shape[1] % 64  # rows that begin alike
        for offset, apart in itertools.product((0, dtype.itemsize, 16, 56), (0, whole, whole + 64, 3)):
            matrix = placed(stored, offset, apart)
            for left, result in zip(lefts, wanted, strict=True):
                got = rocpy.matmul(left, matrix.T if transposed else matrix, **NARROW_TOO[name])
                assert np.array_equal(np.asarray(got, "f8"), result.astype(got.dtype).astype("f8")), (
                    offset,
                    apart,
                    len(left),
                )


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2"])
def test_infinite_rows_stay_in_their_columns(name):
    """A block of some columns only does not touch the sums of its neighbours, which are there already."""
    dtype = numpy_type(name)
    scales = {} if name == "bfloat16" else {"scale_a": 1.0, "scale_b": 1.0, "dtype": "float32"}
    left = np.ones((4, 200), dtype)
    left[:, 150] = np.inf
    for offset in (0, 2, 16, 34):
        matrix = placed(np.ones((200, 96), dtype), offset, 32)
        assert np.isposinf(np.asarray(rocpy.matmul(left, matrix, **scales), "f8")).all()
