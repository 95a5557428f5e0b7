# SPDX-License-Identifier: MIT
"""K = 0 with operands whose address is no multiple of their element size: nothing is read there."""

import numpy as np
import pytest
from presented import skip_without

import rocpy

DTYPES = ["f2", "f4", "f8", "c8", "c16"]


def of_record(shape, dtype):
    return np.zeros(shape, [("before", "u1"), ("values", dtype)])["values"]


def of_memory(shape, dtype):
    return np.ndarray(shape, dtype, buffer=bytearray(256), offset=1)


def of_slice(shape, dtype):
    whole = of_memory(tuple(extent or 2 for extent in shape), dtype)
    return whole[tuple(slice(1, 1) if extent == 0 else slice(None) for extent in shape)]


SOURCES = [of_record, of_memory, of_slice]


def operands(source, dtype, which):
    a, b = np.zeros((4, 0), dtype), np.zeros((0, 3), dtype)
    return (source((4, 0), dtype), b) if which == "a" else (a, source((0, 3), dtype))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("which", ["a", "b"])
def test_function_form_and_plan(source, dtype, which):
    if dtype in ("c8", "c16"):
        skip_without("complex64")
    a, b = operands(source, dtype, which)
    np.testing.assert_array_equal(rocpy.matmul(a, b), np.zeros((4, 3)))
    c = np.full((4, 3), 2, dtype)
    np.testing.assert_array_equal(rocpy.matmul(a, b, c, beta=2.0), np.full((4, 3), 4.0))
    with rocpy.Matmul(a, b) as mm:
        np.testing.assert_array_equal(mm.execute(), np.zeros((4, 3)))
        mm.reset_operands(**{which: operands(source, dtype, which)["ab".index(which)]})
        np.testing.assert_array_equal(mm.execute(), np.zeros((4, 3)))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("which", ["a", "b"])
def test_epilogues(source, which):
    a, b = operands(source, "f4", which)
    bias = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(rocpy.matmul(a, b, epilogue="bias", bias=bias), np.tile(bias, (4, 1)))
    np.testing.assert_array_equal(rocpy.matmul(a, b, epilogue="gelu_erf"), np.zeros((4, 3)))
    for name, extent in (("bgrada", 4), ("bgradb", 3)):
        result, extra = rocpy.matmul(a, b, epilogue=name)
        np.testing.assert_array_equal(result, np.zeros((4, 3)))
        np.testing.assert_array_equal(extra[name], np.zeros(extent))


@pytest.mark.parametrize("source", SOURCES)
def test_weights_and_groups(source):
    a, b = source((4, 0), "f4"), source((0, 3), "f4")
    none = np.zeros((4, 3))
    with rocpy.Weight(np.zeros((0, 3), np.float32)) as weight:
        np.testing.assert_array_equal(rocpy.matmul(a, weight), none)
    with rocpy.Weight(b) as weight:
        np.testing.assert_array_equal(rocpy.matmul(np.zeros((4, 0), np.float32), weight), none)
    np.testing.assert_array_equal(rocpy.grouped_matmul([a], [b])[0], none)
    np.testing.assert_array_equal(rocpy.grouped_matmul(a, source((2, 0, 3), "f4"), offsets=[0, 1, 4]), none)
    np.testing.assert_array_equal(rocpy.grouped_matmul(a, b, offsets=[0, 0]), none[None])
    whole = of_memory((2, 4), "f4"), of_memory((4, 2), "f4")
    np.testing.assert_array_equal(rocpy.grouped_matmul(*whole, offsets=[0, 0, 4])[0], np.zeros((2, 2)))
