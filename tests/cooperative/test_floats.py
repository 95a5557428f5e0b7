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
