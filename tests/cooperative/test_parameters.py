# SPDX-License-Identifier: MIT
"""Parameters of kernels: defaults are arguments like others, and all are positional; arguments of calls in kernels."""

import enum
import typing

import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.errors import InvalidOperandError, InvalidProblemError, KernelTypeError


@pytest.mark.torch
def test_a_default_may_be_whatever_an_argument_may_be():
    import torch

    held = torch.zeros(2)
    two = (np.float64(3), held)

    @coop.jit
    def kernel(x, y=held, pair=two, z=1):
        y[0] = x[0] + pair[0] + z
        y[1] += pair[1][0]

    for count, x in enumerate((np.ones(2), torch.ones(2)), start=1):
        kernel[1, 1](x)
        assert held.tolist() == [5, 5 * count]
    assert held._version == 2
    kernel[1, 1](np.ones(2), z=2)
    assert held.tolist() == [6, 16]
    with pytest.raises(InvalidProblemError, match="kernel.x, y, pair, z. was called with 0 arguments"):
        kernel[1, 1]()


def test_a_default_that_no_argument_may_be_is_named():
    def kernel(x, y=None):
        x[0] = 1

    with pytest.raises(InvalidOperandError, match="kernel: y is NoneType"):
        coop.jit(kernel)[1, 1](np.ones(2))


def _gathers(x, *r):
    x[0] = 1


def _named_only(x, *, r=2):
    x[0] = 1


def _names(x, **r):
    x[0] = 1


@pytest.mark.parametrize(("function", "shown"), [(_gathers, r"\*r"), (_named_only, "r"), (_names, r"\*\*r")])
def test_parameters_that_are_not_positional_are_named(function, shown):
    kernel = coop.jit(function)
    message = rf"kernel {function.__name__}: its parameter {shown} is not positional"
    with pytest.raises(KernelTypeError, match=message):
        kernel[1, 1](np.ones(2))
    with pytest.raises(KernelTypeError, match=message):
        coop.compile(kernel, "void(float64[::1])")


def test_a_grid_may_be_a_list():
    @coop.jit
    def kernel(x):
        x[coop.grid(1)] = coop.gridDim.x

    x = np.zeros(8)
    kernel[[2, 1], [4]](x)
    assert (x == 2).all()


@pytest.mark.parametrize("settings", [(1.0, 2), (True, 2), (1, (2.0, 1))])
def test_settings_that_equal_valid_ones_are_refused_before_and_after_those(settings):
    @coop.jit
    def kernel(x):
        x[0] = 1

    for _ in range(2):
        with pytest.raises(InvalidProblemError, match="it must be an integer or a tuple of one to three integers"):
            kernel[settings]
        assert kernel[1, 2] is kernel[1, 2]
        assert kernel[1, (2, 1)].block == (2, 1, 1)


class _Colour(enum.IntEnum):
    GREEN = 3


class _Length(float):
    pass


class _Pair(typing.NamedTuple):
    first: float
    second: int


def test_numbers_of_derived_classes_are_numbers():
    @coop.jit(float="float32")
    def kernel(x, number, pair):
        x[0] = number
        x[1] = pair[0] / 3

    x = np.zeros(2)
    kernel[1, 1](x, _Colour.GREEN, _Pair(_Length(1), 2))
    assert x.tolist() == [3, np.float32(1) / np.float32(3)]


def test_a_named_tuple_has_indices():
    @coop.jit
    def kernel(x, pair):
        x[0] = pair.first

    with pytest.raises(KernelTypeError, match="no attribute 'first' in kernels: a named tuple is a tuple there"):
        kernel[1, 1](np.zeros(1), _Pair(1, 2))


def _digits(x, y=1, z=2):
    return x + 10 * y + 100 * z


def _calls_in_try(x):
    try:
        x[0] = _digits(1, z=(last := 4)) + last
        if (last := _digits(z=2, x=x[0])) > 0:
            raise ValueError
    except Exception:
        x[1] = _digits(y=2, x=3)
    x[2] = last


def _values_of_assignments(x):
    n = 9
    while (t := n * 2) > 8:
        n -= 1
    x[0] = t
    if (t := _digits(n)) > 3 and (u := _digits(t, z=n)) < 10000:
        x[1] = t + u
    x[2] = (t := n * 2) + (t := 5) + t
    x[3] = (t := n + 1) if n > 3 else (t := n - 1)
    x[5] = x[(t := n % 3)] + t
    a = b = _digits(n)
    x[4] = a * b
    x[6] = (n := n) if x[7] < 1 else 2
    x[8] = n


def _nested_functions(x):
    def digits(a, b=1, c=2):
        def shifted(value, by=3, times=2):
            return (moved := value + by) * times + moved

        try:
            result = _digits(a, z=c) + shifted(b, times=4)
        except Exception:
            result = 0
        return result

    x[0] = digits(1, 5)
    x[1] = digits(1, c=5)
    x[2] = digits(c=3, a=2)
    x[3] = digits(1, 2, 3)
    for i in range(3):
        n = x[0] + i
        last = lambda a, b=n, c=4: a + b * c  # noqa: E731 - as kernels have them
        n += 7
        x[0] += 1
        x[4 + i] = last(n) - last(i, 3)


@pytest.mark.parametrize("function", [_calls_in_try, _values_of_assignments, _nested_functions])
def test_calls_and_assignments_give_what_they_give_in_python(function):
    expected, x = np.zeros(12, np.int64), np.zeros(12, np.int64)
    function(expected)
    coop.jit(function)[1, 1](x)
    np.testing.assert_array_equal(x, expected)


@coop.jit
def _primitive_in_try(x):
    try:
        x[coop.threadIdx.x] = coop.sum(coop.this_block(), 1, all=True)
    finally:
        x[4] = 7


def test_primitives_in_try_take_arguments_by_name():
    x = np.zeros(5, np.int64)
    _primitive_in_try[1, 4](x)
    assert x.tolist() == [4, 4, 4, 4, 7]
