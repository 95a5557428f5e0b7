# SPDX-License-Identifier: MIT
"""hipblasLtMatrixTransform of the host platform, by ctypes because hip-python's wrapper drops the layout of C."""

import ctypes
import itertools

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("rocm.bindings.hipblaslt", exc_type=ModuleNotFoundError)

from hipblaslt_support import calls
from hipblaslt_support.calls import Type, hip, lt, unwrap
from hipblaslt_support.host import library

SUCCESS, NOT_INITIALIZED, INVALID_VALUE, INTERNAL_ERROR = 0, 1, 3, 6
ROW, COL = 1, 0
TYPES = {
    "float32": (Type.HIP_R_32F, np.float32),
    "float16": (Type.HIP_R_16F, np.float16),
    "bfloat16": (Type.HIP_R_16BF, ml_dtypes.bfloat16),
    "int8": (Type.HIP_R_8I, np.int8),
    "int32": (Type.HIP_R_32I, np.int32),
}


@pytest.fixture(scope="module")
def handle():
    with calls.handle() as made:
        yield made


def store(matrix, dtype, order):
    return np.ascontiguousarray((matrix if order == ROW else np.swapaxes(matrix, -1, -2)).astype(dtype))


def layout_of(matrix, type_, order, **changes):
    _, rows, columns = matrix.shape
    settings = {"ld": columns if order == ROW else rows, "batch": len(matrix), "stride": rows * columns, "order": order}
    return calls.make_layout(type_, rows, columns, **{**settings, **changes})


def transform(handle, desc, alpha, a, a_layout, beta, b, b_layout, c, c_layout, stream=None):
    def pointer(value):
        return ctypes.c_void_p(
            value.ctypes.data if isinstance(value, np.ndarray) else None if value is None else int(value)
        )

    values = (handle, desc, alpha, a, a_layout, beta, b, b_layout, c, c_layout, stream)
    status = library("hipblaslt").hipblasLtMatrixTransform(*map(pointer, values))
    unwrap(hip.hipStreamSynchronize(None))
    return status


def make_desc(scale=Type.HIP_R_32F, op_a="N", op_b="N", pointer_mode=0):
    attributes = lt.hipblasLtMatrixTransformDescAttributes_t
    desc = unwrap(lt.hipblasLtMatrixTransformDescCreate(scale))
    for name, value in (
        ("TRANSA", {"N": 111, "T": 112}[op_a]),
        ("TRANSB", {"N": 111, "T": 112}[op_b]),
        ("POINTER_MODE", pointer_mode),
    ):
        buffer = np.array([value], np.int32)
        unwrap(
            lt.hipblasLtMatrixTransformDescSetAttribute(
                desc, attributes["HIPBLASLT_MATRIX_TRANSFORM_DESC_" + name], buffer, 4
            )
        )
    return desc


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("orders", list(itertools.product((COL, ROW), repeat=3)), ids=str)
@pytest.mark.parametrize("ops", ["NN", "TN", "NT", "TT"])
def test_sum_of_two_matrices(handle, dtype, orders, ops):
    type_, numpy_type = TYPES[dtype]
    batch, rows, columns = 2, 37, 70
    random = np.random.default_rng(3)
    a, b = (
        random.integers(-8, 8, (batch, *((rows, columns) if op == "N" else (columns, rows)))).astype(np.float64)
        for op in ops
    )
    c = np.zeros((batch, rows, columns))
    memory = [store(x, numpy_type, order) for x, order in zip((a, b, c), orders, strict=True)]
    layouts = [layout_of(x, type_, order) for x, order in zip((a, b, c), orders, strict=True)]
    desc = make_desc(op_a=ops[0], op_b=ops[1])
    alpha, beta = np.array([3], np.float32), np.array([-2], np.float32)
    assert (
        transform(handle, desc, alpha, memory[0], layouts[0], beta, memory[1], layouts[1], memory[2], layouts[2])
        == SUCCESS
    )
    wanted = 3 * (a if ops[0] == "N" else a.swapaxes(1, 2)) - 2 * (b if ops[1] == "N" else b.swapaxes(1, 2))
    np.testing.assert_array_equal(memory[2].astype(np.float64), store(wanted, np.float64, orders[2]))


def test_rounding_and_clipping(handle):
    for dtype, values, alpha, wanted in (
        ("int8", [100, -100, 5, 3, -3, 0], 2.0, [127, -128, 10, 6, -6, 0]),
        ("int8", [1, 3, 5, -1, -3, 7], 0.5, [0, 2, 2, 0, -2, 4]),
        ("int32", [2**30, -(2**30), 16777217, 0, 1, 2], 4.0, [2**31 - 1, -(2**31), 67108868, 0, 4, 8]),
        ("float16", [60000, -60000, 1, 2, 3, 4], 2.0, [np.inf, -np.inf, 2, 4, 6, 8]),
    ):
        type_, numpy_type = TYPES[dtype]
        a, c = np.array(values, numpy_type), np.zeros(6, numpy_type)
        layout = calls.make_layout(type_, 2, 3, 2)
        scalars = np.array([alpha], np.float32), np.array([0], np.float32)
        assert transform(handle, make_desc(), scalars[0], a, layout, scalars[1], None, None, c, layout) == SUCCESS
        np.testing.assert_array_equal(c, np.array(wanted, numpy_type))


