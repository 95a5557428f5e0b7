# SPDX-License-Identifier: MIT
"""MX blocks and scaled types: each format's rounding against ml_dtypes, the OCP rule of scales, torch against numpy."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.blaslt.arrays.array_libraries import library_of
from rocpy.blaslt.arrays.quantization import _FORMATS, _round
from rocpy.testing.runner import to_torch

MX = ("float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
EIGHT_BITS = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")

NUMPY = library_of(np.zeros(0), "x")


def kind(name):
    return np.dtype(getattr(ml_dtypes, name))


def codes(name):
    """Every finite number of a narrow type, in float64."""
    bits = ml_dtypes.finfo(kind(name)).bits
    numbers = np.arange(1 << bits, dtype=np.uint8).view(kind(name)).astype(np.float64)
    return np.unique(numbers[np.isfinite(numbers)])


# ---- rounding ----


@pytest.mark.parametrize("name", _FORMATS)
def test_formats_are_those_of_ml_dtypes(name):
    info = ml_dtypes.finfo(kind(name))
    row = _FORMATS[name]
    assert row.largest == float(info.max) == codes(name).max()
    assert 2.0**row.emin == float(info.smallest_normal)
    assert row.emax == np.floor(np.log2(row.largest))
    assert 2.0 ** (row.emin - row.fraction) == codes(name)[codes(name) > 0].min()


@pytest.mark.parametrize("name", _FORMATS)
def test_every_float16_rounds_as_ml_dtypes_rounds(name):
    numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    largest = _FORMATS[name].largest
    wanted = np.clip(numbers, -largest, largest).astype(np.float32).astype(kind(name)).astype(np.float64)
    assert np.array_equal(_round(NUMPY, numbers, _FORMATS[name]), wanted)


@pytest.mark.parametrize("name", _FORMATS)
def test_halves_between_neighbours_go_to_even_and_all_else_to_the_nearest(name):
    numbers = codes(name)
    middle = (numbers[:-1] + numbers[1:]) / 2
    found = _round(NUMPY, middle, _FORMATS[name])
    even = (np.abs(numbers).astype(kind(name)).view(np.uint8) & 1) == 0
    assert np.array_equal(found, np.where(even[:-1], numbers[:-1], numbers[1:]))
    assert np.array_equal(_round(NUMPY, np.nextafter(middle, -np.inf), _FORMATS[name]), numbers[:-1])
    assert np.array_equal(_round(NUMPY, np.nextafter(middle, np.inf), _FORMATS[name]), numbers[1:])
    assert np.array_equal(_round(NUMPY, numbers, _FORMATS[name]), numbers)


# ---- MX ----


def by_the_rule(x, name):
    """One block by the text of the rule, in Python's own numbers."""
    row = _FORMATS[name]
    largest = float(np.abs(x).max())  # NaN if there is one
    if not np.isfinite(largest):
        return np.zeros(len(x)), np.nan
    shared = 0 if largest == 0 else int(np.clip(np.frexp(largest)[1] - 1 - row.emax, -127, 127))
    scaled = np.clip([float(value) * 2.0**-shared for value in x], -row.largest, row.largest)
    return scaled.astype(np.float32).astype(kind(name)).astype(np.float64), 2.0**shared


@pytest.mark.parametrize("name", MX)
@pytest.mark.parametrize("exponent", [-160, -130, -20, 0, 20, 120, 127])
def test_blocks_follow_the_rule(name, exponent, rng):
    x = (rng.standard_normal((6, 96)) * 2.0**exponent).astype(np.float64)
    x[0, :32] = 0
    x[1, 40] = np.nan
    x[2, 70] = -np.inf
    x[3, 5] *= 1000
    values, scales = rocpy.quantize_mx(x, name)
    assert values.dtype == kind(name)
    assert scales.dtype == kind("float8_e8m0fnu")
    assert values.shape == (6, 96)
    assert scales.shape == (6, 3)
    for row in range(6):
        for block in range(3):
            part = np.s_[row, 32 * block : 32 * block + 32]
            wanted, scale = by_the_rule(x[part], name)
            np.testing.assert_array_equal(scales[row, block].astype(np.float64), scale)
            np.testing.assert_array_equal(values[part].astype(np.float64), wanted)
    back = rocpy.dequantize_mx(values, scales, "float64")
    assert np.isnan(back[1, 32:64]).all()
    assert np.isnan(back[2, 64:]).all()
    assert np.isfinite(back[0]).all()


