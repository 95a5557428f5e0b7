# SPDX-License-Identifier: MIT
"""Programs with scales by blocks, as one writes them for nvmath-python: MXFP8 and NVFP4, with scales in tiles."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.compat import nvmath

advanced = nvmath.linalg.advanced
helpers = advanced.helpers.matmul
MXFP8, NVFP4 = helpers.BlockScalingFormat.MXFP8, helpers.BlockScalingFormat.NVFP4
FLOAT32 = {"block_scaling": True, "result_type": nvmath.CudaDataType.CUDA_R_32F}


def offset_of(line, block, blocks):
    """Return the place of a block's scale as the layout is drawn: tiles of 128 lines by 4 blocks, lines in fours."""
    tile, row, column = (line // 128) * (blocks // 4) + block // 4, line % 128, block % 4
    return tile * 512 + (row % 32) * 16 + (row // 32) * 4 + column


@pytest.mark.parametrize(("form", "block"), [(MXFP8, 32), (NVFP4, 16)])
def test_offsets_and_tiles(form, block):
    lines, k = 256, block * 8
    for axis, shape in ((-1, (lines, k)), (-2, (k, lines))):
        matrix = np.arange(lines * 8, dtype=np.uint8).reshape(lines, 8)
        given = matrix if axis == -1 else np.ascontiguousarray(matrix.T)
        tiled = helpers.to_block_scale(given, shape, form, axis=axis)
        for line, at in ((0, 0), (5, 5), (31, 3), (32, 4), (200, 7), (255, 0)):
            index = (line, at) if axis == -1 else (at, line)
            place = helpers.get_block_scale_offset(index, shape, form, axis=axis)
            assert place == offset_of(line, at, 8)
            assert tiled[place] == matrix[line, at]
    assert helpers.get_block_scale_offset((5, 5), (128, 128), NVFP4, axis=-1) == 593
    assert helpers.get_block_scale_offset((1, 5, 2), (3, 128, 128), NVFP4, axis=-1) == 128 * 8 + 82


def mxfp8(rng, m, n, k, batch=()):
    a, scale_a = rocpy.quantize_mx(rng.standard_normal((*batch, m, k)))
    b, scale_b = rocpy.quantize_mx(rng.standard_normal((*batch, k, n)), axis=-2)
    tiles = {
        "a": helpers.to_block_scale(scale_a.view(np.uint8), a.shape, MXFP8, axis=-1),
        "b": helpers.to_block_scale(scale_b.view(np.uint8), b.shape, MXFP8, axis=-2),
    }
    wanted = rocpy.dequantize_mx(a, scale_a, "float64") @ rocpy.dequantize_mx(b, scale_b, "float64", axis=-2)
    return a, np.ascontiguousarray(b.swapaxes(-1, -2)).swapaxes(-1, -2), tiles, wanted


@pytest.mark.parametrize("batch", [(), (2,)])
def test_mxfp8(batch, rng):
    a, b, scales, wanted = mxfp8(rng, 128, 256, 384, batch)
    d = advanced.matmul(a, b, quantization_scales=scales, options=FLOAT32)
    np.testing.assert_allclose(d, wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(
        helpers.apply_mxfp8_scale(a, scales["a"]) @ np.zeros((*batch, 384, 1), np.float32),
        np.zeros((*batch, 128, 1), np.float32),
    )


def test_mxfp8_in_columns_with_a_bias_and_other_scales(rng):
    a, b, scales, wanted = mxfp8(rng, 128, 128, 128)
    bias = rng.standard_normal(128, dtype=np.float32)
    with advanced.Matmul(a, b, quantization_scales=scales, options=FLOAT32) as mm:
        mm.plan(epilog=advanced.MatmulEpilog.RELU_BIAS, epilog_inputs={"bias": bias})
        d = mm.execute()
        assert d.strides == (4, 4 * 128)
        np.testing.assert_allclose(d, np.maximum(wanted + bias[:, None], 0), rtol=1e-4, atol=1e-4)
        scales["a"] += 1  # in place: the next execution sees it
        np.testing.assert_allclose(mm.execute(), np.maximum(2 * wanted + bias[:, None], 0), rtol=1e-4, atol=1e-4)
        mm.reset_operands(quantization_scales={"a": helpers.create_mxfp8_scale(a, 0)})
        ones = a.astype(np.float64) @ (
            b.astype(np.float64) * helpers.expand_block_scale(scales["b"], b, MXFP8, output_dtype=np.float64)
        )
        np.testing.assert_allclose(mm.execute(), np.maximum(ones + bias[:, None], 0), rtol=1e-4, atol=1e-4)


def test_inverse_scales():
    scales = np.array([0, 1, 127, 254, 255], np.uint8)
    assert helpers.invert_mxfp8_scale(scales).tolist() == [254, 253, 127, 0, 255]


@pytest.mark.torch
@pytest.mark.parametrize("result", ["float32", "bfloat16", "float16"])
def test_nvfp4(result, rng, torch):
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no float4")
    m, n, k = 128, 256, 192
    a, _ = rocpy.quantize_mx(torch.from_numpy(rng.uniform(-4, 4, (m, k))), "float4_e2m1fn")
    right, _ = rocpy.quantize_mx(torch.from_numpy(rng.uniform(-4, 4, (n, k))), "float4_e2m1fn")
    b = right.mT
    factors = [
        torch.from_numpy(rng.uniform(0.5, 2, (lines, k // 16)).astype(np.float32)).to(torch.float8_e4m3fn)
        for lines in (m, n)
    ]
    scales = {
        "a": helpers.to_block_scale(factors[0], (m, k), NVFP4, axis=-1),
        "b": helpers.to_block_scale(
            factors[1].view(torch.uint8).mT.contiguous().view(torch.float8_e4m3fn), (k, n), NVFP4, axis=-2
        ),
    }
    kind = {"float32": "CUDA_R_32F", "bfloat16": "CUDA_R_16BF", "float16": "CUDA_R_16F"}[result]
    options = {"block_scaling": True, "result_type": nvmath.CudaDataType[kind]}
    d = advanced.matmul(a, b, quantization_scales=scales, options=options)
    assert d.dtype == getattr(torch, result)
    ones = [torch.full((lines, k // 32), 127, dtype=torch.uint8) for lines in (m, n)]
    wide = [
        rocpy.dequantize_mx(x, one).double() * factor.double().repeat_interleave(16, -1)
        for x, one, factor in zip((a, right), ones, factors, strict=True)
    ]
    step = {"float32": 1e-5, "bfloat16": 2**-8, "float16": 2**-11}[result]
    torch.testing.assert_close(d.double(), wide[0] @ wide[1].mT, rtol=step, atol=step * 10)


# ---- results of 8 and 4 bits, quantized by blocks ----


@pytest.mark.parametrize("order", ["row", "column"])
def test_26_mxfp8_results_come_with_their_scales(order, rng):
    a, b, scales, wanted = mxfp8(rng, 128, 256, 384)
    a = a if order == "row" else np.asfortranarray(a)
    d, aux = advanced.matmul(a, b, quantization_scales=scales, options={"block_scaling": True})
    assert d.dtype == a.dtype
    assert d.flags.c_contiguous == (order == "row")
    assert aux["d_out_scale"].shape == (128 * 256 // 32,)
    seen = helpers.apply_mxfp8_scale(d, aux["d_out_scale"])
    lines = wanted if order == "row" else wanted.T
    largest = np.abs(lines.reshape(-1, 32)).max(1).repeat(32).reshape(lines.shape)
    # A step of e4m3 in the block's uppermost octave, and the excess over 448 that its scale leaves.
    assert (np.abs(seen - wanted) <= (largest if order == "row" else largest.T) * 0.13).all()


def test_27_mxfp8_results_are_chained(rng):
    powers = np.exp2(np.arange(256) % 5 - 2)
    a, b = np.eye(256).astype(ml_dtypes.float8_e4m3fn), np.diag(powers).astype(ml_dtypes.float8_e4m3fn).T
    scales = {"a": helpers.create_mxfp8_scale(a, 0), "b": helpers.create_mxfp8_scale(b, 0)}
    with advanced.Matmul(a, b, quantization_scales=scales, options={"block_scaling": True}) as mm:
        mm.plan()
        for times in range(1, 5):
            d, aux = mm.execute()
            mm.reset_operands(a=d, quantization_scales={"a": aux["d_out_scale"]})
            np.testing.assert_array_equal(helpers.apply_mxfp8_scale(d, aux["d_out_scale"]), np.diag(powers**times))


@pytest.mark.torch
def test_35_nvfp4_results_come_with_their_scales(rng, torch):
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no float4")
    x, y = (torch.from_numpy(rng.uniform(-4, 4, shape).astype(np.float32)) for shape in ((128, 192), (192, 256)))
    a, b = helpers.quantize_to_fp4(x, axis=-1), helpers.quantize_to_fp4(y, axis=-2)
    ones = [torch.ones(lines * 12).to(torch.float8_e4m3fn) for lines in (128, 256)]
    d, aux = advanced.matmul(
        a, b, quantization_scales=dict(zip("ab", ones, strict=True)), options={"block_scaling": True}
    )
    assert d.dtype == a.dtype
    assert tuple(d.shape) == (128, 128)
    seen = (
        helpers.unpack_fp4(d, -1) * helpers.expand_block_scale(aux["d_out_scale"], (128, 256), NVFP4, axis=-1).float()
    )
    wanted = helpers.unpack_fp4(a, -1).double() @ helpers.unpack_fp4(b, -2).double()
    largest = wanted.abs().reshape(128, 16, 16).amax(-1).repeat_interleave(16, -1)
    assert bool(((seen - wanted).abs() <= largest / 6 * 1.1).all())


def test_nvfp4_results_of_numpy_and_what_is_not_finite(rng):
    a = np.full((128, 64), 6, ml_dtypes.float4_e2m1fn)
    b = np.asfortranarray(np.zeros((64, 128), ml_dtypes.float4_e2m1fn))
    b[:, 16:32] = 6
    ones = np.ones(128 * 4, ml_dtypes.float8_e4m3fn)
    factors = ones.copy()
    factors.view(np.uint8)[helpers.get_block_scale_offset((0, 40), (64, 128), NVFP4, axis=-2)] = 0x7F
    d, aux = advanced.matmul(a, b, quantization_scales={"a": ones, "b": factors}, options={"block_scaling": True})
    assert d.dtype == a.dtype
    seen = d.astype(np.float32) * helpers.expand_block_scale(aux["d_out_scale"], d, NVFP4)
    np.testing.assert_array_equal(seen[:, :16], 0)
    np.testing.assert_allclose(seen[:, 16:32], 36 * 64, rtol=1 / 8)
    assert np.isnan(seen[:, 32:48]).all()
    np.testing.assert_array_equal(seen[:, 48:], 0)


# ---- numbers of 4 bits ----

MIDPOINTS = [(0.25, 0.0), (0.75, 1.0), (1.25, 1.0), (1.75, 2.0), (2.5, 2.0), (3.5, 4.0), (5.0, 4.0)]


@pytest.mark.parametrize("package", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def test_33_fp4_encode_and_decode(package):
    if package == "torch":
        torch = pytest.importorskip("torch")
        made = lambda values: torch.tensor(values, dtype=torch.float32)  # noqa: E731
        shown = lambda array: array.numpy()  # noqa: E731
    else:
        made, shown = (lambda values: np.array(values, np.float32)), np.asarray
    grid = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    for axis in (-1, -2):
        x = made([[*grid, *(-value for value in grid)], [*grid[::-1], *grid]])
        packed = helpers.quantize_to_fp4(x, axis=axis)
        again = helpers.unpack_fp4(packed, axis=axis)
        np.testing.assert_array_equal(shown(again), shown(x))
        if package == "torch":
            assert tuple(packed.shape) == ((2, 8) if axis == -1 else (1, 16))
            assert packed.stride(axis) == 1
    for value, nearest in MIDPOINTS:
        both = helpers.unpack_fp4(helpers.quantize_to_fp4(made([value, -value]), axis=-1), axis=-1)
        np.testing.assert_array_equal(shown(both), [nearest, -nearest])
    odd = helpers.unpack_fp4(helpers.quantize_to_fp4(made([np.inf, -np.inf, np.nan, 7.0]), axis=-1), axis=-1)
    np.testing.assert_array_equal(shown(odd), [6, -6, 0, 6])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: helpers.quantize_to_fp4(np.zeros(4), axis=-1), "float32"),
        (lambda: helpers.quantize_to_fp4(np.zeros(4, np.float32), axis=-2), "axis"),
        (lambda: helpers.quantize_to_fp4(np.zeros((4, 4), np.float32), axis=0), "axis"),
        (lambda: helpers.unpack_fp4(np.zeros(4, np.float32), axis=-1), "float4_e2m1fn"),
        (lambda: helpers.expand_block_scale(np.zeros(511, np.uint8), (128, 128), MXFP8, axis=-1), "scales_1d"),
        (lambda: helpers.expand_block_scale(np.zeros(512), (128, 128), MXFP8, axis=-1), "scales_1d"),
        (
            lambda: helpers.expand_block_scale(
                np.zeros(512, np.uint8), (128, 128), MXFP8, axis=-1, output_dtype="int8"
            ),
            "output_dtype",
        ),
    ],
)
def test_what_is_no_fp4(call, match):
    with pytest.raises(TypeError if match == "output_dtype" else ValueError, match=match) as caught:
        call()
    assert isinstance(caught.value, rocpy.RocpyError)


@pytest.mark.parametrize("package", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def test_scales_are_expanded_in_their_own_type_unless_another_is_asked_for(package, request):
    """As nvmath does: float8_e4m3fn of NVFP4 and exponents of MXFP8, one for each element."""
    eight = np.asarray([0.5, 1, 2, 448], np.float32).astype(ml_dtypes.float8_e4m3fn)
    cases = ((NVFP4, np.tile(eight, 256), "float8_e4m3fn"), (MXFP8, np.arange(512).astype(np.uint8), "uint8"))
    for form, codes, own in cases:
        shape, scales = (128, 64 if form == "NVFP4" else 128), codes[:512]
        if package == "torch":
            torch = request.getfixturevalue("torch")
            scales = torch.from_numpy(scales.view(np.uint8).copy())
            scales = scales.view(torch.float8_e4m3fn) if form == "NVFP4" else scales
        matrix = helpers.expand_block_scale(scales, shape, form.value, axis=-1)
        assert str(matrix.dtype).endswith(own)
        assert tuple(matrix.shape) == shape
        wide = np.asarray(matrix.float() if package == "torch" else matrix.astype(np.float32))
        for line, column in ((0, 0), (5, 40), (127, 63)):
            place = helpers.get_block_scale_offset((line, column // form.block), shape, form.value, axis=-1)
            assert wide[line, column] == codes[place].astype(np.float32)
    assert (
        helpers.expand_block_scale(cases[0][1][:512], (128, 64), "NVFP4", axis=-1, output_dtype="float16").dtype == "f2"
    )


def test_the_place_of_an_elements_scale():
    rows, columns = np.zeros((128, 256), ml_dtypes.float8_e4m3fn), np.zeros((256, 128), ml_dtypes.float8_e4m3fn, "F")
    for line, k in ((0, 0), (5, 31), (5, 32), (100, 255)):
        assert helpers.get_mxfp8_scale_offset(rows, (line, k)) == offset_of(line, k // 32, 8)
        assert helpers.get_mxfp8_scale_offset(columns, (k, line)) == offset_of(line, k // 32, 8)
    with pytest.raises(ValueError, match="index"):
        helpers.get_mxfp8_scale_offset(rows, (1,))


def test_the_format_is_a_text():
    assert isinstance(NVFP4, str)
    assert (NVFP4, MXFP8) == ("NVFP4", "MXFP8")
    assert helpers.get_block_scale_offset((5, 5), (128, 128), "NVFP4", axis=-1) == 593
    for wrong in ("nvfp4", "FP4", 3, None):
        with pytest.raises(ValueError, match="block_scaling_format"):
            helpers.get_block_scale_offset((5, 5), (128, 128), wrong, axis=-1)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda one: helpers.to_block_scale(one.astype(np.float32), (128, 128), "MXFP8", axis=-1), "scale_tensor is"),
        (lambda one: helpers.to_block_scale(one, np.ones((128, 128), ml_dtypes.float8_e5m2), "NVFP4"), "float8_e5m2"),
        (lambda one: helpers.to_block_scale(one, (128, 128), "MXFP8", axis=-1, out=one), "out: got shape"),
        (
            lambda one: helpers.to_block_scale(one, (128, 128), "MXFP8", axis=-1, out=np.empty(512, np.int8)),
            "out: got shape",
        ),
    ],
)
def test_scales_of_another_format_are_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call(np.ones((128, 4), np.uint8))


CONTRADICTIONS = {
    "axis": (lambda x: {"operand_or_shape": x, "axis": -2}, MXFP8, "axis: got -2.*rows lie along -1"),
    "axis from the front": (lambda x: {"operand_or_shape": x, "axis": 0}, MXFP8, "axis: got -2.*rows lie along -1"),
    "axis of columns": (lambda x: {"operand_or_shape": x.T, "axis": -1}, MXFP8, "axis: got -1.*columns lie along -2"),
    "format": (lambda x: {"operand_or_shape": x}, NVFP4, "block_scaling_format: NVFP4, .*float8_e4m3fn"),
    "extent": (lambda x: {"operand_or_shape": x[:0]}, MXFP8, "operand_or_shape: got shape .0, 128"),
    "extent of a shape": (lambda x: {"operand_or_shape": (128, 0), "axis": -1}, MXFP8, "operand_or_shape: got shape"),
    "one axis": (lambda x: {"operand_or_shape": x[0]}, MXFP8, "operand_or_shape: got shape .128,"),
    "no array": (lambda x: {"operand_or_shape": None}, MXFP8, "operand_or_shape: got builtins.NoneType"),
}


@pytest.mark.torch
@pytest.mark.parametrize("package", ["numpy", "torch"])
@pytest.mark.parametrize("case", CONTRADICTIONS)
@pytest.mark.parametrize("name", ["get_block_scale_offset", "to_block_scale", "expand_block_scale"])
def test_what_contradicts_the_operand_is_refused(name, case, package, torch):
    x = np.zeros((128, 128), ml_dtypes.float8_e4m3fn)
    scales = np.ones((128, 4), np.uint8)
    if package == "torch":
        x, scales = torch.from_numpy(x.view(np.uint8)).view(torch.float8_e4m3fn), torch.from_numpy(scales)
    first = {"get_block_scale_offset": (1, 1), "to_block_scale": scales, "expand_block_scale": scales.reshape(-1)}
    make, form, match = CONTRADICTIONS[case]
    with pytest.raises((ValueError, TypeError), match=match) as caught:
        getattr(helpers, name)(first[name], block_scaling_format=form, **make(x))
    assert isinstance(caught.value, rocpy.RocpyError)


@pytest.mark.torch
def test_what_a_helper_cannot_apply_is_refused(torch):
    x = torch.zeros(128, 128).to(torch.float8_e4m3fn)
    scales = helpers.create_mxfp8_scale(x, 0)
    for call in (
        helpers.apply_mxfp8_scale,
        lambda *args: helpers.expand_block_scale(args[1], x, MXFP8, output_dtype=args[2]),
    ):
        with pytest.raises(TypeError, match="output_dtype: got 'float32', expected 'smallest' or a torch.dtype"):
            call(x, scales, "float32")
    with pytest.raises(ValueError, match="operand_or_shape: got shape .128,"):
        helpers.apply_mxfp8_scale(x[0], scales)
    assert helpers.get_block_scale_offset((5, 5), (128, 256), "MXFP8", axis=1) == offset_of(5, 5, 8)


def test_the_smallest_type_that_holds_the_numbers():
    x = np.full((128, 128), 1, ml_dtypes.float8_e4m3fn)
    for exponent, dtype in ((0, np.float16), (20, np.float32), (-126, np.float32), (127, np.float32)):
        assert helpers.apply_mxfp8_scale(x, helpers.create_mxfp8_scale(x, exponent)).dtype == dtype
    x[0, 0] = 448
    assert helpers.apply_mxfp8_scale(x, helpers.create_mxfp8_scale(x, 127)).dtype == np.float64
    with pytest.raises(ValueError, match="float16 does not hold"):
        helpers.apply_mxfp8_scale(x, helpers.create_mxfp8_scale(x, 20), output_dtype=np.float16)
    assert (
        helpers.expand_block_scale(helpers.create_mxfp8_scale(x, 1), x, MXFP8, output_dtype="float64").dtype
        == "float64"
    )


@pytest.mark.parametrize(
    ("value", "exponent", "dtype"),
    [
        (1.0, -14, "float16"),
        (1.0, -15, "float32"),  # a subnormal number of float16
        (65504.0, 0, "float16"),
        (-65505.0, 0, "float32"),  # which float16 rounds to 65504
        (1.0, -127, "float64"),
        (2.0**127, 1, "float64"),
        (np.nan, 0, "float64"),
        (np.inf, 0, "float64"),
        (0.0, 0, "float16"),
    ],
)
@pytest.mark.parametrize("package", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def test_the_smallest_type_has_the_numbers_in_its_normal_range(package, value, exponent, dtype, request):
    x = np.zeros((128, 128), np.float32)
    x[3, 4] = value
    module = np if package == "numpy" else request.getfixturevalue("torch")
    x = module.asarray(x)
    scales = helpers.create_mxfp8_scale(x, exponent)
    result = helpers.apply_mxfp8_scale(x, scales)
    assert str(result.dtype).removeprefix("torch.") == dtype
    np.testing.assert_array_equal(float(result[3, 4]), value * 2.0**exponent)
    for narrow in ("float16", "float32")[: ("float16", "float32", "float64").index(dtype)]:
        with pytest.raises(ValueError, match=f"{narrow} does not hold these numbers; {dtype} does"):
            helpers.apply_mxfp8_scale(x, scales, output_dtype=getattr(module, narrow))


def test_scales_of_nvfp4_are_numbers_of_every_type():
    codes = np.resize(np.arange(256, dtype=np.uint8), 128 * 4)
    for dtype in ("float16", "float32", "float64"):
        found = helpers.expand_block_scale(codes, (128, 64), NVFP4, axis=-1, output_dtype=dtype)
        assert found.dtype == dtype
        assert np.isnan(found).sum() == 2 * 2 * 16


def refusals():
    a = np.ones((128, 128), ml_dtypes.float8_e4m3fn)
    scale = helpers.create_mxfp8_scale(a, 0)
    both = {"a": scale, "b": scale}
    return [
        (a, a.T, both, {"block_scaling": True, "result_type": "float8_e4m3fnuz"}, ValueError, "result_type"),
        (a, a.T, None, FLOAT32, ValueError, "needs a"),
        (a, a.T, {"a": 1.0, "b": scale}, FLOAT32, ValueError, "quantization_scales.a: a number"),
        (a, a.T, {"a": scale[:-1], "b": scale}, FLOAT32, ValueError, "quantization_scales.a: shape"),
        (a, a.T, {**both, "d": 1.0}, FLOAT32, ValueError, "takes no d"),
        (a[:64], a.T, both, FLOAT32, ValueError, "multiples of 128"),
        (a.astype(np.float32), a.T.astype(np.float32), both, FLOAT32, ValueError, "block_scaling: a is float32"),
        (a[None], a.T, both, FLOAT32, ValueError, "same batch axes"),
        (a.astype(ml_dtypes.float4_e2m1fn), a.T.astype(ml_dtypes.float4_e2m1fn), both, {}, ValueError, "block_scaling"),
    ]


@pytest.mark.parametrize("case", range(9))
def test_what_is_refused(case):
    a, b, scales, options, error, match = refusals()[case]
    with pytest.raises(error, match=match) as caught:
        advanced.matmul(a, b, quantization_scales=scales, options=options)
    assert isinstance(caught.value, rocpy.RocpyError)


@pytest.mark.parametrize("largest", [480.0, 448.0, 449.0, 1.0, 3.5, 2.0**-130, 2.0**120, 7.0])
def test_scales_of_results_are_rounded_up(largest):
    """cuBLAS divides by the format's largest number and rounds up to a power of two, so that nothing saturates."""
    from rocpy.compat.nvmath._block_results import quantized

    lines = np.zeros((128, 128), np.float32)
    lines[0, 5] = largest
    values, tiles = quantized(lines, "float8_e4m3fn", False)
    scale = np.exp2(np.ceil(np.log2(np.float64(np.float32(largest) / np.float32(448.0)))))
    assert float(np.exp2(float(tiles[0]) - 127.0)) == max(scale, 2.0**-127)
    decoded = float(values[0, 5]) * scale
    assert abs(decoded - largest) <= largest * 2.0**-4 if scale >= 2.0**-127 else decoded <= largest
    assert float(values.astype(np.float32).max()) <= 448.0
