# SPDX-License-Identifier: MIT
"""Whole arrays that a kernel changes: shapes that do not fit, and operands that share memory with the target."""

import inspect

import numba
import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.errors import KernelIndexError


def guarded(shape, first=1):
    """Memory with elements around an array, of which each row and column is in steps of two, and the array."""
    rows, columns = shape
    memory = np.full((2 * rows + 8, 2 * columns + 8), 7777)
    array = memory[4 : 4 + 2 * rows : 2, 4 : 4 + 2 * columns : 2]
    array[...] = np.arange(first, first + rows * columns).reshape(shape)
    return memory, array


@numba.vectorize
def plus(a, b):
    return a + b


def adds(x, y, out, which):
    if which == 0:
        x += y
    else:
        np.divmod(x, y, x, out)


ADDS = [coop.jit(debug=debug)(adds) for debug in (False, True)]


def others(x, y, out, which):
    if which == 0:
        x //= y
    elif which == 1:
        np.add(x, y, out)
    elif which == 2:
        np.negative(x, out)
    else:
        plus(x, y, out)


def refused(kernel, shapes, which):
    """Return the error of a launch with arrays of some shapes; none is written to, nor the memory around it."""
    arrays = [guarded(shape, first) for shape, first in zip(shapes, (1, 11, 21), strict=True)]
    before = [memory.copy() for memory, _ in arrays]
    with pytest.raises((ValueError, KernelIndexError)) as told:
        kernel[1, 1](*(array for _, array in arrays), which)
    for (memory, _), old in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(memory, old)
    return told.value


def says_line(error, function, mark):
    """Whether an exception names the line of a function that has the mark."""
    lines, first = inspect.getsourcelines(function)
    line = first + next(i for i, each in enumerate(lines) if mark in each)
    return error.__notes__[0].endswith(f", at {__file__}:{line}")


ONE = (1, 1)  # contiguous: a type of its own, for which a kernel is compiled again
SMALL = (2, 2)


@pytest.mark.parametrize("debug", [False, True])
def test_arrays_that_cannot_be_broadcast_to_the_target(debug):
    kernel = ADDS[debug]
    wrong = [((3, 4), each) for each in ((2, 4), (4, 4), (3, 3), (4, 3), (6, 1), (1, 8))]
    wrong += [((3, 1), (3, 4)), ((1, 4), (3, 4))]
    for x, y in wrong:
        error = refused(kernel, (x, y, SMALL), 0)
        assert type(error) is ValueError
        assert str(error).startswith("operands could not be broadcast together: the shape of the right operand of += ")
        assert says_line(error, adds, "x += y")
    for y, out in (((3, 4), (2, 4)), ((3, 4), (3, 1)), ((1, 4), (3, 5))):
        error = refused(kernel, ((3, 4), y, out), 1)
        assert str(error) == "non-broadcastable output operand: the outputs of np.divmod differ in shape"
        assert says_line(error, adds, "np.divmod")
    for shape in ((3, 4), (1, 4), (3, 1)):
        (_, x), (_, y) = guarded((3, 4)), guarded(shape)
        expected = x + y
        kernel[1, 1](x, y, x, 0)
        np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("debug", [False, True])
def test_operands_that_share_memory_with_the_target(debug):
    kernel = ADDS[debug]
    views = {
        "a column": lambda x: (x, x[:, :1]),
        "a row": lambda x: (x, x[:1]),
        "the last row": lambda x: (x, x[-1:]),
        "transposed": lambda x: (x, x.T),
        "reversed": lambda x: (x, x[::-1]),
        "the rows before": lambda x: (x[1:], x[:-1]),
        "the rows after": lambda x: (x[:-1], x[1:]),
        "itself": lambda x: (x, x),
        "in part": lambda x: (x[1:3, 1:3], x[:2, :2]),
    }
    for which in (0, 1):
        for name, view in views.items():
            results = []
            for run in (adds, kernel[1, 1]):
                (memory, x), (_, out) = guarded((4, 4)), guarded((4, 4))
                target, operand = view(x)
                run(target, operand, out[: len(target), : target.shape[1]], which)
                results.append((memory, out))
            for expected, result in zip(*results, strict=True):
                np.testing.assert_array_equal(result, expected, err_msg=name)


