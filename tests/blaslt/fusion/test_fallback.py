# SPDX-License-Identifier: MIT
"""Unfused products: what the library cannot fuse is composed, says so, and is as exact as the fused ones."""

from __future__ import annotations

import functools
import math

import ml_dtypes
import numpy as np
import pytest
from epilogue_shapes import SHAPES

import rocpy
from rocpy.blaslt import supported
from rocpy.blaslt.arrays.framework import Framework, framework_of, numpy_erfc, values
from rocpy.blaslt.composed import product as _fallback
from rocpy.blaslt.front.call import run
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.blaslt.model.product_call import ProductCall
from rocpy.blaslt.model.scale_arguments import ScaleArguments
from rocpy.blaslt.selection import library as _library
from rocpy.blaslt.selection import recipes as _recipes
from rocpy.blaslt.selection.releases import number_of
from rocpy.testing import ORACLES, Case, run_case
from rocpy.testing.cases import DTYPES
from rocpy.testing.runner import keywords, make_operands

# Where there are tile programs these epilogues are fused: test_program_epilogues.py.
pytestmark = pytest.mark.usefixtures("without_programs")

RELEASE = _library.library(0).version
COMPOSED = tuple(
    name for name, row in EPILOGUES.items() if row.enumerator is None and number_of("epilogue", name, RELEASE) is None
)
# A bias for each batch entry is the library's in releases that have its stride.
HAS_BIAS_STRIDE = number_of("attribute", "BIAS_BATCH_STRIDE", RELEASE) is not None
# With a result alone.
SIMPLE = tuple(name for name in COMPOSED if EPILOGUES[name].aux == "none")


def composed_cases():
    for epilogue in COMPOSED:
        for dtype in DTYPES:
            for extra in SHAPES:
                yield Case(13, 22, 19, dtype, epilogue=epilogue, **extra)
        yield Case(13, 22, 19, "bfloat16", "float32", epilogue=epilogue)
        yield Case(13, 22, 19, "float16", "float32", epilogue=epilogue)


def forced(recipe):
    """Return a matmul that takes a recipe for every product, also for those that the library can fuse."""

    def matmul(a, b, c=None, *, epilogue="default", bias=None, aux=None, alpha=1.0, beta=None, clamp=None, dtype=None):
        like = epilogue, rocpy.dtypes.lookup(a.dtype).name, str(dtype or rocpy.dtypes.lookup(a.dtype).name)
        column = bias is not None and len(bias.shape) == 2 and bias.shape[1] == 1
        assert recipe in _recipes.recipes(*like, column, False)
        call = ProductCall(a, b, c, bias=bias, aux=aux, alpha=alpha, beta=beta, clamp=clamp)
        return run(_fallback.Composed(call, recipe, epilogue, like[2], rocpy.Options()))

    return matmul


@functools.cache
def is_given(recipe, dtype):
    """Whether the library has the product that a recipe begins with: strict mode leaves some out."""
    options = {"fallback": "error"}
    return bool(supported(recipe.operands or dtype, dtype=recipe.dtype, epilogue=recipe.epilogue, options=options))


def every_recipe():
    """Each epilogue by each of its recipes that computes in a type wide enough for the bounds of a fused product."""
    for epilogue in EPILOGUES:
        for dtype in DTYPES:
            for extra in SHAPES[1:4] + SHAPES[5:]:
                if extra.get("bias", "row") != "row" and not ORACLES[epilogue].bias:
                    continue
                case = Case(13, 22, 19, dtype, epilogue=epilogue, **extra)
                column = extra.get("bias") == "column"
                for recipe in _recipes.recipes(epilogue, dtype, dtype, column, False):
                    if recipe.epilogue == "bias" and extra.get("bias") == "batch" and not HAS_BIAS_STRIDE:
                        continue
                    if not is_given(recipe, dtype):
                        continue
                    if recipe.dtype == _recipes.working_type(dtype) or epilogue in ("bgrada", "bgradb"):
                        yield pytest.param(case, recipe, id=f"{case.name}-{recipe.text}")


