# SPDX-License-Identifier: MIT
"""float64 by surprise is told of, and where float32 is asked for, literals and integers follow the data."""

import math
import warnings

import numpy as np
import pytest
from device_kernels import NO_COMPILER

from rocpy import cooperative as coop
from rocpy.errors import InvalidProblemError, RocpyWarning

amdgpu = pytest.importorskip("rocpy.testing.amdgpu", reason="no emulator of AMD's instructions in this build")
compiles = pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
SIGNATURE = "void(float32[:,::1],float32[::1])"
EPSILON = 1e-3
TENTH = 0.1
RECORD = np.dtype([("wide", np.float64), ("narrow", np.float32)])
WEIGHTS = (0.1, 0.3)


def scaled(value):
    return value * 0.1 + 1


def means(x, out):
    acc = 0.0
    count = 0
    for j in range(coop.threadIdx.x, x.shape[1], coop.blockDim.x):
        acc += x[coop.blockIdx.x, j] * 2  # first
        count += x[coop.blockIdx.x, j]
    acc = acc / x.shape[1] + EPSILON + WEIGHTS[1] * math.pi + scaled(acc) + count
    acc += math.sqrt(x.shape[1]) + max(acc, 0) + float(3) + x.shape[1] / 7
    total = coop.sum(coop.this_block(), acc)
    if coop.threadIdx.x == 0:
        out[coop.blockIdx.x] = total


def scale(x, out):
    i = coop.threadIdx.x
    out[i] = x[0, i] * 2  # rounded at once, as if it were computed in float32
    if x[0, i] > 1:
        out[i] = 0.5


def wide(x, out):
    acc = np.float64(0)  # asked for
    for j in range(x.shape[1]):
        acc += x[0, j]
    out[0] = acc


def product(a, b):
    return a * b


def positive_or_tenth(value):
    if value > 0:
        return value
    return 0.1


def chosen_literal(d):
    factor = 0.1 if d > 0 else 0.2
    return d * factor


def sum_of_literals(d):
    factor = 0.1
    for _ in range(3):
        factor += 0.1
    return d * factor


def sum_from_a_literal(d):
    acc = 0.1
    for _ in range(2):
        acc += d
    return acc


def sum_from_an_integer(d):
    factor = 0
    for _ in range(3):
        factor += 0.1
    return d * factor


def sum_in_float64():
    acc = np.float64(0)
    acc += 0.1
    return acc


# A function of a float64 and an integer, in which a literal meets that float64 or what is asked to be one.
MEETINGS = [
    lambda d, n: d * 0.1,
    lambda d, n: np.float64(0.1),
    lambda d, n: np.float64(1e300),
    lambda d, n: d == 0.1,
    lambda d, n: 1e300 * d,
    lambda d, n: TENTH * d,
    lambda d, n: d * (2 * TENTH),
    lambda d, n: -TENTH * d,
    lambda d, n: d * WEIGHTS[1],
    lambda d, n: np.pi * d,
    lambda d, n: d * (1 / 3),
    lambda d, n: d * (1 / n),
    lambda d, n: d * math.sqrt(2),
    lambda d, n: max(d, 0.1),
    lambda d, n: np.maximum(-d, 0.1),
    lambda d, n: product(d, 0.1),
    lambda d, n: positive_or_tenth(-d),
    lambda d, n: n * 0.1 * d,
    lambda d, n: chosen_literal(d),
    lambda d, n: sum_of_literals(d),
    lambda d, n: sum_from_a_literal(d),
    lambda d, n: sum_from_an_integer(d),
    lambda d, n: sum_in_float64(),
]


def flat(array):
    return (array, *array.shape, *array.strides)


def first_line():
    return means.__code__.co_firstlineno + 4


@compiles
def test_compile_tells_of_float64():
    for _ in range(2):  # from the cache, too
        with pytest.warns(RocpyWarning, match=r"kernel means computes in float64 at .*float=\"float32\"") as told:
            coop.compile(coop.jit(means), SIGNATURE, threads=64)
        assert (told[0].filename, told[0].lineno) == (__file__, first_line())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kernel in (scale, wide):
            coop.compile(coop.jit(kernel), SIGNATURE, cache=False)
        coop.compile(coop.jit(means), SIGNATURE.replace("32[:,", "64[:,"), cache=False)


def test_debug_mode_tells_of_float64():
    x, out = np.ones((2, 100), np.float32), np.zeros(2, np.float32)
    with pytest.warns(RocpyWarning, match="kernel means computes in float64") as told:
        coop.jit(debug=True)(means)[2, 64](x, out)
    assert (told[0].filename, told[0].lineno) == (__file__, first_line())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        coop.jit(debug=True)(wide)[1, 1](x, out)