@pytest.mark.parametrize("name", MX)
def test_a_number_of_the_format_survives(name):
    numbers = codes(name)
    x = np.zeros((len(numbers), 32), np.float32)
    x[:, 0], x[:, 1] = numbers, _FORMATS[name].largest  # the second fixes the scale at 1
    values, scales = rocpy.quantize_mx(x, name)
    assert (scales.astype(np.float32) == 1).all()
    assert np.array_equal(values[:, 0].astype(np.float64), numbers)
    assert np.array_equal(rocpy.dequantize_mx(values, scales), x)


@pytest.mark.parametrize("name", MX)
def test_the_error_is_within_half_a_step(name, rng):
    x = rng.standard_normal((64, 64))
    back = rocpy.dequantize_mx(*rocpy.quantize_mx(x, name), "float64")
    largest = np.abs(x.reshape(64, 2, 32)).max(-1).repeat(32, -1).reshape(64, 64)
    row = _FORMATS[name]
    # The largest number of the format may lie under the block's: saturation costs up to a binade's rest.
    saturated = 2.0 ** (np.floor(np.log2(largest)) + 1) - row.largest * 2.0 ** (np.floor(np.log2(largest)) - row.emax)
    step = np.maximum(np.abs(x) * 2.0**-row.fraction, largest * 2.0 ** (row.emin - row.emax - row.fraction))
    assert (np.abs(back - x) <= np.maximum(step / 2, saturated)).all()


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("extent", [1, 31, 32, 33, 64, 0])
def test_blocks_along_any_axis_and_of_any_rest(axis, extent, rng):
    shape = [3, 4, 5]
    shape[axis] = extent
    x = rng.standard_normal(shape, dtype=np.float32)
    values, scales = rocpy.quantize_mx(x, "float6_e2m3fn", axis=axis)
    moved, moved_scales = rocpy.quantize_mx(np.moveaxis(x, axis, -1), "float6_e2m3fn")
    assert np.array_equal(values, np.moveaxis(moved, -1, axis))
    assert np.array_equal(scales.view(np.uint8), np.moveaxis(moved_scales, -1, axis).view(np.uint8))
    back = rocpy.dequantize_mx(values, scales, axis=axis)
    assert back.shape == x.shape
    assert back.dtype == np.float32
    assert (np.abs(back - x) <= 0.13 * np.abs(x) + 0.3).all()


def test_scales_may_be_bytes_and_all_of_them_read_right():
    scales = np.arange(256, dtype=np.uint8)[:, None]
    values = np.ones((256, 32), kind("float8_e4m3fn"))
    for given in (scales, scales.view(kind("float8_e8m0fnu"))):
        back = rocpy.dequantize_mx(values, given, "float64")
        assert np.array_equal(back[:255, 0], 2.0 ** (np.arange(255.0) - 127))
        assert np.isnan(back[255]).all()


@pytest.mark.parametrize("name", MX)
def test_torch_gives_the_bits_of_numpy(name, torch, rng):
    x = rng.standard_normal((3, 70), dtype=np.float32) * 2.0 ** rng.integers(-140, 120, (3, 70)).astype(np.float32)
    x[1, 3] = np.inf
    x[2, 2] = -0.0
    values, scales = rocpy.quantize_mx(x, name)
    if "float6" in name:
        with pytest.raises(rocpy.UnsupportedError, match=name):
            rocpy.quantize_mx(to_torch(x), name)
        return
    found, found_scales = rocpy.quantize_mx(to_torch(x), name)
    assert found_scales.dtype == torch.float8_e8m0fnu
    assert np.array_equal(found_scales.view(torch.uint8).numpy(), scales.view(np.uint8))
    raw = found.view(torch.uint8).numpy()
    if name == "float4_e2m1fn":
        assert found.dtype == torch.float4_e2m1fn_x2
        assert found.shape == (3, 35)
        raw = np.stack([raw & 15, raw >> 4], -1).reshape(3, 70)
    assert np.array_equal(raw, values.view(np.uint8))
    back = rocpy.dequantize_mx(found, found_scales)
    np.testing.assert_array_equal(back.numpy(), rocpy.dequantize_mx(values, scales))


def test_torch_cannot_pack_an_odd_extent(torch):
    with pytest.raises(rocpy.UnsupportedError, match="35 elements"):
        rocpy.quantize_mx(torch.ones(2, 35), "float4_e2m1fn")


# ---- scaled types ----