@pytest.mark.parametrize("case", list(composed_cases()), ids=lambda case: case.name)
def test_composed_epilogues(case):
    result = run_case(case)
    assert result.ok, result.message


@pytest.mark.torch
@pytest.mark.parametrize("case", list(composed_cases())[::2], ids=lambda case: case.name)
def test_composed_epilogues_of_torch(case, torch):
    result = run_case(case, provider="torch")
    assert result.ok, result.message


@pytest.mark.parametrize(("case", "recipe"), list(every_recipe()))
def test_every_epilogue_by_every_recipe(case, recipe):
    result = run_case(case, forced(recipe))
    assert result.ok, result.message


@pytest.mark.torch
@pytest.mark.parametrize(("case", "recipe"), list(every_recipe())[::5])
def test_every_epilogue_of_torch(case, recipe, torch):
    result = run_case(case, forced(recipe), provider="torch")
    assert result.ok, result.message


@pytest.mark.parametrize("epilogue", SIMPLE)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_plan_objects(epilogue, dtype):
    case = Case(9, 12, 7, dtype, epilogue=epilogue, alpha=0.5, beta=2.0)

    def planned(a, b, c, **arguments):
        with rocpy.Matmul(a, b, c, **arguments) as mm:
            assert {algorithm.lowering for algorithm in mm.plan()} == {"unfused"}
            out = np.empty((9, 12), a.dtype)
            assert mm.execute(out=out, algorithm=mm.algorithms[-1]) is out
            mm.reset_operands(a=np.zeros_like(a), alpha=3.0)
            assert not np.array_equal(mm.execute(), out)
            mm.release_operands()
            mm.reset_operands(a=a, b=b, c=c, bias=arguments.get("bias"), alpha=0.5)
            np.testing.assert_array_equal(mm.execute(), out)
            return out

    result = run_case(case, planned)
    assert result.ok, result.message


@pytest.mark.parametrize("epilogue", SIMPLE)
def test_vectors_weights_and_buffers(epilogue, rng):
    w, bias = rng.standard_normal((7, 5), dtype=np.float32), rng.standard_normal(5, dtype=np.float32)
    x = rng.standard_normal((3, 7), dtype=np.float32)
    arguments = {"bias": bias} if ORACLES[epilogue].bias else {}
    whole = rocpy.matmul(x, w, epilogue=epilogue, **arguments)
    np.testing.assert_allclose(rocpy.matmul(x[0], w, epilogue=epilogue, **arguments), whole[0], rtol=1e-6, atol=1e-6)
    column = rocpy.matmul(x, w[:, 0], epilogue=epilogue, **({"bias": bias[:1]} if arguments else {}))
    np.testing.assert_allclose(column, whole[:, 0], rtol=1e-6, atol=1e-6)
    packed = rocpy.Weight(w, bias=bias)
    np.testing.assert_allclose(rocpy.matmul(x, packed, epilogue=epilogue), whole, rtol=1e-6, atol=1e-6)
    left = rocpy.Buffer(x.shape, np.float32)
    left.copy_from(x)
    if not rocpy.platform.current().host_memory:  # then all of them must be on the device
        right, extra = rocpy.Buffer(w.shape, np.float32), rocpy.Buffer(bias.shape, np.float32)
        right.copy_from(w)
        extra.copy_from(bias)
        w, arguments = right, dict.fromkeys(arguments, extra)
    found = rocpy.matmul(left, w, epilogue=epilogue, **arguments)
    assert isinstance(found, rocpy.Buffer)
    np.testing.assert_array_equal(found.to_numpy(), whole)


