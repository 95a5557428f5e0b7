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
        ones = a.astype(np.float64) @ (b.astype(np.float64) * helpers.expand_block_scale(scales["b"], b, MXFP8))
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


def refusals():
    a = np.ones((128, 128), ml_dtypes.float8_e4m3fn)
    scale = helpers.create_mxfp8_scale(a, 0)
    both = {"a": scale, "b": scale}
    return [
        (a, a.T, both, {"block_scaling": True}, rocpy.UnsupportedError, "result_type"),
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