def test_absent_matrices_and_zero_scalars(handle):
    layout = calls.make_layout(Type.HIP_R_32F, 2, 2, 2)
    a, c, nan = np.arange(4, dtype=np.float32), np.zeros(4, np.float32), np.full(4, np.nan, np.float32)
    one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
    desc = make_desc()
    assert transform(handle, desc, one, a, layout, zero, None, None, c, layout) == SUCCESS
    np.testing.assert_array_equal(c, a)
    assert transform(handle, desc, zero, None, None, one, a, layout, c, layout) == SUCCESS
    np.testing.assert_array_equal(c, a)
    assert transform(handle, desc, zero, nan, layout, one, a, layout, c, layout) == SUCCESS
    np.testing.assert_array_equal(c, a)


def test_scalars_in_device_mode_and_half_scale(handle):
    layout = calls.make_layout(Type.HIP_R_16F, 2, 2, 2)
    a, c = np.arange(4, dtype=np.float16), np.zeros(4, np.float16)
    alpha, beta = np.array([0.5], np.float16), np.array([2], np.float16)
    for mode in (0, 1):
        c[:] = 0
        desc = make_desc(Type.HIP_R_16F, pointer_mode=mode)
        assert transform(handle, desc, alpha, a, layout, beta, a, layout, c, layout) == SUCCESS
        np.testing.assert_array_equal(c, 2.5 * a)


def test_matrices_without_elements(handle):
    """A batch of them needs no stride, and nothing is written."""
    c, one = np.full(4, 7, np.float32), np.ones(1, np.float32)
    for rows, columns in ((0, 0), (0, 3), (3, 0)):
        layout = calls.make_layout(Type.HIP_R_32F, rows, columns, max(rows, 1), batch=3, stride=0)
        assert transform(handle, make_desc(), one, c, layout, one, c, layout, c, layout) == SUCCESS
    assert (c == 7).all()
    layout = calls.make_layout(Type.HIP_R_32F, 1, 1, 1, batch=3, stride=0)
    assert transform(handle, make_desc(), one, c, layout, one, c, layout, c, layout) == INVALID_VALUE


def test_statuses(handle, capfd):
    layout = calls.make_layout(Type.HIP_R_32F, 2, 2, 2)
    other = calls.make_layout(Type.HIP_R_32F, 2, 3, 2)
    half = calls.make_layout(Type.HIP_R_16F, 2, 2, 2)
    double = calls.make_layout(Type.HIP_R_64F, 2, 2, 2)
    a, c, one = np.zeros(8), np.zeros(8), np.ones(1, np.float32)
    desc = make_desc()
    for wanted, arguments in (
        (SUCCESS, (handle, desc, one, a, layout, one, a, layout, c, layout)),
        (NOT_INITIALIZED, (None, desc, one, a, layout, one, a, layout, c, layout)),
        (INVALID_VALUE, (handle, None, one, a, layout, one, a, layout, c, layout)),
        (INVALID_VALUE, (handle, desc, one, a, None, one, a, layout, c, layout)),
        (INVALID_VALUE, (handle, desc, one, a, layout, one, a, None, c, layout)),
        (INVALID_VALUE, (handle, desc, one, None, None, one, None, None, c, layout)),
        (INVALID_VALUE, (handle, desc, one, a, layout, one, a, layout, None, layout)),
        (INVALID_VALUE, (handle, desc, one, a, layout, one, a, layout, c, None)),
        (INVALID_VALUE, (handle, desc, None, a, layout, one, a, layout, c, layout)),
        (INVALID_VALUE, (handle, desc, one, None, layout, one, a, layout, c, layout)),
        (INVALID_VALUE, (handle, desc, one, a, other, one, a, layout, c, layout)),
        (INVALID_VALUE, (handle, desc, one, a, half, one, a, layout, c, layout)),
        (INVALID_VALUE, (handle, desc, one, a, double, one, a, double, c, double)),
    ):
        assert transform(*arguments) == wanted, arguments
    assert "do not match" in capfd.readouterr().err
    stream = unwrap(hip.hipStreamCreate())
    unwrap(hip.hipStreamDestroy(stream))
    assert transform(handle, desc, one, a, layout, one, a, layout, c, layout, int(stream)) == INTERNAL_ERROR