@compiles
def test_literals_are_float32_where_that_is_asked_for():
    kernel = coop.jit(threads=1, float="float32")(means)
    x = np.random.default_rng(0).standard_normal((3, 100)).astype(np.float32)
    expected, seen = np.zeros(3, np.float32), np.zeros(3, np.float32)
    kernel[3, 64](x, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code = coop.compile(kernel, SIGNATURE, threads=64)
        coop.jit(debug=True, float="float32")(means)[3, 64](x, seen)
    assert "f64" not in code.assembly
    assert " double" not in code.llvm
    np.testing.assert_array_equal(seen, expected)
    amdgpu.run(code.code, code.name, 3, 64, *flat(x), *flat(seen))
    np.testing.assert_array_equal(seen, expected)
    own = np.zeros((3, 64))
    for j in range(100):
        own[:, j % 64] += x[:, j].astype(np.float64)
    acc = own * 2
    acc = acc / 100 + EPSILON + WEIGHTS[1] * math.pi + scaled(acc) + own
    acc += math.sqrt(100) + np.maximum(acc, 0) + 3 + 100 / 7
    np.testing.assert_allclose(expected, acc.sum(1), rtol=1e-5)


def test_float64_data_stay_float64():
    x = np.random.default_rng(0).standard_normal((1, 50))
    seen, expected = np.zeros(1), np.zeros(1)
    for float_type, out in (("float32", seen), (None, expected)):
        coop.jit(threads=1, float=float_type)(wide)[1, 1](x, out)
    np.testing.assert_array_equal(seen, expected)
    np.testing.assert_allclose(seen, x.sum(1), rtol=1e-14)


@pytest.mark.parametrize("at", range(0, len(MEETINGS), 6))
def test_literals_that_meet_float64_are_float64(at):
    first, second, third, fourth, fifth, sixth = (MEETINGS[at : at + 6] * 3)[:6]

    @coop.jit(threads=1, float="float32")
    def kernel(x, n, out):
        out[0] = first(x[0], n)
        out[1] = second(x[0], n)
        out[2] = third(x[0], n)
        out[3] = fourth(x[0], n)
        out[4] = fifth(x[0], n)
        out[5] = sixth(x[0], n)

    x, out = np.array([0.1]), np.zeros(6)
    kernel[1, 1](x, 26, out)
    expected = [each(0.1, 26) for each in (first, second, third, fourth, fifth, sixth)]
    np.testing.assert_array_equal(out, expected)


def test_literals_that_are_stored_as_float64_are_float64():
    @coop.jit(threads=1, float="float32")
    def kernel(out, records, parts):
        block = coop.this_block()
        out[0] = 0.1
        out[1] = TENTH
        coop.atomic.add(out, 2, 0.1)
        out[3] = coop.sum(block, np.float64(0.1))
        out[4] = coop.inclusive_sum(block, out[0], initial=0.1)
        records[0]["wide"] = 0.1
        records[0].narrow = 0.1
        records[1].wide = 0.1
        parts[0] = 0.1j
        own = coop.local.array(1, np.float64)
        own[0] = 0.1
        out[5] = own[0]

    out, records, parts = np.zeros(6), np.zeros(2, RECORD), np.zeros(1, np.complex128)
    kernel[1, 1](out, records, parts)
    np.testing.assert_array_equal(out, [0.1, 0.1, 0.1, 0.1, 0.2, 0.1])
    np.testing.assert_array_equal(records["wide"], 0.1)
    assert parts[0] == 0.1j
    assert records["narrow"][0] == np.float32(0.1)


def test_sum_of_float32_is_float32():
    @coop.jit(threads=1, float="float32")
    def kernel(x, out):
        out[0] = sum((x[0], 0.1, 0.2))
        out[1] = sum(x)
        out[2] = 1e300 * x[0]

    x, out = np.array([0.3, 0.4], np.float32), np.zeros(3)
    kernel[1, 1](x, out)
    np.testing.assert_array_equal(out, [x[0] + np.float32(0.1) + np.float32(0.2), x[0] + x[1], np.inf])


def test_floats_of_python_are_arguments_of_the_same_type():
    @coop.jit(threads=1, float="float32")
    def kernel(x, out, factor, pair=(0.1, 2)):
        out[coop.threadIdx.x] = x[coop.threadIdx.x] * factor + pair[0] * pair[1]

    x, out = np.random.default_rng(0).random(8).astype(np.float32), np.zeros(8)
    kernel[1, 8](x, out, 0.3)
    np.testing.assert_array_equal(out, x * np.float32(0.3) + np.float32(0.1) * np.float32(2))


@pytest.mark.parametrize("value", ["float16", 32, np.float32])
def test_other_types_are_refused(value):
    with pytest.raises(InvalidProblemError, match="float is"):
        coop.jit(float=value)(means)