def test_out_of_any_layout_and_in_place(rng):
    x, c = rng.standard_normal((6, 6), dtype=np.float32), rng.standard_normal((6, 6), dtype=np.float32)
    expected = rocpy.matmul(x, x, c, epilogue="gelu_erf")
    out = np.zeros((12, 12), np.float32)[::2, ::-2]
    assert rocpy.matmul(x, x, c, epilogue="gelu_erf", out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert rocpy.matmul(x, x, c, epilogue="gelu_erf", out=c) is c
    np.testing.assert_array_equal(c, expected)


def test_it_says_so_and_can_be_refused(rng):
    x = rng.standard_normal((4, 4), dtype=np.float32)
    found = rocpy.explain(x, x, epilogue="gelu_erf_bias", bias=x[0])
    assert found.algorithm.lowering == "unfused"
    assert found.unfused.startswith("hipBLASLt has no epilogue gelu_erf_bias: epilogue bias in float32")
    assert found.unfused in str(found)
    assert rocpy.explain(x, x, epilogue="gelu").unfused == ""
    with pytest.raises(rocpy.UnsupportedError, match=r"hipBLASLt has no such epilogue; options\(fallback='error'\)"):
        rocpy.matmul(x, x, epilogue="gelu_erf", options={"fallback": "error"})
    with rocpy.options(fallback="error"), pytest.raises(rocpy.UnsupportedError, match="gelu_erf_bias"):
        rocpy.matmul(x, x, epilogue="gelu_erf_bias", bias=x[0])


def test_the_decision_is_kept(rng):
    x = rng.standard_normal((5, 5), dtype=np.float32)
    rocpy.plan_cache.clear()
    rocpy.matmul(x, x, epilogue="gelu_erf")
    misses = rocpy.plan_cache.info()["misses"]
    for _ in range(5):
        rocpy.matmul(x, x, epilogue="gelu_erf")
    assert rocpy.plan_cache.info()["misses"] == misses


def test_special_values():
    x = np.array([[np.inf, -np.inf, np.nan, 0.0, -200.0]], np.float32)
    one = np.ones((1, 1), np.float32)
    for epilogue in SIMPLE:
        arguments = {"bias": np.zeros(5, np.float32)} if ORACLES[epilogue].bias else {}
        result = rocpy.matmul(one, x, epilogue=epilogue, **arguments)[0]
        first = 1.0 if epilogue.startswith("sigmoid") else np.inf
        assert result[0] == first
        assert result[1] == 0.0
        assert np.isnan(result[2])
        assert result[4] == 0.0


def test_erfc_agrees_with_the_mathematical_library():
    x = np.concatenate([np.linspace(-7, 26, 20001), [np.inf, -np.inf, 1e300, -1e300]])
    expected = np.array([math.erfc(v) for v in x])
    found = numpy_erfc(x)
    np.testing.assert_allclose(found, expected, rtol=2e-13, atol=1e-300)
    near = np.abs(x) <= 1
    np.testing.assert_allclose(found[near], expected[near], rtol=2e-15)
    assert np.isnan(numpy_erfc(np.array([np.nan], np.float32)))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_narrowing_saturates_and_rounds_to_nearest_even(name, torch):
    dtype = np.dtype(getattr(ml_dtypes, name))
    x = np.array([0.0, 1.0, -1e9, 1e9, np.inf, -np.inf, np.nan, 1.0 + 2.0**-5], np.float32)
    limit = float(ml_dtypes.finfo(dtype).max)
    found = Framework(np).narrow(x, name)
    assert found.dtype == dtype
    expected = [0.0, 1.0, -limit, limit, limit, -limit, np.nan, float(dtype.type(x[-1]))]
    np.testing.assert_array_equal(found.astype(np.float32), np.array(expected, np.float32))
    tensor = torch.from_numpy(x)
    narrowed = framework_of(tensor).narrow(tensor, name)
    np.testing.assert_array_equal(values(narrowed), np.array(expected, np.float32))


def test_integers_saturate():
    x = np.array([1.5, 2.5, -2.5, 3e9, -3e9], np.float64)
    assert Framework(np).narrow(x, "int32").tolist() == [2, 2, -2, 2**31 - 1, -(2**31)]
    assert Framework(np).narrow(x, "int8").tolist() == [2, 2, -2, 127, -128]


def test_a_framework_without_known_operations_is_refused():
    with pytest.raises(rocpy.UnsupportedError, match="builtins.list"):
        framework_of([1.0])


def test_no_recipe_is_the_problem_itself():
    for epilogue in EPILOGUES:
        for operand in ("float64", "float32", "bfloat16"):
            for recipe in _recipes.recipes(epilogue, operand, operand, False, False):
                assert (recipe.epilogue, recipe.dtype, recipe.operands) != (epilogue, operand, "")
                assert EPILOGUES[recipe.epilogue].enumerator is not None


def test_keywords_of_the_cases_are_all_passed():
    # The helper above takes what the case list gives; a new keyword must not be dropped in silence.
    case = Case(3, 4, 5, epilogue="clamp_bias", alpha=2.0, beta=1.0)
    assert set(keywords(case)) | set(make_operands(case)) <= {
        "a", "b", "c", "bias", "aux", "epilogue", "alpha", "beta", "clamp", "dtype",
    }  # fmt: skip


@pytest.mark.parametrize("kind", [None, -1], ids=["scalar", "vector"])
@pytest.mark.parametrize("epilogue", SIMPLE)
@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("float8_e4m3fn", "float32"),
        ("float8_e5m2", "bfloat16"),
        ("float8_e4m3fn", "float8_e4m3fn"),
        ("int8", "float32"),
    ],
)
def test_scales_of_composed_products(name, result, epilogue, kind, rng):
    x, w = rng.standard_normal((9, 32), dtype=np.float32), rng.standard_normal((32, 11), dtype=np.float32)
    bias = rng.standard_normal(11, dtype=np.float32)
    a, scale_a = rocpy.quantize(x, name, axis=kind)
    b, scale_b = rocpy.quantize(w, name, axis=None if kind is None else -2)
    narrow = result.startswith("float8")
    more = {"scale_d": np.float32(8.0), "amax": True} if narrow else {}
    given = {"bias": bias} if ORACLES[epilogue].bias else {}
    arguments = {"epilogue": epilogue, "scale_a": scale_a, "scale_b": scale_b, "dtype": result, **given, **more}
    wide = [rocpy.dequantize(v, s, "float64") for v, s in ((a, scale_a), (b, scale_b))]
    expected = rocpy.matmul(*wide, epilogue=epilogue, **{key: value.astype(np.float64) for key, value in given.items()})
    row = rocpy.dtypes.lookup(result).numpy
    rounding = 2.0 ** -(ml_dtypes.finfo(row).nmant + 1)

    def check(found):
        if narrow:
            found, extra = found
            np.testing.assert_allclose(extra["amax"], np.abs(expected).max(), rtol=1e-5)
            assert extra["amax"].shape == ()
        assert found.dtype == row
        tolerance = rounding * 1.01 + 1e-5
        smallest = float(ml_dtypes.finfo(row).smallest_subnormal)
        np.testing.assert_allclose(
            found.astype(np.float64), expected * (8.0 if narrow else 1.0), rtol=tolerance, atol=smallest + 1e-6
        )

    check(rocpy.matmul(a, b, **arguments))
    with rocpy.Matmul(a, b, **arguments) as mm:
        assert mm.plan()[0].lowering == "unfused"
        check(mm.execute())
    # By a product that does not apply the scales, as where the library has none for these types.
    key = (epilogue, name, result, False, True)
    recipe = next(recipe for recipe in _recipes.recipes(*key) if not recipe.scaled)
    scales = ScaleArguments(scale_a, scale_b, d=more.get("scale_d"), amax=narrow)
    call = ProductCall(a, b, bias=given.get("bias"), scales=scales)
    check(run(_fallback.Composed(call, recipe, epilogue, result, rocpy.Options())))


def test_what_has_no_meaning_is_not_composed():
    for result in ("complex64", "int32"):
        operand = "int8" if result == "int32" else result
        assert not rocpy.blaslt.supported(operand, dtype=result, epilogue="gelu_erf")


def test_what_the_options_forbid_is_named_and_not_a_larger_workspace():
    whole = np.ones((4, 4), np.int8)
    with pytest.raises(rocpy.UnsupportedError, match=r"options\(fallback='error'\)") as refused:
        rocpy.matmul(whole, whole, epilogue="relu_aux", options={"fallback": "error"})
    assert "max_workspace_bytes" not in str(refused.value)
