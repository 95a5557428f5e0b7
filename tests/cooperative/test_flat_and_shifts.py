# SPDX-License-Identifier: MIT
"""Indices of ``x.flat``, shifts, divisions and powers mean what they mean in numpy, in every mode and on GPUs."""

import math

import numpy as np
import pytest
from device_kernels import NO_COMPILER

from rocpy import cooperative as coop
from rocpy.errors import KernelIndexError

MODES = [pytest.param(False, id="plain"), pytest.param(True, id="debug")]
AMOUNTS = np.array([0, 1, 31, 32, 63, 64, 65, 2**40, -1, -64, -(2**63), 3])


def flat_indices(x, out, at):
    out[0] = x.flat[-1]
    out[1] = x.flat[at]
    x.flat[-2] = 7
    x.flat[at - 1] = 8


def beyond(x, at):
    x.flat[at] = 1


def read_beyond(x, at):
    x[0] = x.flat[at]


def shifts(x, n, left, right):
    i = coop.threadIdx.x
    left[i] = x[i] << n[i]
    right[i] = x[i] >> n[i]


def shifts_in_place(x, n, left, right):
    i = coop.threadIdx.x
    held = x[i]
    held <<= n[i]
    left[i] = held
    right[i] = np.right_shift(x[i], n[i])


@pytest.mark.parametrize("debug", MODES)
def test_flat_indices_count_from_the_end(debug):
    memory, out = np.arange(16), np.zeros(2, np.int64)
    x = memory[4:12].reshape(2, 4).T
    expected = x.copy().ravel()
    coop.jit(debug=debug)(flat_indices)[1, 1](x, out, -3)
    assert out.tolist() == [expected[-1], expected[-3]]
    expected[-2], expected[-4] = 7, 8
    np.testing.assert_array_equal(x.ravel(), expected)
    np.testing.assert_array_equal(memory[:4], np.arange(4))


@pytest.mark.parametrize("at", [4, 5, -5, 2**62])
@pytest.mark.parametrize("function", [beyond, read_beyond], ids=["write", "read"])
def test_flat_indices_out_of_range_are_told_of(function, at):
    memory = np.zeros(12)
    with pytest.raises(KernelIndexError, match="out of bounds"):
        coop.jit(debug=True)(function)[1, 1](memory[4:8], at)
    assert not memory.any()


@pytest.mark.parametrize("debug", MODES)
@pytest.mark.parametrize("function", [shifts, shifts_in_place], ids=["operators", "functions"])
@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_shifts_are_those_of_numpy(dtype, function, debug):
    n = AMOUNTS.astype(dtype)
    for value in (-5, 1, -(2**63)):
        x = np.full(n.shape, value).astype(dtype)
        left, right = np.zeros_like(x), np.zeros_like(x)
        coop.jit(debug=debug)(function)[1, len(x)](x, n, left, right)
        np.testing.assert_array_equal(left, x << n)
        np.testing.assert_array_equal(right, x >> n)


@pytest.mark.parametrize("debug", MODES)
def test_shifts_of_int32_are_those_of_numpy_when_they_are_stored(debug):
    x, n = np.array([-5, 1, 7, -1, 9], np.int32), np.array([33, 64, -1, 32, 3], np.int32)
    left, right = np.zeros_like(x), np.zeros_like(x)
    coop.jit(debug=debug)(shifts)[1, len(x)](x, n, left, right)
    np.testing.assert_array_equal(left, x << n)
    np.testing.assert_array_equal(right, x >> n)


def divisions(x, y, out):
    i = coop.threadIdx.x
    out[i, 0] = x[i] // y[i]
    out[i, 1] = x[i] % y[i]
    quotient, remainder = divmod(x[i], y[i])
    out[i, 2] = quotient + remainder


