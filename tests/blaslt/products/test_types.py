# SPDX-License-Identifier: MIT
"""Types of products: what each pair gives, and that every conversion rounds to nearest even and saturates."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy import dtypes
from rocpy.blaslt import OperandInfo, Problem
from rocpy.blaslt.model.product_types import FAMILIES
from rocpy.testing import evaluate
from rocpy.testing.cases import FLOAT8
from rocpy.testing.runner import check_outputs, dtype_of, saturated

NARROW = ("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
WIDE = ("float32", "float16", "bfloat16")
DEFAULTS = {**dict.fromkeys(FLOAT8, "bfloat16"), "int8": "int32"}

UNIT = {"scale_a": 1.0, "scale_b": 1.0}


def all_codes(name):
    """Every bit pattern of a type of at most a byte."""
    return np.arange(2 ** dtypes.lookup(name).bits, dtype=np.uint8).view(dtype_of(name))


def boundaries(name):
    """Every number of a narrow type, all midpoints of neighbours, what lies just beside them, and beyond the range."""
    values = np.unique(all_codes(name).astype(np.float32))
    values = values[np.isfinite(values)]
    middles = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(middles, np.float32(side)) for side in (-np.inf, np.inf)]
    largest = values[-1]
    beyond = np.float32([1.01 * largest, 1.5 * largest, 2 * largest, 1e30, np.inf])
    return np.concatenate([values, middles, *near, beyond, -beyond, [np.float32(np.nan)]]).astype(np.float32)


def through_bias(values, operand, result):
    """The values as a product's epilogue converts them: a bias on a product that is zero."""
    zero = np.zeros((1, 1), dtype_of(operand))
    return rocpy.matmul(
        zero,
        np.zeros((1, values.size), dtype_of(operand)),
        epilogue="bias",
        bias=values,
        dtype=result,
        scale_a=1.0,
        scale_b=1.0,
    )[0]


def same(x, y):
    """Equal numbers, and NaN in the same places."""
    x, y = np.asarray(x).astype(np.float64), np.asarray(y).astype(np.float64)
    return ((x == y) | (np.isnan(x) & np.isnan(y))).all()


@pytest.mark.parametrize("name", FLOAT8)
def test_every_number_of_eight_bits_is_read_exactly(name):
    codes = all_codes(name)
    one = np.ones((1, 1), dtype_of(name))
    assert same(
        rocpy.matmul(codes[:, None], one, dtype="float32", scale_a=1.0, scale_b=1.0)[:, 0], codes.astype(np.float32)
    )
    assert same(
        rocpy.matmul(one, codes[None, :], dtype="float32", scale_a=1.0, scale_b=1.0)[0], codes.astype(np.float32)
    )


@pytest.mark.parametrize("name", FLOAT8)
def test_results_of_eight_bits_round_to_nearest_even_and_saturate(name):
    values = boundaries(name)
    wanted = saturated(values.astype(np.float64), dtype_of(name))
    found = through_bias(values, name, name)
    assert found.dtype == dtype_of(name)
    # Bit for bit: the signs of zeros too.
    finite = ~np.isnan(values)
    np.testing.assert_array_equal(found.view(np.uint8)[finite], wanted.view(np.uint8)[finite])
    assert np.isnan(found.astype(np.float32)[~finite]).all()


@pytest.mark.parametrize("result", ["float16", "bfloat16"])
def test_wide_results_of_narrow_operands_round_to_nearest_even(result):
    # All midpoints of neighbouring numbers of the type, and what lies beside them.
    values = np.arange(2**15, dtype=np.uint16).view(dtype_of(result)).astype(np.float32)
    values = np.unique(values[np.isfinite(values)])
    middles = ((values[1:].astype(np.float64) + values[:-1]) / 2).astype(np.float32)
    middles = middles[np.abs(middles) >= np.finfo(np.float32).tiny]
    values = np.concatenate([middles, np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(np.inf))])
    for sign in (1, -1):
        found = through_bias(sign * values, "float8_e5m2", result)
        np.testing.assert_array_equal(found.view(np.uint16), (sign * values).astype(dtype_of(result)).view(np.uint16))