@pytest.mark.parametrize("name", [*EIGHT_BITS, "int8"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_scaled_types(name, axis, rng):
    x = rng.standard_normal((40, 50)) * 10.0 ** rng.integers(-3, 4, (40, 1))
    values, scales = rocpy.quantize(x, name, axis)
    top = 127.0 if name == "int8" else _FORMATS[name].largest
    largest = np.abs(x).max() if axis is None else np.abs(x).max(axis, keepdims=True)
    assert scales.dtype == np.float32
    assert np.array_equal(scales, np.float32(largest / top))
    wanted = x / scales.astype(np.float64)
    if name == "int8":
        assert values.dtype == np.int8
        assert np.array_equal(values, np.clip(np.rint(wanted), -127, 127))
    else:
        assert values.dtype == kind(name)
        assert np.array_equal(values.astype(np.float64), _round(NUMPY, wanted, _FORMATS[name]))
    back = rocpy.dequantize(values, scales, "float64")
    assert np.array_equal(back, values.astype(np.float64) * scales)


@pytest.mark.parametrize("name", [*EIGHT_BITS, "int8"])
def test_zeros_and_what_is_not_finite(name):
    x = np.zeros((5, 4))
    x[1, 2], x[2, 2], x[3], x[4, 0] = np.nan, np.inf, 1e-300, -1e-300
    values, scales = rocpy.quantize(x, name, axis=-1)
    assert not values.astype(np.float64)[:4].any()
    assert np.array_equal(np.isnan(scales[:, 0]), [False, True, True, False, False])
    assert scales[0] == 1
    back = rocpy.dequantize(values, scales)
    assert np.isnan(back[1:3]).all()
    assert not back[[0, 3, 4]].any()
    assert rocpy.quantize(np.full((2, 2), 1e300), name)[0].astype(np.float64).max() == (
        127 if name == "int8" else _FORMATS[name].largest
    )
    for shape in ((0, 3), (3, 0)):
        values, scales = rocpy.quantize(np.zeros(shape), name, axis=0)
        assert values.shape == shape
        assert (scales == 1).all()


@pytest.mark.parametrize("name", [*EIGHT_BITS, "int8"])
def test_scaled_types_of_torch(name, torch, rng):
    x = rng.standard_normal((6, 9), dtype=np.float32)
    x[2] = 0
    for axis in (None, 0, 1):
        values, scales = rocpy.quantize(x, name, axis)
        found, found_scales = rocpy.quantize(to_torch(x), name, axis)
        assert np.array_equal(found.view(torch.uint8).numpy(), values.view(np.uint8))
        assert np.array_equal(found_scales.numpy(), scales)
        for dtype in ("float32", "bfloat16"):
            back = rocpy.dequantize(found, found_scales, dtype)
            assert back.dtype == getattr(torch, dtype)
            assert np.array_equal(back.double().numpy(), rocpy.dequantize(values, scales, dtype).astype(np.float64))


# ---- refusals ----


def test_what_cannot_be_quantized_is_refused(torch):
    x = np.ones((4, 32), np.float32)
    values, scales = rocpy.quantize_mx(x)
    cases = (
        (rocpy.InvalidOperandError, "x: got builtins.list", lambda: rocpy.quantize_mx([1.0])),
        (rocpy.InvalidProblemError, "dtype: got int8", lambda: rocpy.quantize_mx(x, "int8")),
        (rocpy.InvalidProblemError, "dtype: got float6", lambda: rocpy.quantize(x, "float6_e2m3fn")),
        (rocpy.InvalidOperandError, "float7", lambda: rocpy.quantize(x, "float7")),
        (rocpy.InvalidProblemError, "x: got int32", lambda: rocpy.quantize(x.astype(np.int32))),
        (rocpy.InvalidProblemError, "x: got <U1", lambda: rocpy.quantize(np.array(["a"]))),
        (rocpy.InvalidProblemError, "axis: got 2", lambda: rocpy.quantize_mx(x, axis=2)),
        (rocpy.InvalidProblemError, "axis: got True", lambda: rocpy.quantize_mx(x, axis=True)),
        (rocpy.InvalidProblemError, "axis: got -1", lambda: rocpy.quantize_mx(np.array(1.0))),
        (rocpy.InvalidProblemError, r"scales: shape \(4, 1\)", lambda: rocpy.dequantize_mx(values, scales, axis=0)),
        (rocpy.InvalidProblemError, "scales: got float32", lambda: rocpy.dequantize_mx(values, x)),
        (rocpy.InvalidOperandError, "different", lambda: rocpy.dequantize_mx(values, torch.ones(4, 1))),
        (rocpy.InvalidProblemError, r"scales: shape \(3,\)", lambda: rocpy.dequantize(values, np.ones(3, np.float32))),
    )
    for error, message, call in cases:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize("shape", [(0,), (0, 0), (0, 40), (40, 0), (2, 0, 3)])
@pytest.mark.parametrize("axis", [0, -1])
def test_blocks_of_nothing(shape, axis):
    values, scales = rocpy.quantize_mx(np.zeros(shape), "float4_e2m1fn", axis)
    assert values.shape == shape
    assert rocpy.dequantize_mx(values, scales, axis=axis).shape == shape


@pytest.mark.torch
def test_torch_scales_may_be_bytes(rng, torch):
    values, scales = rocpy.quantize_mx(torch.from_numpy(rng.standard_normal((2, 64))))
    torch.testing.assert_close(
        rocpy.dequantize_mx(values, scales.view(torch.uint8)), rocpy.dequantize_mx(values, scales)
    )


# ---- what a conversion would lose ----


@pytest.mark.parametrize("function", [rocpy.quantize, rocpy.quantize_mx])
def test_a_mask_is_not_lost(function):
    masked = np.ma.masked_array(np.ones((2, 32)), mask=np.eye(2, 32))
    with pytest.raises(rocpy.InvalidOperandError, match="^x: a masked array"):
        function(masked)
    values, scales = function(np.ones((2, 32)))
    back = rocpy.dequantize if function is rocpy.quantize else rocpy.dequantize_mx
    with pytest.raises(rocpy.InvalidOperandError, match="^scales: a masked array"):
        back(values, np.ma.masked_array(scales))
    with pytest.raises(rocpy.InvalidOperandError, match="^values: a masked array"):
        back(np.ma.masked_array(values), scales)


@pytest.mark.parametrize("function", [rocpy.quantize, rocpy.quantize_mx])
@pytest.mark.parametrize("axis", [-1, -2])
def test_a_matrix_of_numpy_has_its_plain_values(function, axis):
    x = np.arange(64.0).reshape(2, 32)
    for seen, wanted in zip(function(x.view(np.matrix), axis=axis), function(x, axis=axis), strict=True):
        assert type(seen) is np.ndarray
        assert seen.tobytes() == wanted.tobytes()


@pytest.mark.torch
@pytest.mark.parametrize("function", [rocpy.quantize, rocpy.quantize_mx])
def test_a_tensor_that_has_no_plain_values(function):
    import torch

    with pytest.raises(rocpy.InvalidOperandError, match="^x: got a tensor of layout"):
        function(torch.eye(32).to_sparse())


@pytest.mark.torch
@pytest.mark.parametrize("function", [rocpy.quantize, rocpy.quantize_mx])
def test_a_gradient_is_not_dropped(function):
    import torch

    x = torch.eye(32, requires_grad=True)
    with pytest.raises(rocpy.UnsupportedError, match=r"^x: it requires grad .*\.detach\(\)"):
        function(x)
    wanted = function(x.detach())
    with torch.no_grad():
        assert all(torch.equal(one.float(), other.float()) for one, other in zip(function(x), wanted, strict=True))


@pytest.mark.parametrize("strided", [False, True])
def test_a_product_of_blocks_does_not_lose_a_mask(strided):
    values, scales = rocpy.quantize_mx(np.ones((32, 64 if strided else 32)))
    masked = np.ma.masked_array(values[:, ::2] if strided else values)
    b, scale_b = rocpy.quantize_mx(np.ones((32, 32)), axis=-2)
    scale_a = scales[:, :1]
    for a, other, name in ((masked, b, "a"), (values[:, :32], np.ma.masked_array(b), "b")):
        with pytest.raises(rocpy.InvalidOperandError, match=f"^{name}: a masked array"):
            rocpy.matmul(a, other, scale_a=scale_a, scale_b=scale_b)


# ---- shapes, byte orders and roundings ----


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2fnuz", "int8"])
@pytest.mark.parametrize("value", [3.0, -0.0, 1e-300, np.nan])
def test_arrays_without_axes(dtype, value):
    values, scales = rocpy.quantize(np.array(value), dtype)
    wanted_values, wanted_scales = rocpy.quantize(np.array([value]), dtype)
    restored = rocpy.dequantize(values, scales)
    for seen, wanted in ((values, wanted_values), (scales, wanted_scales)):
        assert type(seen) is np.ndarray
        assert seen.shape == ()
        assert (seen.dtype, seen.tobytes()) == (wanted.dtype, wanted.tobytes())
    assert type(restored) is np.ndarray
    assert restored.shape == ()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("function", [rocpy.quantize, rocpy.quantize_mx])
def test_the_other_byte_order(function, dtype, rng):
    x = rng.standard_normal((3, 40)).astype(dtype)
    for seen, wanted in zip(function(x.astype(f">{dtype}"), axis=-1), function(x, axis=-1), strict=True):
        assert seen.tobytes() == wanted.tobytes()
    values, scales = rocpy.quantize(x, axis=-1)
    np.testing.assert_array_equal(rocpy.dequantize(values, scales.astype(">f4")), rocpy.dequantize(values, scales))


def rounded(x, digits, least_exponent):
    """Return a number rounded to nearest even, by exact arithmetic."""
    if x == 0:
        return x
    step = Fraction(2) ** (max(math.frexp(x)[1], least_exponent) - digits)
    return math.copysign(float(round(Fraction(x) / step) * step), x)


@pytest.mark.parametrize("torch", [False, pytest.param(True, marks=pytest.mark.torch)])
@pytest.mark.parametrize(("dtype", "digits", "least_exponent"), [("bfloat16", 8, -125), ("float16", 11, -13)])
def test_products_with_scales_are_rounded_once(dtype, digits, least_exponent, torch, rng):
    every = np.arange(-128, 128).astype(np.int8)
    scales = (rng.uniform(0.5, 1, (40, 1)) * 2.0 ** rng.integers(-40, 1, (40, 1))).astype(np.float32)
    # Between two numbers of 8 digits, by less than float32 tells.
    values, scale = np.array([11], np.int8), np.full((1, 1), float.fromhex("0x1.73a2e8p-8"), np.float32)
    for numbers, factors in ((every, scales), (values, scale)):
        wide = numbers * factors.astype(np.float64)
        arrays = np.tile(numbers, (len(factors), 1)), factors
        if torch:
            from torch import from_numpy

            found = rocpy.dequantize(*map(from_numpy, arrays), dtype).double().numpy()
        else:
            found = rocpy.dequantize(*arrays, dtype).astype(np.float64)
        np.testing.assert_array_equal(found, np.vectorize(rounded)(wide, digits, least_exponent))


# ---- arrays in the host's memory, piece by piece ----


def drawn(rng, dtype):
    """Numbers of all sizes: over the largest, many are halfway between two numbers of a type."""
    x = (
        rng.integers(-60, 61, (70, 3, 66))
        / rng.choice([1, 3, 8], (70, 3, 1))
        * 2.0 ** rng.integers(-140, 100, (70, 1, 1))
    )
    x[0], x[1, :, 5], x[2, 0, 0], x[3, 1, 2], x[4, 0, :9] = 0, 3e38, np.nan, -np.inf, -0.0
    with np.errstate(all="ignore"):
        return x.astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, ">f4", np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("quantize", "name"), [(rocpy.quantize, x) for x in (*EIGHT_BITS, "int8")] + [(rocpy.quantize_mx, x) for x in MX]
)
def test_pieces_have_the_codes_of_float64(quantize, name, dtype, rng, monkeypatch):
    x = drawn(rng, dtype)
    axes = (0, 1, 2) + ((None,) if quantize is rocpy.quantize else ())
    forms = [x, x.swapaxes(0, 2), x[::2, ::-1, 1:]]
    with np.errstate(all="raise"):
        found = [quantize(one, name, axis) for one in forms for axis in axes]
    monkeypatch.setattr(type(NUMPY), "on_host", staticmethod(lambda x: None))
    with np.errstate(all="ignore"):
        wanted = [quantize(one, name, axis) for one in forms for axis in axes]
    for pair, (values, scales) in zip(found, wanted, strict=True):
        assert [(one.dtype, one.shape) for one in pair] == [(one.dtype, one.shape) for one in (values, scales)]
        np.testing.assert_array_equal(pair[0].view(np.uint8), values.view(np.uint8))
        np.testing.assert_array_equal(pair[1].astype(np.float32), scales.astype(np.float32))


@pytest.mark.parametrize("quantize", [rocpy.quantize, rocpy.quantize_mx])
def test_no_array_of_float64_is_as_large_as_what_is_quantized(quantize, rng):
    x = rng.standard_normal((2048, 512), np.float32)
    quantize(x[:1])
    tracemalloc.start()
    try:
        quantize(x)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < x.nbytes