def dividends(dtype):
    limits = np.iinfo(dtype)
    values = {limits.min, limits.min // 2, limits.max, limits.max // 3, 0, 1, 7, 10}
    return np.array([each for each in (*values, -1, -2, -7) if each >= limits.min], dtype)


@pytest.mark.parametrize(
    "dtype", [np.int64, *(pytest.param(each, marks=pytest.mark.slow) for each in (np.int32, np.uint64))]
)
def test_integers_are_divided_as_in_numpy_in_64_bits(dtype):
    kernel, values = coop.jit(divisions), dividends(dtype)
    for divisor in values:
        wide = np.uint64 if dtype is np.uint64 else np.int64
        out = np.zeros((len(values), 3), wide)
        kernel[1, len(values)](values, np.full_like(values, divisor), out)
        with np.errstate(divide="ignore", over="ignore"):
            quotient, remainder = np.divmod(values.astype(wide), wide(divisor))
        np.testing.assert_array_equal(out.T, [quotient, remainder, quotient + remainder])


def divisions_by_functions(x, y, n, out):
    i = coop.threadIdx.x
    out[0, i] = np.floor_divide(x[i], y[i])
    out[1, i] = np.mod(x[i], y[i])
    out[2, i] = np.fmod(x[i], y[i])
    quotient, remainder = np.divmod(x[i], y[i])
    out[3, i] = quotient - remainder
    out[4, i] = np.left_shift(x[i], n[i])
    out[5, i] = np.right_shift(x[i], n[i])


def divisions_of_arrays(x, y, n, out):
    if coop.threadIdx.x == 0:
        out[0] = x
        whole = out[0]
        whole //= y
        np.remainder(x, y, out[1])
        out[2] = np.fmod(x, y)
        out[3] = x // y - x % y
        out[4] = x << n
        out[5] = x >> n


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (divisions_by_functions, np.int64),
        pytest.param(divisions_by_functions, np.int8, marks=pytest.mark.slow),
        pytest.param(divisions_of_arrays, np.int64, marks=pytest.mark.slow),
        pytest.param(divisions_of_arrays, np.uint64, marks=pytest.mark.slow),
    ],
)
def test_functions_and_whole_arrays_give_what_operators_give(function, dtype):
    values = dividends(dtype)
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    n = np.resize(AMOUNTS, x.shape).astype(dtype)
    out = np.zeros((6, len(x)), dtype)
    coop.jit(function)[1, len(x)](x, y, n, out)
    with np.errstate(divide="ignore", over="ignore"):
        expected = [x // y, x % y, np.fmod(x, y), x // y - x % y, x << n, x >> n]
    np.testing.assert_array_equal(out, expected)


def test_a_whole_array_is_divided_as_its_elements():
    @coop.jit
    def kernel(x, y):
        x //= y

    x, y = np.array([-(2**63), 5, -7, 9]), np.array([-1, 0, 2, 2])
    with np.errstate(divide="ignore", over="ignore"):
        quotient = x // y
    kernel[1, 1](x, y)
    np.testing.assert_array_equal(x, quotient)


@pytest.mark.slow
def test_whole_arrays_have_infinite_quotients_and_powers():
    @coop.jit
    def kernel(x, n, z, powers, quotients):
        powers[:] = x**n
        quotients[0] = z / z[0]
        quotients[1] = np.true_divide(z, z[0])

    x, n, z = np.array([0.0, -0.0, 2.0]), np.array([-1, -3, -2]), np.array([complex(-0.0, 0), 1 - 2j])
    powers, quotients = np.zeros(3), np.zeros((2, 2), complex)
    kernel[1, 1](x, n, z, powers, quotients)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.testing.assert_array_equal(powers, x ** n.astype(float))
        np.testing.assert_array_equal(quotients, [z / z[0], z / z[0]])


def test_floats_are_divided_as_the_operators_do():
    @coop.jit
    def kernel(x, y, out, whole):
        i = coop.threadIdx.x
        out[0, i], out[1, i], out[2, i] = x[i] // y[i], np.floor_divide(x[i], y[i]), np.divmod(x[i], y[i])[0]
        if i == 0:
            whole //= y

    x = np.array([1, 1, -1, np.inf, 7.5, 5, -7.5, 0])
    y = np.array([0.1, 1e-8, np.inf, 2, -2, -np.inf, 0, 0])
    out, whole = np.zeros((3, 8)), x.copy()
    kernel[1, 8](x, y, out, whole)
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = x // y
    for each in (*out, whole):
        np.testing.assert_array_equal(each, expected)
        np.testing.assert_array_equal(np.signbit(each[2:6]), np.signbit(expected[2:6]))


def test_unsigned_numbers_have_the_sign_and_the_multiples_of_numpy():
    @coop.jit
    def kernel(x, y, signs, whole, multiples):
        i = coop.threadIdx.x
        signs[i], multiples[i] = np.sign(y[i]), np.lcm(x[i], 6)
        if i == 0:
            whole[:] = np.sign(x)

    x, signs, whole, multiples = LARGE, *np.zeros((3, 4), np.uint64)
    kernel[1, 4](x, np.array([200, 0, 255, 1], np.uint8), signs, whole, multiples)
    assert signs.tolist() == [1, 0, 1, 1]
    np.testing.assert_array_equal(whole, np.sign(x))
    np.testing.assert_array_equal(multiples, np.lcm(x, np.uint64(6)))


def test_integers_are_rounded_exactly():
    @coop.jit
    def kernel(x, digits, out, unsigned):
        i = coop.threadIdx.x
        out[i, 0], out[i, 1], out[i, 2] = round(x[i]), math.trunc(x[i]), round(x[i], 0)
        for j in range(digits.shape[0]):
            out[i, 3 + j] = round(x[i], digits[j])
        if i < unsigned.shape[0]:
            unsigned[i] = round(unsigned[i])

    x, digits = np.array([2**53 + 1, 2**63 - 8, -(2**62) - 1, -25, 15]), np.array([1, -1, -18, -19, -99])
    out, unsigned = np.zeros((5, 8), int), LARGE.copy()
    kernel[1, 5](x, digits, out, unsigned)
    for each, row in zip(x.tolist(), out, strict=True):
        exact = [*3 * [each], *(round(each, n) for n in digits.tolist())]
        assert row.tolist() == [(value + 2**63) % 2**64 - 2**63 for value in exact]
    np.testing.assert_array_equal(unsigned, LARGE)


@pytest.mark.parametrize(
    "dtype", [np.int8, *(pytest.param(each, marks=pytest.mark.slow) for each in (np.uint16, bool))]
)
def test_quotients_of_narrow_integers_are_float64(dtype):
    @coop.jit
    def kernel(x, y, out):
        out[0], out[1], out[2], out[3] = x / y, 1 / y, np.true_divide(x, y), x / y[0]
        np.true_divide(x, y, out[4])
        out[5] = np.true_divide(x[0], y[1])

    x, y, out = np.array([1, 10, 100], dtype), np.array([3, 7, 9], dtype), np.zeros((6, 3))
    kernel[1, 1](x, y, out)
    expected = [x / y, 1 / y, x / y, x / y[0], x / y, 3 * [np.true_divide(x[0], y[1])]]
    np.testing.assert_array_equal(out, expected)


LARGE = np.array([2**53 + 1, 2**62 + 7, 2**63 + 11, 2**64 - 1], np.uint64)


def test_uint64_with_integers_is_exact():
    @coop.jit
    def kernel(x, m, out, mixed, floats):
        i = coop.threadIdx.x
        quotient, remainder = divmod(x[i], 10)
        out[i, 0], out[i, 1], out[i, 2] = x[i] // 10, quotient - np.floor_divide(x[i], 10), (x[i] + 1) % 7
        out[i, 3], out[i, 4], out[i, 5] = (
            remainder - np.mod(x[i], 10),
            7 % x[i],
            np.right_shift(x[i] + np.add(x[i], 3), 1),
        )
        value = x[0]
        for _ in range(i):
            value = value * 6364136223846793005 + 1442695040888963407
        out[i, 6] = value >> 33
        for j in range(3):
            mixed[i, j, 0], mixed[i, j, 1] = x[i] // m[j], x[i] % m[j]
            mixed[i, j, 2], mixed[i, j, 3] = m[j] // x[i], m[j] % x[i]
        narrow = np.uint8(i)
        floats[i] = (narrow >> 1) - 8  # of fewer bits: int64

    m, out, mixed, floats = (
        np.array([3, -7, -(2**63)]),
        np.zeros((4, 7), np.uint64),
        np.zeros((4, 3, 4), int),
        np.zeros(4),
    )
    kernel[1, 4](LARGE, m, out, mixed, floats)
    value = int(LARGE[0])
    for i, each in enumerate(map(int, LARGE)):
        after = (each + 1) % 2**64
        halves = (2 * each + 3) % 2**64 >> 1
        assert out[i].tolist() == [each // 10, 0, after % 7, 0, 7, halves, value >> 33]
        value = (value * 6364136223846793005 + 1442695040888963407) % 2**64
        for j, divisor in enumerate(map(int, m)):
            expected = [*divmod(each, divisor), *divmod(divisor, each)]
            assert (mixed[i, j].astype(object) - expected) % 2**64 == pytest.approx(0, abs=0)
    assert floats.tolist() == [-8, -8, -7, -7]


def test_whole_arrays_are_computed_in_their_own_type():
    @coop.jit
    def kernel(x, y, out):
        out[:] = x * x // y

    x, y, out = np.array([-128, 100, 127, 3], np.int8), np.array([-128, 7, 1, 2], np.int8), np.zeros(4, np.int8)
    kernel[1, 1](x, y, out)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out, x * x // y)
    with pytest.raises(ValueError, match="unable to broadcast argument 1 to output array\nraised by kernel") as told:
        kernel[1, 1](x, y[:3], out)
    assert f"{__file__}:" in told.value.__notes__[0]


@pytest.mark.slow
def test_numbers_beside_whole_arrays_have_their_type():
    @coop.jit
    def kernel(x, m, out, small):
        out[:] = (x + 1) // 10 + (x >> 1)
        x %= m
        small[:] = (small * 2 << 1) >> 1

    x, out, small = LARGE.copy(), np.zeros(4, np.uint64), np.array([-128, 100, 127, 3], np.int8)
    with np.errstate(over="ignore"):
        expected = (LARGE + 1) // 10 + (LARGE >> 1), (small * 2 << 1) >> 1
    kernel[1, 1](x, 10, out, small)
    np.testing.assert_array_equal(x, LARGE % 10)
    np.testing.assert_array_equal(out, expected[0])
    np.testing.assert_array_equal(small, expected[1])


def test_integers_to_integer_powers_are_exact():
    @coop.jit
    def kernel(x, n, out, whole, floats, least):
        i = coop.threadIdx.x
        out[i, 0], out[i, 1] = x[i] ** n[i], np.power(x[i], n[i])
        floats[i] = floats[i] ** least[i]
        coop.syncthreads()
        if i == 0:
            whole **= n

    x, n = np.array([3, 5, -3, -1, 2]), np.array([39, 27, 70001, -(2**63), -5])
    floats, least = np.array([2, 2, -1, 0.5, 0], np.float32), np.array([-128, -127, 127, -128, -1], np.int8)
    out, whole = np.zeros((5, 2), int), x.copy()
    expected = [pow(int(a), int(b), 2**64) for a, b in zip(x[:3], n[:3], strict=True)] + [1, 0]
    with np.errstate(divide="ignore", over="ignore"):
        powers = (floats.astype(float) ** least).astype(np.float32)
    kernel[1, 5](x, n, out, whole, floats, least)
    for each in (*out.T, whole):
        assert each.astype(np.uint64).tolist() == expected
    np.testing.assert_array_equal(floats, powers)


def reciprocals(x, n, out):
    i = coop.threadIdx.x
    out[i, 0], out[i, 1], out[i, 2] = x[i] ** -1, x[i] ** -2, x[i] ** n[i]


def test_negative_powers_of_zero_are_infinite():
    x, n = np.array([0.0, -0.0, 2.0, -4.0, np.inf]), np.array([-1, -3, -2, 3, -1])
    out = np.zeros((5, 3))
    coop.jit(reciprocals)[1, 5](x, n, out)
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(out.T, [x**-1.0, x**-2.0, x ** n.astype(float)])


def test_complex_numbers_are_divided_by_zero_as_in_numpy():
    @coop.jit
    def kernel(x, y, out):
        i = coop.threadIdx.x
        out[i] = x[i] / y[i]
        if i == 4:
            out[i] += (x[i] - x[i]) ** (2 - 3j)

    x, y = np.array([1, 0, 1 - 2j, -1j, 3 + 4j]), np.array([0, 0, 0, complex(-0.0, 0), 1 + 1j])
    out = np.zeros_like(x)
    kernel[1, 5](x, y, out)
    with np.errstate(divide="ignore", invalid="ignore"):
        np.testing.assert_array_equal(out, x / y)


@pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
def test_gpus_give_the_same():
    amdgpu = pytest.importorskip("rocpy.testing.amdgpu", reason="no emulator of AMD's instructions in this build")

    def kernel(x, n, left, right, least, quotient):
        shifts(x, n, left, right)
        if coop.threadIdx.x == 0:
            x.flat[-1] = 7
            quotient[0] = least[0] // least[1]
            quotient[1] = np.float64(least[2]) ** -1 == np.inf
            quotient[2] = np.mod(x[0], least[1]) + np.fmod(x[0], least[2])
            quotient[3] = least[2] + least[1] ** n[0] + (least[0] - 1) ** n[1]
            quotient[4], quotient[5] = round(n[10] + 1), np.sign(np.uint64(n[8]))
            quotient[6] = np.floor_divide(np.float64(least[1]) + 2, 0.1)
            np.left_shift(n, 64, n)

    types = 4 * ["int64[::1]"] + ["int32[::1]", "int64[::1]"]
    code = coop.compile(coop.jit(kernel), f"void({','.join(types)})", arch="gfx942", threads=64)
    least, quotient = np.array([-(2**31), -1, 0], np.int32), np.full(7, -1)
    memory = np.full(3 * len(AMOUNTS), -5)
    x = memory[len(AMOUNTS) : -len(AMOUNTS)]
    n, left, right, expected = AMOUNTS.copy(), np.zeros_like(x), np.zeros_like(x), (x << AMOUNTS, x >> AMOUNTS)
    arrays = [word for each in (x, n, left, right, least, quotient) for word in (each, *each.shape, *each.strides)]
    amdgpu.run(code.code, code.name, 1, len(x), *arrays)
    np.testing.assert_array_equal((left, right), expected)
    assert np.flatnonzero(memory == 7).tolist() == [2 * len(AMOUNTS) - 1]
    assert quotient.tolist() == [2**31, 1, 0, 1 - (2**31 + 1), 1 - 2**63, 1, 9]
    assert not n.any()