@pytest.mark.parametrize("name", NARROW)
def test_every_number_of_four_and_six_bits_is_read_exactly(name):
    codes = all_codes(name)
    for scale in (1, 127, 128, 200):
        left = np.zeros((codes.size, 32), dtype_of(name))
        left[:, 5] = codes
        unit = np.zeros((32, 1), dtype_of("float8_e4m3fn"))
        unit[5] = 1
        scales = np.full((codes.size, 1), scale, np.uint8), np.full((1, 1), 127, np.uint8)
        found = rocpy.matmul(left, unit, scale_a=scales[0], scale_b=scales[1], dtype="float32")
        np.testing.assert_array_equal(found[:, 0], codes.astype(np.float32) * np.float32(2.0 ** (scale - 127)))
        found = rocpy.matmul(unit.T, left.T, scale_a=scales[1], scale_b=scales[0].T, dtype="float32")
        np.testing.assert_array_equal(found[0], codes.astype(np.float32) * np.float32(2.0 ** (scale - 127)))


@pytest.mark.parametrize("a", FLOAT8)
@pytest.mark.parametrize("b", FLOAT8)
def test_float8_forms_mix_within_a_dialect(a, b, rng):
    left, right = rng.standard_normal((5, 20)).astype(dtype_of(a)), rng.standard_normal((20, 6)).astype(dtype_of(b))
    if a.endswith("fnuz") != b.endswith("fnuz"):
        with pytest.raises(rocpy.InvalidProblemError, match=f"a is {a} and b is {b}"):
            rocpy.matmul(left, right, scale_a=1.0, scale_b=1.0)
        return
    for result in ("", *WIDE, a, b):
        d = rocpy.matmul(left, right, scale_a=1.0, scale_b=1.0, **({"dtype": result} if result else {}))
        assert d.dtype == dtype_of(result or "bfloat16")
        found = check_outputs(evaluate(left, right), d, d.dtype)["result"]
        assert found.ok, found.message


@pytest.mark.parametrize("name", [*FLOAT8, "int8", "float64", "float32", "float16", "bfloat16"])
def test_default_results(name):
    a = np.ones((3, 3), dtype_of(name))
    d = rocpy.matmul(a, a, **(UNIT if name in FLOAT8 else {}))
    assert d.dtype == dtype_of(DEFAULTS.get(name, name))
    assert (d.astype(np.float64) == 3).all()


def test_sums_of_int8_are_exact_at_the_extremes():
    a = np.full((2, 4096), -128, np.int8)
    b = np.full((4096, 3), -128, np.int8)
    assert (rocpy.matmul(a, b) == 4096 * 128 * 128).all()
    b[:] = 127
    assert (rocpy.matmul(a, b) == -4096 * 128 * 127).all()


def test_every_product_of_two_int8_is_right():
    every = np.arange(-128, 128).astype(np.int8)
    wanted = np.multiply.outer(every.astype(np.int64), every.astype(np.int64))
    np.testing.assert_array_equal(rocpy.matmul(every[:, None], every[None, :]), wanted)
    for result in ("float16", "bfloat16", "float32"):
        found = rocpy.matmul(every[:, None], every[None, :], dtype=result, **UNIT)
        np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(dtype_of(result)).astype(np.float64))
    clipped = rocpy.matmul(every[:, None], every[None, :], dtype="int8")
    np.testing.assert_array_equal(clipped, np.clip(wanted, -128, 127))