@pytest.mark.slow
def test_other_operations_with_a_target():
    kernel = coop.jit(others)
    marks = ("x //= y", "np.add(", "np.negative(", "plus(x")
    for which, mark in enumerate(marks):
        wrong = [(2, 4)] if which == 0 else [(3, 4), (3, 4), (3, 4)]
        targets = [SMALL] if which == 0 else [(2, 4), (3, 1), (6, 4)]
        for y, out in zip(wrong, targets, strict=True):
            error = refused(kernel, ((3, 4), y, out), which)
            assert str(error).startswith("operands could not be broadcast together: ")
            assert says_line(error, others, mark)


def selects(x, y, out, which):
    if which == 0:
        x[y[0] > 0] = 5
    else:
        out[0, 0] = x[:, y[0] > 0].size


def test_masks_of_another_length():
    kernel = coop.jit(selects)
    for length in (2, 3, 5, 9):
        for which, size in ((0, 3), (1, 4)):
            if length == size:
                continue
            error = refused(kernel, ((3, 4), (1, length), ONE), which)
            assert isinstance(error, KernelIndexError)
            assert error.filename == __file__
            assert f"boolean index did not match indexed array along axis {which}" in str(error)


def deletes(x, y, out, which):
    out[0, which] = np.delete(x, y[0]).size


def test_indices_of_what_is_deleted():
    kernel = coop.jit(deletes)
    for first in (12, -13):
        (_, x), (_, y), (_, out) = guarded((3, 4)), guarded(ONE, first), guarded(ONE)
        with pytest.raises(KernelIndexError, match=r"an index of np\.delete is out of bounds") as told:
            kernel[1, 1](x, y, out, 0)
        assert told.value.filename == __file__


def counts(x, y, out, which):
    if which == 0:
        out[0, 0] = np.bincount(x[:, 0])[0]
    elif which == 1:
        out[0, 0] = np.bincount(x[:, 0], y[:, 0] / 1.0)[0]
    else:
        out[0, 0] = len(np.array_split(x[:, 0], y[0, 0]))


def test_what_is_counted_and_split():
    """Numba looks at all elements but the first."""
    kernel = coop.jit(counts)
    for which, first in ((0, -2), (1, -(2**40)), (2, 1)):
        (memory, x), (_, y), (_, out) = guarded((3, 1), first), guarded((3, 1), 0), guarded(ONE)
        before = memory.copy()
        with pytest.raises(ValueError, match="non-negative" if which < 2 else "larger than 0"):
            kernel[1, 1](x, y, out, which)
        np.testing.assert_array_equal(memory, before)
    (_, x), (_, y), (_, out) = guarded((3, 1), 0), guarded((3, 1)), guarded(ONE)
    for which, value in ((0, 1), (1, 1), (2, 1)):
        kernel[1, 1](x, y, out, which)
        assert out[0, 0] == value


def percentiles(x, out):
    out[0] = np.quantile(x, 0.5)


@pytest.mark.slow
def test_percentiles_of_nothing():
    kernel, out = coop.jit(percentiles), np.zeros(1)
    kernel[1, 1](np.arange(3.0), out)
    assert out[0] == 1
    with pytest.raises(KernelIndexError, match="quantiles of an empty array") as told:
        kernel[1, 1](np.zeros(0), out)
    assert told.value.filename == __file__


def reads(x, y, out, which):
    if which == 0:
        out[0, 0] = np.take_along_axis(x, y, 1)[0, 0]
    else:
        np.outer(x, y, out)


@pytest.mark.slow
def test_other_functions_of_numpy():
    kernel = coop.jit(reads)
    error = refused(kernel, ((3, 4), (3, 1), ONE), 0)
    assert isinstance(error, KernelIndexError)
    assert "an index of np.take_along_axis is out of bounds" in str(error)
    error = refused(kernel, ((1, 3), (1, 3), (4, 3)), 1)
    assert str(error) == "non-broadcastable output operand: the output of np.outer has another shape"
