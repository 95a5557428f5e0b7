# SPDX-License-Identifier: MIT
"""Axes of scales: batch axes that only a scale has, and arrays of one number, for a single row or column."""

from __future__ import annotations

import numpy as np
import pytest

import rocpy
from rocpy.testing.runner import dtype_of

F = np.float32


def outputs(form, a, b, **keywords):
    """Return a product's result and the sums beside it, by one form of the call."""
    if form == "Matmul":
        with rocpy.Matmul(a, b, **keywords) as mm:
            result, extra = mm.execute()
    else:
        result, extra = rocpy.matmul(a, b, **keywords)
    return result, extra[keywords["epilogue"]]


# ---- sums of a and b whose scale has batch axes ----

# Batch axes of the operand that is summed, of its scale and of the other operand.
AXES = [((), (2,), (2,)), ((1,), (2,), (2,)), ((), (2, 1), (2, 3)), ((3,), (2, 1), (2, 1)), ((2, 1), (3,), (3,))]


@pytest.mark.parametrize("form", ["matmul", "Matmul"])
@pytest.mark.parametrize("epilogue", ["bgrada", "bgradb"])
@pytest.mark.parametrize(("own", "scales", "other"), AXES)
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("float8_e4m3fn", "float32"), ("float8_e4m3fn", "bfloat16"), ("float8_e5m2fnuz", "float8_e5m2fnuz"),
     ("int8", "float32"), ("int8", "int8"), ("MX", "float32")],
)  # fmt: skip
def test_sums_have_the_batch_axes_of_the_operand_and_its_scale(kind, dtype, own, scales, other, epilogue, form, rng):
    element = dtype_of("float8_e4m3fn" if kind == "MX" else kind)
    m, n, k = 3, 5, 64
    summed = rng.integers(-2, 3, (*own, *((m, k) if epilogue == "bgrada" else (k, n)))).astype(element)
    factor = rng.integers(-2, 3, (*other, *((k, n) if epilogue == "bgrada" else (m, k)))).astype(element)
    axis = -1 if epilogue == "bgrada" else -2
    if kind == "MX":
        shape = (*scales, *((m, k // 32) if epilogue == "bgrada" else (k // 32, n)))
        scale = rng.integers(125, 129, shape).astype(np.uint8)
        wide = np.repeat(2.0 ** (scale.astype(float) - 127), 32, axis)
        beside = np.full((k // 32, n) if epilogue == "bgrada" else (m, k // 32), 127, np.uint8)
    else:
        line = (m, 1) if epilogue == "bgrada" else (1, n)
        scale, beside = 2.0 ** rng.integers(-2, 3, (*scales, *line)), 1.0
        wide, scale = scale, scale.astype(F)
    expected = (summed.astype(float) * wide).sum(axis)
    if epilogue == "bgrada":
        arguments = (summed, factor, scale, beside)
    else:
        arguments = (factor, summed, beside, scale)
    a, b, scale_a, scale_b = arguments
    _, sums = outputs(form, a, b, scale_a=scale_a, scale_b=scale_b, dtype=dtype, epilogue=epilogue)
    assert sums.shape == expected.shape
    np.testing.assert_allclose(sums.astype(float), expected, rtol=2**-7)


@pytest.mark.torch
def test_sums_of_tensors_have_the_batch_axes_of_the_scale():
    import torch

    a, b = torch.ones((2, 3, 4)).to(torch.float8_e4m3fn), torch.ones((4, 5)).to(torch.float8_e4m3fn)
    scale = torch.tensor([1.0, 10.0]).reshape(2, 1, 1).expand(2, 1, 5).contiguous()
    _, extra = rocpy.matmul(a, b, scale_a=1.0, scale_b=scale, dtype="float32", epilogue="bgradb")
    torch.testing.assert_close(extra["bgradb"], torch.tensor([[4.0] * 5, [40.0] * 5]))


# ---- scales of the only row or column ----

LINES = {
    "one row and column": (1, 1, (1, 1), (1, 1)),
    "one row and column, flat": (1, 1, (1,), (1,)),
    "one row beside columns": (1, 3, (1, 1), (1, 3)),
    "one row beside a number": (1, 3, (1,), None),
    "one row beside an array without axes": (1, 3, (1, 1), ()),
    "one column beside a number": (3, 1, None, (1,)),
    "one column beside an array without axes": (3, 1, (), (1, 1)),
    "one column beside rows": (3, 1, (3, 1), (1, 1)),
}


def factor_of(shape, value):
    return value if shape is None else np.full(shape, value, F)


@pytest.mark.parametrize("form", ["matmul", "Matmul", "Weight", "list", "offsets"])
@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e4m3fnuz", "int8"])
def test_scales_of_the_only_row_or_column_are_applied_one_after_the_other(kind, name, form):
    m, n, shape_a, shape_b = LINES[name]
    a, b = np.ones((m, 1), dtype_of(kind)), np.ones((1, n), dtype_of(kind))
    # Each of the scales' products leaves the normal numbers of float32: with a sum of 0 the result is 0, and no NaN.
    b[0, 0] = 0
    scale_a, scale_b = factor_of(shape_a, 1e30), factor_of(shape_b, 1e30)
    keywords = {"scale_a": scale_a, "scale_b": scale_b, "dtype": "float32"}
    if form == "matmul":
        d = rocpy.matmul(a, b, **keywords)
    elif form == "Matmul":
        with rocpy.Matmul(a, b, **keywords) as mm:
            assert (mm.problem.scale_a, mm.problem.scale_b) == ("vector", "vector")
            d = mm.execute()
    elif form == "Weight":
        d = rocpy.matmul(a, rocpy.Weight(b, scale=scale_b), scale_a=scale_a, dtype="float32")
    elif form == "list":
        d = rocpy.grouped_matmul([a], [b], **keywords)[0]
    else:
        d = rocpy.grouped_matmul(a, b[None], offsets=[0, m], **keywords)
    np.testing.assert_array_equal(d[:, 0], np.zeros(m, F))


def test_small_products_of_scales_are_no_zeros():
    x = np.full((1, 1), 2.0**-9).astype(dtype_of("float8_e4m3fn"))
    d = rocpy.matmul(x, x, scale_a=np.full(1, 1e20, F), scale_b=np.full(1, 1e19, F), dtype="float32")
    np.testing.assert_allclose(d, [[2.0**-18 * 1e20 * 1e19]], rtol=1e-6)
    y = np.full((1, 1), 256.0).astype(x.dtype)
    d = rocpy.matmul(y, y, scale_a=np.full((1, 1), 1e-25, F), scale_b=np.full((1, 1), 1e-22, F), dtype="float32")
    np.testing.assert_allclose(d, [[65536 * F(1e-25) * F(1e-22)]], rtol=1e-2)


@pytest.mark.parametrize("dtype", ["float32", "float8_e4m3fn"])
@pytest.mark.parametrize("form", [None, (), (1, 3)])
def test_a_row_has_the_bits_that_it_has_among_others(dtype, form, rng):
    element = dtype_of("float8_e4m3fn")
    more = {"scale_d": 3.0} if dtype != "float32" else {}
    for _ in range(20):
        a, b = rng.integers(-7, 8, (1, 4)).astype(element), rng.integers(-7, 8, (4, 3)).astype(element)
        scale_a = rng.random((1, 1), F)
        scale_b = rng.random(form, F) if form else factor_of(form, F(rng.random()))
        one = rocpy.matmul(a, b, scale_a=scale_a, scale_b=scale_b, dtype=dtype, **more)
        two = rocpy.matmul(
            np.repeat(a, 2, 0), b, scale_a=np.repeat(scale_a, 2, 0), scale_b=scale_b, dtype=dtype, **more
        )
        np.testing.assert_array_equal(one[0].astype(F), two[0].astype(F))


def test_arrays_of_one_number_are_scalars_where_one_can_be_nothing_else():
    a, b = (np.ones(shape, dtype_of("float8_e4m3fn")) for shape in ((1, 4), (4, 3)))
    scale = np.full((1, 1), 2.0, F)
    with rocpy.Matmul(a, b, scale_a=scale, scale_b=scale, dtype="float32") as mm:
        assert (mm.problem.scale_a, mm.problem.scale_b) == ("scalar", "scalar")


# ---- captures ----


def on_device(array):
    buffer = rocpy.Buffer(array.shape, array.dtype.name)
    buffer.copy_from(array)
    return buffer


@pytest.mark.parametrize("form", ["matmul", "offsets"])
@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("beside", [None, (), (1,)])
def test_a_scalar_beside_scales_of_rows_is_captured_or_refused_before_the_capture_is_spoilt(beside, m, form):
    element = dtype_of("float8_e4m3fn")
    a = on_device(np.ones((m, 4), element))
    b = on_device(np.ones((4, 3) if form == "matmul" else (1, 4, 3), element))
    rows = on_device(np.full((m, 1), 3.0, F))
    scalar = 2.0 if beside is None else on_device(np.full(beside, 2.0, F))

    def product(scale, stream):
        keywords = {"scale_a": rows, "scale_b": scale, "dtype": "float32", "stream": stream}
        return (
            rocpy.matmul(a, b, **keywords) if form == "matmul" else rocpy.grouped_matmul(a, b, offsets=[m], **keywords)
        )

    with rocpy.Stream(nonblocking=True) as stream:
        with stream.capture() as graph:
            if beside is not None and (m > 1 or beside == ()):
                with pytest.raises(rocpy.UnsupportedError, match="a copy of scale_b is read"):
                    product(scalar, stream)
                scalar = 2.0
            d = product(scalar, stream)
        graph.launch()
        stream.synchronize()
        np.testing.assert_array_equal(d.to_numpy(), np.full((m, 3), 24.0, F))
        graph.close()
