# SPDX-License-Identifier: MIT
"""Shapes, element types and bytes that a Buffer is made of, and what is refused instead of being read as another."""

import numpy as np
import pytest

import rocpy
from rocpy.errors import InvalidOperandError, InvalidProblemError


class Index:
    def __index__(self):
        return 3


@pytest.mark.parametrize(
    "shape", [3, np.int64(3), np.uint8(3), Index(), np.array(3), (np.int32(3),), [3], np.array([3]), range(3, 4)]
)
def test_an_extent_is_any_integer(shape):
    assert rocpy.Buffer(shape).shape == (3,)


@pytest.mark.parametrize(
    "shape",
    [
        None,
        "3",
        3.0,
        np.float64(3),
        True,
        np.bool_(True),
        -1,
        np.int64(-1),
        1 << 62,
        (2, None),
        (2, True),
        ("2",),
        object(),
        [[2]],
    ],
)
def test_other_shapes_are_refused(shape):
    with pytest.raises(InvalidProblemError, match="shape: .*(not a shape|more than any memory)"):
        rocpy.Buffer(shape)


@pytest.mark.parametrize("letter", ["f4", "i2", "c16", "u8"])
@pytest.mark.parametrize("form", [str, np.dtype])
def test_byte_orders_are_not_exchanged(letter, form):
    native = np.dtype(letter)
    assert rocpy.Buffer(3, form(letter)).dtype == native
    assert rocpy.Buffer(3, form(f"={letter}")).dtype == native
    assert rocpy.Buffer(3, form(native.newbyteorder("<").str)).dtype == native
    with pytest.raises(InvalidOperandError, match=f"dtype: .* byte order; .*pass '{native.name}'"):
        rocpy.Buffer(3, form(f">{letter}"))


@pytest.mark.parametrize("dtype", ["\udcff", "", "nothing", "f4,f4", "O", "U3", object(), 3, np.dtype("M8[s]")])
def test_other_types_are_refused(dtype):
    with pytest.raises(InvalidOperandError, match="dtype: "):
        rocpy.Buffer(3, dtype)


@pytest.mark.parametrize("value", [-1, 256, 1 << 40, 0.5, "1", None])
def test_a_fill_takes_a_byte(value):
    with rocpy.Buffer(3) as buffer, pytest.raises(InvalidProblemError, match="value: .*a byte from 0 to 255"):
        buffer.fill(value)