def test_integer_results_are_scaled_by_whole_numbers():
    a = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    c = np.arange(9, dtype=np.int32).reshape(3, 3)
    wide = a.astype(np.int64) @ a.T.astype(np.int64)
    np.testing.assert_array_equal(rocpy.matmul(a, a.T, c, alpha=-3, beta=2), -3 * wide + 2 * c)
    for arguments in ({"alpha": 0.5}, {"alpha": 2.0**31}, {"alpha": np.nan}, {"beta": 1.25}):
        with pytest.raises(rocpy.InvalidProblemError, match="integers"):
            rocpy.matmul(a, a.T, c, **arguments)
    found = rocpy.matmul(a, a.T, alpha=0.5, dtype="float32", **UNIT)
    np.testing.assert_array_equal(found, 0.5 * wide)
    with rocpy.Matmul(a, a.T, alpha=0.5) as mm, pytest.raises(rocpy.InvalidProblemError, match="integers"):
        mm.execute()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_a_family_cannot_give_is_refused_by_name(family):
    operand = family.operands[0]
    kind = "block32" if family.name == "MX" else "scalar"
    scales = {"scale_a": kind, "scale_b": kind} if family.scales else {}
    a = OperandInfo.dense((4, 32), operand)
    with pytest.raises(rocpy.UnsupportedError, match=f"a {operand} product cannot return"):
        Problem.make(a, OperandInfo.dense((32, 4), operand), dtype="float8_e8m0fnu", **scales)
    for result in family.results:
        problem = Problem.make(a, OperandInfo.dense((32, 4), operand), dtype=result, **scales)
        assert Problem.from_json(problem.to_json()) == problem
        assert problem.flops == (8 if operand.startswith("complex") else 2) * 4 * 4 * 32


def test_narrow_operands_count_their_bits():
    left, right = OperandInfo.dense((4, 32), "float4_e2m1fn"), OperandInfo.dense((32, 4), "float6_e2m3fn")
    problem = Problem.make(left, right, scale_a="block32", scale_b="block32")
    assert problem.bytes == 4 * 32 // 2 + 4 * 32 * 6 // 8 + 4 + 4 + 16 * 2
    assert str(problem).endswith("epilogue default, scales of a block32, b block32")


def test_json_without_scales_is_read():
    problem = Problem.make(OperandInfo.dense((2, 3), "float32"), OperandInfo.dense((3, 4), "float32"))
    import json

    data = json.loads(problem.to_json())
    for name in (
        "scale_a",
        "scale_b",
        "scale_a_batch",
        "scale_b_batch",
        "scale_c",
        "scale_d",
        "amax",
        "conj_a",
        "conj_b",
    ):
        del data[name]
    assert Problem.from_json(json.dumps(data)) == problem


@pytest.mark.parametrize("name", [*FLOAT8, "int8"])
def test_the_result_may_be_written_to_out(name, rng):
    a, b = (rng.integers(-3, 4, (6, 6)).astype(dtype_of(name)) for _ in range(2))
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    out = np.zeros((6, 6), np.float32)
    assert rocpy.matmul(a, b, out=out, scale_a=1.0, scale_b=1.0) is out
    np.testing.assert_array_equal(out, wanted)
    column = np.zeros((6, 6), np.float32).T
    rocpy.matmul(a, b, out=column, scale_a=1.0, scale_b=1.0)
    np.testing.assert_array_equal(column, wanted)


@pytest.mark.parametrize("name", [*FLOAT8, "int8"])
def test_a_plan_computes_what_the_function_does(name, rng):
    a, b = (rng.integers(-3, 4, (6, 6)).astype(dtype_of(name)) for _ in range(2))
    with rocpy.Matmul(a, b, dtype="float32", scale_a=1.0, scale_b=1.0) as mm:
        assert mm.problem.dtype == "float32"
        np.testing.assert_array_equal(mm.execute(), rocpy.matmul(a, b, dtype="float32", scale_a=1.0, scale_b=1.0))
        mm.reset_operands(a=b, b=a)
        np.testing.assert_array_equal(mm.execute(), b.astype(np.float64) @ a.astype(np.float64))


