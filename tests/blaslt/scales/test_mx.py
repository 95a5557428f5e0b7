# SPDX-License-Identifier: MIT
"""MX formats: operands of eight, six and four bits with one power of two for each 32 consecutive elements along K."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from presented import is_composed

import rocpy
from rocpy.blaslt.arrays.blocks import balance, dequantized, pack, prepare, unpack
from rocpy.blaslt.model.packed import Packed
from rocpy.blaslt.model.scale_arguments import ScaleArguments
from rocpy.testing import evaluate
from rocpy.testing.cases import MX
from rocpy.testing.runner import check_outputs, dtype_of, to_torch

NARROW = ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")


def quantized(rng, name, m, n, k, batch_a=(), batch_b=()):
    a = rocpy.quantize_mx(rng.standard_normal((*batch_a, m, k)), name)
    b = rocpy.quantize_mx(rng.standard_normal((*batch_b, k, n)), name, axis=-2)
    return *a, *b


def check(d, expected, dtype="float32"):
    found = check_outputs(expected, d, dtype_of(dtype))["result"]
    assert found.ok, found.message


@pytest.mark.parametrize("name", MX)
def test_quantized_operands_multiply(name, rng):
    a, scale_a, b, scale_b = quantized(rng, name, 9, 17, 96)
    expected = evaluate(a, b, scale_a=scale_a, scale_b=scale_b)
    for dtype in ("float32", "bfloat16", "float16"):
        check(rocpy.matmul(a, b, scale_a=scale_a, scale_b=scale_b, dtype=dtype), expected, dtype)
    assert rocpy.matmul(a, b, scale_a=scale_a, scale_b=scale_b).dtype == dtype_of("bfloat16")
    bytes_ = scale_a.view(np.uint8), scale_b.view(np.uint8)
    check(rocpy.matmul(a, b, scale_a=bytes_[0], scale_b=bytes_[1], dtype="float32"), expected)
    # The dequantized operands give the same product.
    wide = rocpy.dequantize_mx(a, scale_a, "float64") @ rocpy.dequantize_mx(b, scale_b, "float64", axis=-2)
    np.testing.assert_allclose(expected.result, wide, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", MX)
@pytest.mark.parametrize("other", MX)
def test_types_mix(name, other, rng):
    a, scale_a, _, _ = quantized(rng, name, 5, 6, 64)
    _, _, b, scale_b = quantized(rng, other, 5, 6, 64)
    check(
        rocpy.matmul(a, b, scale_a=scale_a, scale_b=scale_b, dtype="float32"),
        evaluate(a, b, scale_a=scale_a, scale_b=scale_b),
    )


@pytest.mark.parametrize("name", MX)
@pytest.mark.parametrize(("batch_a", "batch_b"), [((3,), (3,)), ((3,), ()), ((), (3,)), ((2, 1), (1, 3))])
def test_batches(name, batch_a, batch_b, rng):
    a, scale_a, b, scale_b = quantized(rng, name, 4, 5, 64, batch_a, batch_b)
    check(
        rocpy.matmul(a, b, scale_a=scale_a, scale_b=scale_b, dtype="float32"),
        evaluate(a, b, scale_a=scale_a, scale_b=scale_b),
    )


@pytest.mark.parametrize("name", MX)
def test_a_plan_computes_what_the_function_does(name, rng):
    a, scale_a, b, scale_b = quantized(rng, name, 9, 17, 64)
    with rocpy.Matmul(a, b, scale_a=scale_a, scale_b=scale_b, dtype="float32") as mm:
        assert mm.problem.a.dtype == name
        assert mm.problem.scale_a == "block32"
        assert mm.problem.a.shape == (9, 64)
        np.testing.assert_array_equal(
            mm.execute(), rocpy.matmul(a, b, scale_a=scale_a, scale_b=scale_b, dtype="float32")
        )
        new_a, new_scale_a, _, _ = quantized(rng, name, 9, 17, 64)
        mm.reset_operands(a=new_a, scale_a=new_scale_a)
        check(mm.execute(), evaluate(new_a, b, scale_a=new_scale_a, scale_b=scale_b))


@pytest.mark.parametrize("name", MX)
def test_vectors(name, rng):
    a, scale_a, b, scale_b = quantized(rng, name, 1, 6, 64)
    d = rocpy.matmul(a[0], b, scale_a=scale_a[0], scale_b=scale_b, dtype="float32")
    assert d.shape == (6,)
    check(d, evaluate(a[0], b, scale_a=scale_a[0], scale_b=scale_b))


def test_layouts(rng):
    # Eight bits lie as they lie: what is not along K is copied once, and refused where copies are.
    a, scale_a, b, scale_b = quantized(rng, "float8_e4m3fn", 9, 17, 64)
    expected = evaluate(a, b, scale_a=scale_a, scale_b=scale_b)
    along = np.ascontiguousarray(b.T).T
    with rocpy.options(copies="error"):
        check(rocpy.matmul(a, along, scale_a=scale_a, scale_b=scale_b, dtype="float32"), expected)
        with pytest.raises(rocpy.UnsupportedError, match="b: shape"):
            rocpy.matmul(a, b, scale_a=scale_a, scale_b=scale_b)
    turned = np.ascontiguousarray(a.T).T
    odd = scale_a[::-1][::-1].T.copy().T
    check(rocpy.matmul(turned, b, scale_a=odd, scale_b=np.asfortranarray(scale_b), dtype="float32"), expected)


@pytest.mark.parametrize("bits", [4, 6])
def test_packing_puts_the_first_element_in_the_lowest_bits(bits, rng):
    codes = rng.integers(0, 2**bits, (3, 64)).astype(np.uint8)
    packed = pack(codes, bits)
    assert packed.shape == (3, 64 * bits // 8)
    for row, found in zip(codes, packed, strict=True):
        word = sum(int(code) << (bits * place) for place, code in enumerate(row))
        assert found.tobytes() == word.to_bytes(found.size, "little")
    np.testing.assert_array_equal(unpack(packed, bits), codes)


def test_special_exponents():
    one = np.ones((1, 32), dtype_of("float4_e2m1fn"))
    unit = np.full((1, 1), 127, np.uint8)
    for code in range(256):
        d = rocpy.matmul(one, one.T, scale_a=np.full((1, 1), code, np.uint8), scale_b=unit, dtype="float32")
        with np.errstate(over="ignore"):
            wanted = np.float32(np.nan if code == 255 else 32 * 2.0 ** (code - 127))
        np.testing.assert_array_equal(d[0, 0], wanted)


def with_scales(rng, name, low, high, m=5, n=70, k=96):
    """Operands with their largest numbers among the elements, and scales of which the product of two is of use."""
    top = np.float32(ml_dtypes.finfo(dtype_of(name)).max)
    a, b = (rng.choice([top, -top, 1, 0], shape).astype(dtype_of(name)) for shape in ((m, k), (k, n)))
    scale_a, scale_b = rng.integers(low, high, (m, k // 32)), 254 - rng.integers(low, high, (k // 32, n))
    return a, scale_a.astype(np.uint8), b, scale_b.astype(np.uint8)


@pytest.mark.parametrize("large", ["a", "b"])
@pytest.mark.parametrize("name", MX)
def test_an_element_times_its_scale_may_be_beyond_float32(name, large, rng):
    a, scale_a, b, scale_b = with_scales(rng, name, *((248, 255) if large == "a" else (0, 7)))
    exact = rocpy.dequantize_mx(a, scale_a, "float64") @ rocpy.dequantize_mx(b, scale_b, "float64", axis=-2)
    bias = rng.standard_normal(70, np.float32)
    with rocpy.Weight(b, scale=scale_b) as weight:
        found = [
            rocpy.matmul(a, b, scale_a=scale_a, scale_b=scale_b, dtype="float32"),
            rocpy.matmul(a, weight, scale_a=scale_a, dtype="float32"),
            rocpy.matmul(a, b, scale_a=scale_a, scale_b=scale_b, dtype="float32", epilogue="bias", bias=bias) - bias,
        ]
    size = np.abs(rocpy.dequantize_mx(a, scale_a, "float64")) @ np.abs(
        rocpy.dequantize_mx(b, scale_b, "float64", axis=-2)
    )
    for d in found:
        assert (np.abs(d - exact) <= 1e-5 * size + 1e-5).all()


def test_rows_with_large_scales_leave_the_bits_of_others_as_they_are(rng):
    a, scale_a, b, scale_b = quantized(rng, "float8_e4m3fn", 9, 17, 96)
    options = {"reproducible": "batch"}
    alone = rocpy.matmul(a, b, scale_a=scale_a, scale_b=scale_b, dtype="float32", options=options)
    large = scale_a.view(np.uint8).copy()
    large[4] = 254
    among = rocpy.matmul(a, b, scale_a=large, scale_b=scale_b, dtype="float32", options=options)
    others = np.arange(9) != 4
    np.testing.assert_array_equal(among[others], alone[others])
    assert not np.array_equal(among[4], alone[4])


@pytest.mark.parametrize("name", MX)
@pytest.mark.parametrize(("low", "high"), [(250, 255), (0, 5), (100, 140)])
def test_balanced_operands_are_numbers_of_float32_with_the_same_products(name, low, high, rng):
    a, scale_a, b, scale_b = with_scales(rng, name, low, high)
    left, right = prepare(a, b, ScaleArguments(scale_a, scale_b), rocpy.blaslt.Options())
    of_a, of_b, of_product = balance(left, right, ScaleArguments(scale_a, scale_b))
    assert (of_a, of_b, of_product) == (0, 0, 0) or low != 100
    with np.errstate(all="raise"):
        wide = [dequantized(*one) for one in ((left, scale_a, "a", of_a), (right, scale_b, "b", of_b))]
    wanted = rocpy.dequantize_mx(a, scale_a, "float64"), rocpy.dequantize_mx(b, scale_b, "float64", axis=-2)
    for values, exponent, exact in zip(wide, (of_a, of_b), wanted, strict=True):
        np.testing.assert_array_equal(values.astype(np.float64) * 2.0**-exponent, exact)
    assert of_a + of_b + of_product == 0


@pytest.mark.parametrize("epilogue", ["default", "gelu_bias"])
@pytest.mark.parametrize("name", MX)
def test_amax_is_taken_of_the_composed_product(name, epilogue, rng):
    a, scale_a, b, scale_b = quantized(rng, name, 9, 17, 64)
    more = {"bias": rng.standard_normal(17, np.float32)} if "bias" in epilogue else {}
    given = {"scale_a": scale_a, "scale_b": scale_b, "epilogue": epilogue, **more}
    expected = evaluate(a, b, amax=True, **given)
    for outputs in (
        rocpy.matmul(a, b, amax=True, dtype="float32", **given),
        rocpy.Matmul(a, b, amax=True, dtype="float32", **given).execute(),
    ):
        for found in check_outputs(expected, outputs, np.float32).values():
            assert found.ok, found.message
    answer = rocpy.blaslt.supported(name, scale_a="block32", scale_b="block32", amax=True)
    assert answer.lowering == "unfused"
    without_blocks = "has no attribute A_SCALE_MODE" in answer.reasons[0]  # a release before MX operands
    assert without_blocks or "amax: hipBLASLt does not compute it for MX operands" in answer.reasons[0]


@pytest.mark.parametrize("name", MX)
@pytest.mark.parametrize("kind", ["numpy", "torch", "Buffer"])
def test_dequantized_operands_of_a_platform_without_blocks(name, kind, rng):
    """What a product with block scales is composed of where the library has none: exact numbers of float32."""
    a, scale_a, b, scale_b = quantized(rng, name, 5, 6, 64, (2,), ())
    wanted = rocpy.dequantize_mx(a, scale_a), rocpy.dequantize_mx(b, scale_b, axis=-2)
    options = rocpy.blaslt.Options()
    left, right = prepare(a, b, ScaleArguments(scale_a, scale_b), options)
    if kind == "torch":
        torch = pytest.importorskip("torch")
        left, right = (
            type(x)(torch.from_numpy(x.memory), x.dtype, x.right) if isinstance(x, Packed) else to_torch(x)
            for x in (left, right)
        )
        scale_a, scale_b = to_torch(scale_a.view(np.uint8)), to_torch(scale_b.view(np.uint8))
    elif kind == "Buffer":
        left = Packed(buffer_of(left.memory if isinstance(left, Packed) else left), name, False)
        right = Packed(buffer_of(right.memory if isinstance(right, Packed) else right.T), name, True)
        scale_a, scale_b = buffer_of(scale_a), buffer_of(scale_b)
    for operand, scale, side, expected in ((left, scale_a, "a", wanted[0]), (right, scale_b, "b", wanted[1])):
        np.testing.assert_array_equal(np.asarray(dequantized(operand, scale, side)), expected)


def buffer_of(array):
    made = rocpy.Buffer(array.shape, array.dtype)
    made.copy_from(np.ascontiguousarray(array))
    return made


REFUSED = [
    (lambda a, sa, b, sb: {"scale_a": sa}, "scale_b: none"),
    (lambda a, sa, b, sb: {"scale_b": sb}, "scale_a: none"),
    (lambda a, sa, b, sb: {"scale_a": 1.0, "scale_b": sb}, "scale_a: one float32"),
    (lambda a, sa, b, sb: {"scale_a": sa.T, "scale_b": sb}, r"scale_a: shape \(2, 9\)"),
    (lambda a, sa, b, sb: {"scale_a": sa, "scale_b": sb.T}, r"scale_b: shape \(17, 2\)"),
    (lambda a, sa, b, sb: {"scale_a": sa, "scale_b": sb, "dtype": "float8_e4m3fn"}, None),
    (lambda a, sa, b, sb: {}, "scale_a and scale_b: none"),
]


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize(("arguments", "match"), REFUSED)
def test_wrong_scales_are_refused_by_name(name, arguments, match, rng):
    operands = quantized(rng, name, 9, 17, 64)
    error = rocpy.UnsupportedError if match is None else rocpy.InvalidProblemError
    with pytest.raises(error, match=match):
        rocpy.matmul(operands[0], operands[2], **arguments(*operands))


def test_k_must_be_whole_blocks(rng):
    a, scale_a, b, scale_b = quantized(rng, "float8_e5m2", 4, 5, 48)
    with pytest.raises(rocpy.InvalidProblemError, match="K = 48"):
        rocpy.matmul(a, b, scale_a=scale_a, scale_b=scale_b)
    a, scale_a, b, scale_b = quantized(rng, "float4_e2m1fn", 4, 5, 48)
    with pytest.raises(rocpy.InvalidProblemError, match="K = 48"):
        rocpy.matmul(a, b, scale_a=scale_a, scale_b=scale_b)


def test_wide_operands_take_no_blocks():
    a, scales = np.ones((32, 32), np.float32), np.full((32, 1), 127, np.uint8)
    with pytest.raises(rocpy.InvalidProblemError, match="a is float32; operands with one scale per 32"):
        rocpy.matmul(a, a, scale_a=scales, scale_b=scales.T)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"])
def test_torch_tensors(name, rng, torch):
    x, w = rng.standard_normal((9, 64), dtype=np.float32), rng.standard_normal((17, 64), dtype=np.float32)
    a, scale_a = rocpy.quantize_mx(torch.from_numpy(x), name)
    b, scale_b = rocpy.quantize_mx(torch.from_numpy(w), name)
    left, left_scale = rocpy.quantize_mx(x, name)
    right, right_scale = rocpy.quantize_mx(w, name)
    expected = evaluate(left, right.T, scale_a=left_scale, scale_b=right_scale.T)
    d = rocpy.matmul(a, b.T, scale_a=scale_a, scale_b=scale_b.T, dtype=torch.float32)
    assert isinstance(d, torch.Tensor)
    check(d.numpy(), expected)
    # Packed along N, as quantize_mx of a (K, N) tensor leaves it.
    columns = torch.from_numpy(np.vstack([w, w[:1]]).T.copy())
    b, scale_b = rocpy.quantize_mx(columns, name, axis=-2)
    d = rocpy.matmul(a, b, scale_a=scale_a, scale_b=scale_b, dtype=torch.float32)
    check(d.numpy()[:, :17], expected)
    with rocpy.Matmul(a, torch.zeros_like(b), scale_a=scale_a, scale_b=scale_b, dtype=torch.float32) as mm:
        assert not mm.execute().any()
        mm.reset_operands(b=b)
        check(mm.execute().numpy()[:, :17], expected)


NOTHING = ["float8_e4m3fn", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"]


@pytest.mark.parametrize("a_name", NOTHING)
@pytest.mark.parametrize("b_name", NOTHING)
@pytest.mark.parametrize("weight", [False, True])
def test_nothing_along_k(a_name, b_name, weight, capfd):
    bias = np.ones(3, np.float32)
    asked = {"dtype": "float32", "scale_a": "block32", "scale_b": "block32"}
    for lead in ((), (2,), (2, 1)):
        for m in (1, 4):
            a, scale_a = rocpy.quantize_mx(np.ones((*lead, m, 0), np.float32), a_name)
            b, scale_b = rocpy.quantize_mx(np.ones((0, 3), np.float32), b_name, axis=-2)
            right, scales = (rocpy.Weight(b, scale=scale_b), {}) if weight else (b, {"scale_b": scale_b})
            for name, wanted in (("default", 0), ("relu_bias", 1), ("gelu_aux_bias", 1)):
                composed = is_composed(a_name, b_name, epilogue=name, **asked)
                fused = {"fallback": "error"}, {"fallback": "error", "reproducible": "batch"}
                for options in ({},) if composed else fused:
                    d = rocpy.matmul(
                        a, right, scale_a=scale_a, dtype="float32", epilogue=name, options=options,
                        **scales, **({"bias": bias} if "bias" in name else {}),
                    )  # fmt: skip
                    d = d[1]["gelu_aux"] if "aux" in name else d
                    assert d.shape == (*lead, m, 3)
                    assert (d == wanted).all()
    assert capfd.readouterr().err == ""