@pytest.mark.parametrize("name", FLOAT8)
def test_a_weight_may_be_of_eight_bits(name, rng):
    x, w = rng.standard_normal((5, 40)).astype(dtype_of(name)), rng.standard_normal((40, 7)).astype(dtype_of(name))
    scale = rng.uniform(0.5, 2, 7).astype(np.float32)
    weight = rocpy.Weight(w, scale=scale)
    wanted = evaluate(x, w, scale_b=scale)
    assert check_outputs(wanted, rocpy.matmul(x, weight, scale_a=1.0), dtype_of("bfloat16"))["result"].ok
    both = rocpy.matmul(x, weight, scale_a=np.float32(0.5), dtype="float32")
    assert check_outputs(evaluate(x, w, scale_a=0.5, scale_b=scale), both, np.dtype(np.float32))["result"].ok
    with pytest.raises(rocpy.InvalidProblemError, match="already has a scale"):
        rocpy.matmul(x, weight, scale_b=1.0)
    with rocpy.Matmul(x, weight, scale_a=1.0) as mm:
        assert mm.problem.scale_b == "vector"
        assert check_outputs(wanted, mm.execute(), dtype_of("bfloat16"))["result"].ok


def test_an_int8_weight_is_as_good_as_the_array(rng):
    x, w = rng.integers(-128, 128, (5, 70)).astype(np.int8), rng.integers(-128, 128, (9, 70)).astype(np.int8)
    weight = rocpy.Weight(w, layout="nk")
    np.testing.assert_array_equal(rocpy.matmul(x, weight), x.astype(np.int64) @ w.T.astype(np.int64))
    scaled = rocpy.Weight(w, layout="nk", scale=0.25)
    found = rocpy.matmul(x, scaled, scale_a=1.0, dtype="float32")
    np.testing.assert_array_equal(found, 0.25 * (x.astype(np.float64) @ w.T.astype(np.float64)))


@pytest.mark.torch
@pytest.mark.parametrize("name", [*FLOAT8, "int8"])
def test_torch_tensors_give_torch_results(name, rng, torch):
    a, b = (rng.integers(-3, 4, (6, 6)).astype(dtype_of(name)) for _ in range(2))
    left, right = (torch.from_numpy(x.view(np.uint8)).view(getattr(torch, name)) for x in (a, b))
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    d = rocpy.matmul(left, right, **({} if name == "int8" else UNIT))
    assert d.dtype == (torch.int32 if name == "int8" else torch.bfloat16)
    assert (d.double().numpy() == wanted).all()
    if name != "int8":
        eight = rocpy.matmul(left, right, dtype=getattr(torch, name), **UNIT)
        assert eight.dtype == getattr(torch, name)
        assert (eight.float().numpy() == saturated(wanted, dtype_of(name)).astype(np.float32)).all()


def test_float8_of_other_kinds_are_refused():
    a = np.ones((3, 3), ml_dtypes.float8_e3m4)
    with pytest.raises(rocpy.InvalidOperandError, match="float8_e3m4"):
        rocpy.matmul(a, a)


def test_the_remedy_for_fractions_of_integer_products():
    a, b, c = (np.ones(shape, np.int8) for shape in ((2, 3), (3, 4), (2, 4)))
    remedy = {"dtype": "float32", "scale_a": 1.0, "scale_b": 1.0}
    words = "for other factors pass dtype='float32', scale_a=1.0 and scale_b=1.0"
    with pytest.raises(rocpy.InvalidProblemError, match=f"^alpha = .*{words}, with c, bias and out of float32$"):
        rocpy.matmul(a, b, alpha=0.5)
    assert (rocpy.matmul(a, b, alpha=0.5, **remedy) == 1.5).all()
    with pytest.raises(rocpy.InvalidProblemError, match=f"^beta = .*{words}, with c, bias and out of float32$"):
        rocpy.matmul(a, b, c.astype(np.int32), beta=0.5)
    assert (rocpy.matmul(a, b, c.astype(np.float32), beta=0.5, **remedy) == 3.5).all()
