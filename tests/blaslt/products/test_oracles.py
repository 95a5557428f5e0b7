# SPDX-License-Identifier: MIT
"""The oracle library itself: formulas against second sources, bounds that catch errors, cases that survive JSON."""

from __future__ import annotations

import json

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.blaslt.model import epilogues
from rocpy.testing import Case, bounds, compare, evaluate, make_operands, oracles, run_case, tolerance
from rocpy.testing.cases import DTYPES, EPILOGUES, LAYOUTS, TIERS, cases, main, select, to_json
from rocpy.testing.runner import check_outputs, dtype_of, keywords, lay_out, reference, saturated

GRID = np.concatenate([np.linspace(-12, 12, 100_001), [-1e30, -50.0, 50.0, 1e30]])


def numerical_derivative(function, x, h=1e-6):
    return (function(x + h) - function(x - h)) / (2 * h)


def test_every_epilogue_has_an_oracle_and_cases():
    # Those without a number of hipBLASLt's are composed, or fused by tile programs: test_fallback.py and
    # test_program_epilogues.py.
    rows = epilogues.EPILOGUES
    others = {name for name, row in rows.items() if row.enumerator is None}
    assert set(oracles.ORACLES) == set(rows) == set(EPILOGUES) | others
    covered = {(case.epilogue, case.dtype, case.layout) for case in cases("quick")}
    for epilogue in EPILOGUES:
        for dtype in DTYPES:
            assert {(epilogue, dtype, layout) for layout in ("nn", "nt", "tn", "tt")} <= covered


def test_gelu_equals_its_textbook_form():
    x = GRID[np.abs(GRID) < 12]
    textbook = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(oracles.gelu(x), textbook, rtol=1e-12, atol=1e-14)


def test_sigmoid_and_silu_equal_their_textbook_forms():
    x = GRID[np.abs(GRID) < 12]
    np.testing.assert_allclose(oracles.sigmoid(x), 1 / (1 + np.exp(-x)), rtol=1e-14)
    np.testing.assert_allclose(oracles.silu(x), x / (1 + np.exp(-x)), rtol=1e-14)


def test_gelu_gradient_is_the_derivative_of_gelu():
    x = GRID[np.abs(GRID) < 12]
    np.testing.assert_allclose(oracles.gelu_gradient(x), numerical_derivative(oracles.gelu, x), atol=1e-8)


@pytest.mark.parametrize("function", ["gelu_erf", "silu"])
def test_other_gradients_are_derivatives(function):
    x = GRID[np.abs(GRID) < 12]
    gradient, f = getattr(oracles, f"{function}_gradient"), getattr(oracles, function)
    np.testing.assert_allclose(gradient(x), numerical_derivative(f, x), atol=1e-8)


def test_gelu_by_erf_is_close_to_its_tanh_form_and_differs_from_it():
    x = GRID[np.abs(GRID) < 12][::50]
    difference = np.abs(oracles.gelu_erf(x) - oracles.gelu(x)).max()
    assert 1e-4 < difference < 1e-3


@pytest.mark.parametrize(
    "function", ["gelu", "gelu_erf", "silu", "sigmoid", "gelu_gradient", "gelu_erf_gradient", "silu_gradient"]
)
def test_limits_at_infinity_and_nan(function):
    f = getattr(oracles, function)
    low, high, nan = f(np.array([-np.inf, np.inf, np.nan]))
    assert low == 0
    assert high == (np.inf if function in ("gelu", "gelu_erf", "silu") else 1)
    assert np.isnan(nan)


@pytest.mark.parametrize("function", ["gelu", "gelu_erf", "silu", "sigmoid"])
def test_stated_derivative_bounds_hold(function):
    f = getattr(oracles, function)
    smooth = oracles.SMOOTH[function]
    x = GRID[np.abs(GRID) < 12]
    first = smooth.derivative(x)
    np.testing.assert_allclose(first, numerical_derivative(f, x), atol=1e-8)
    assert smooth.steepest * 0.99 < np.abs(first).max() <= smooth.steepest
    second = numerical_derivative(smooth.derivative, x)
    assert smooth.curvature * 0.95 < np.abs(second).max() <= smooth.curvature


FLOATS = [name for name in tolerance.FORMATS if name not in tolerance.COMPONENTS and not name.startswith("int")]


@pytest.mark.parametrize("name", FLOATS)
def test_ulp_is_the_spacing_of_the_dtype(name):
    dtype = dtype_of(name)
    values = np.array([0.0, 1.0, 1.5, 2.0, 3.1, 1000.0, 6e-5, 1e-7]).astype(dtype)
    largest = ml_dtypes.finfo(dtype).max
    values = values[values.astype(np.float64) < float(largest)]
    assert values.size >= 3
    following = np.nextafter(values, np.asarray(largest, dtype=dtype)).astype(np.float64)
    values = values.astype(np.float64)
    np.testing.assert_array_equal(tolerance.ulp(values, dtype), following - values)
    assert tolerance.FORMATS[name].max_value == float(ml_dtypes.finfo(dtype).max)


def test_gamma_refuses_a_useless_bound():
    with pytest.raises(ValueError, match="no useful bound"):
        tolerance.gamma(2**24, 2.0**-24)


def test_oracle_equals_numpy_expressions():
    rng = np.random.default_rng(1)
    a, b, c = rng.standard_normal((2, 5, 4)), rng.standard_normal((4, 3)), rng.standard_normal((2, 5, 3))
    row, column, each = rng.standard_normal(3), rng.standard_normal((5, 1)), rng.standard_normal((2, 3))
    x = 2.0 * (a @ b) + 0.5 * c
    np.testing.assert_allclose(evaluate(a, b, c, alpha=2.0, beta=0.5).result, x)
    for bias, added in ((row, row), (column, column), (each, each[:, None, :])):
        found = evaluate(a, b, c, alpha=2.0, beta=0.5, epilogue="bias", bias=bias)
        np.testing.assert_allclose(found.result, x + added)
    found = evaluate(a, b, epilogue="gelu_aux_bias", bias=row)
    np.testing.assert_allclose(found.aux["gelu_aux"], a @ b + row)
    np.testing.assert_allclose(found.result, oracles.gelu(a @ b + row))
    np.testing.assert_allclose(evaluate(a, b, epilogue="bgrada").aux["bgrada"], a.sum(-1))
    np.testing.assert_allclose(evaluate(a, b, epilogue="bgradb").aux["bgradb"], b.sum(-2))
    aux = rng.standard_normal((2, 5, 3))
    found = evaluate(a, b, epilogue="drelu_bgrad", aux=aux)
    np.testing.assert_allclose(found.result, np.where(aux > 0, a @ b, 0))
    np.testing.assert_allclose(found.aux["bgrad"], np.where(aux > 0, a @ b, 0).sum(-2))
    np.testing.assert_allclose(evaluate(a, b, epilogue="clamp", clamp=(-0.5, 0.25)).result, np.clip(a @ b, -0.5, 0.25))


def test_oracle_follows_numpy_shapes():
    a, b = np.ones((2, 1, 3, 4)), np.ones((5, 4, 6))
    row, column = a[0, 0, 0], b[0, :, 0]
    for left, right in ((a, b), (a, b[0]), (a[0, 0], b), (row, b), (a, column), (row, column), (a[..., :0], b[:, :0])):
        assert evaluate(left, right).result.shape == np.matmul(left, right).shape


def test_beta_zero_does_not_read_c():
    a = np.ones((2, 2))
    assert np.isfinite(evaluate(a, a, np.full((2, 2), np.nan), beta=0.0).result).all()


def emulate(case, operands):
    """A float32 implementation in plain numpy, to see that correct arithmetic passes the bounds."""
    kind = {"float64": np.float64, "complex64": np.complex64, "complex128": np.complex128}.get(case.dtype, np.float32)
    narrow = {key: value.astype(kind) for key, value in operands.items() if not key.startswith("scale")}
    options = keywords(case)
    out = dtype_of(case.result_dtype)
    if case.dtype == "int8":
        x = (operands["a"].astype(np.int64) @ operands["b"].astype(np.int64)).astype(kind)
    else:
        x = narrow["a"] @ narrow["b"]
    if case.scale == "block32":
        pairs = [operands[f"scale_{side}"].astype(kind).repeat(32, axis) for side, axis in (("a", -1), ("b", -2))]
        x = (narrow["a"] * pairs[0]) @ (narrow["b"] * pairs[1])
    elif case.scale == "scalar":
        x = x * operands["scale_a"] * operands["scale_b"]
    elif case.scale:
        x = x * operands["scale_a"][..., :, None] * operands["scale_b"][..., None, :]
    if case.result_dtype in ("int32", "int8"):
        kind = np.float64
        x, narrow = x.astype(kind), {key: value.astype(kind) for key, value in operands.items()}
    x = kind(options.get("alpha", 1.0)) * x
    if "c" in narrow:
        x = x + kind(options["beta"]) * narrow["c"]
    oracle = oracles.lookup(case.epilogue)
    if oracle.bias:
        x = x + oracles._as_matrix_bias(narrow["bias"], x.shape).astype(kind)
    further = {}
    if oracle.aux_out:
        further[oracle.aux_out] = saturated(x, out)
    if oracle.aux_in:
        z = (oracles.FUNCTIONS[oracle.function](narrow["aux"].astype(np.float64)).astype(kind) * x).astype(kind)
    elif oracle.takes_clamp:
        z = np.clip(x, *options["clamp"])
    elif oracle.function == "identity":
        z = x
    else:
        z = oracles.FUNCTIONS[oracle.function](x.astype(np.float64)).astype(kind)
    if case.amax:
        further["amax"] = np.abs(z).max()
    if oracle.sums:
        source, axis = {"bgrad": (z, -2), "bgrada": (narrow["a"], -1), "bgradb": (narrow["b"], -2)}[oracle.sums]
        further[oracle.sums] = source.sum(axis=axis, dtype=kind).astype(out)
    d = saturated(z * kind(case.scale_d) if case.scale_d else z, out)
    return (d, further) if further else d


def test_correct_arithmetic_is_within_the_bounds():
    for case in cases("quick"):
        operands = make_operands(case)
        exact = case.data == "integers" and oracles.lookup(case.epilogue).is_linear
        exact = exact or case.result_dtype in ("int8", "int32")
        outputs = emulate(case, operands)
        found = check_outputs(reference(case, operands), outputs, dtype_of(case.result_dtype), exact=exact)
        assert all(item.ok for item in found.values()), f"{case.name}: {found}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_a_wrong_element_is_out_of_bounds(dtype, epilogue):
    case = Case(17, 33, 40, dtype, epilogue=epilogue)
    operands = make_operands(case)
    expected = reference(case, operands)
    limits = bounds(expected, dtype_of(dtype))
    for name, value in {"result": expected.result, **expected.aux}.items():
        spoiled = value.copy()
        index = np.unravel_index(int(np.argmax(np.abs(value))), value.shape)
        # One part in 100 for bfloat16, whose half ulp is one in 512 to 256; far less for the others.
        spoiled[index] *= 1 + {"float64": 1e-12, "float32": 1e-4, "float16": 2e-3, "bfloat16": 1e-2}[dtype]
        assert not compare(spoiled, value, limits[name]).ok
        assert compare(value, value, limits[name]).ratio == 0


WRONG = {"float32": 1e-4, "float16": 2e-3, "bfloat16": 1e-2, "complex64": 1e-4, "complex128": 1e-12}


@pytest.mark.parametrize(
    "case",
    [
        Case(17, 33, 40, "float8_e4m3fn", "float32", scale="vector"),
        Case(17, 33, 40, "float8_e5m2fnuz", "float16", scale="scalar", amax=True),
        Case(17, 33, 64, "float4_e2m1fn", "float32", scale="block32"),
        Case(17, 33, 40, "int8", "float32", "gelu_bias", scale="vector"),
        Case(17, 33, 40, "complex64", alpha_imaginary=0.5),
        Case(17, 33, 40, "complex128"),
    ],
    ids=lambda case: case.name,
)
def test_a_wrong_element_is_out_of_bounds_of_the_other_types(case):
    expected = reference(case, make_operands(case))
    limits = bounds(expected, dtype_of(case.result_dtype))
    value = expected.result
    index = np.unravel_index(int(np.argmax(np.abs(value))), value.shape)
    spoiled = value.copy()
    spoiled[index] *= 1 + WRONG[case.result_dtype]
    assert not compare(spoiled, value, limits["result"]).ok
    assert compare(value, value, limits["result"]).ratio == 0
    if value.dtype.kind == "c":
        # A lost conjugate, or the imaginary part alone.
        assert not compare(value.conj(), value, limits["result"]).ok
        spoiled = value.copy()
        spoiled[index] += 1j * WRONG[case.result_dtype] * np.abs(value[index])
        assert not compare(spoiled, value, limits["result"]).ok
    if case.amax:
        assert not compare(np.float64(expected.amax * 1.001), np.asarray(expected.amax), limits["amax"]).ok


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_neighbours_are_out_of_bounds_of_eight_bits(name):
    largest = tolerance.FORMATS[name].max_value
    values = np.linspace(1, 4, 50).astype(dtype_of(name))
    wide = values.astype(np.float64)
    bound = 0.5 * tolerance.ulp(wide, values.dtype)
    other = np.nextafter(values, np.asarray(largest, values.dtype))
    assert compare(values, wide, bound).ok
    assert not compare(other, wide, bound).ok
    # Beyond the range the largest number is right, and no other.
    beyond = np.full(2, 2.5 * largest)
    assert compare(np.full(2, largest).astype(values.dtype), beyond, np.zeros(2)).ok
    assert not compare(np.full(2, largest / 2).astype(values.dtype), beyond, np.zeros(2)).ok


def test_dropped_rows_of_k_are_out_of_bounds_in_16_bits():
    case = Case(8, 8, 512, "bfloat16")
    operands = make_operands(case)
    expected = reference(case, operands)
    a, b = operands["a"].astype(np.float64), operands["b"].astype(np.float64)
    short = (a[:, :-1] @ b[:-1]).astype(dtype_of("bfloat16"))
    assert not check_outputs(expected, short, short.dtype)["result"].ok


def test_compare_demands_places_of_nan_and_infinity():
    expected = np.array([1.0, np.nan, np.inf, -np.inf])
    bound = np.full(4, 1e-6)
    assert compare(expected.astype(np.float32), expected, bound).ok
    for index, value in ((0, np.nan), (1, 0.0), (2, -np.inf), (3, 1.0), (0, np.inf)):
        wrong = expected.copy()
        wrong[index] = value
        assert not compare(wrong, expected, bound).ok
    assert compare(np.float16([np.inf]), np.array([65530.0]), np.array([1.0])).ok
    assert not compare(np.float16([np.inf]), np.array([60000.0]), np.array([1.0])).ok


def test_compare_demands_the_shape():
    found = compare(np.zeros((2, 3)), np.zeros((3, 2)), np.zeros((3, 2)))
    assert not found.ok
    assert "shape (2, 3), expected (3, 2)" in found.message


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_hold_the_same_values(layout):
    logical = np.arange(2 * 3 * 4.0).reshape(2, 3, 4)
    view = lay_out(logical, layout)
    np.testing.assert_array_equal(view, logical)
    assert view.flags.c_contiguous == (layout == "n")


def test_operands_are_reproducible_and_lie_as_named():
    case = Case(5, 6, 7, "bfloat16", epilogue="gelu_bias", layout="tp", batch_a=(2,))
    first, second = make_operands(case), make_operands(case)
    for key in ("a", "b", "bias"):
        np.testing.assert_array_equal(first[key], second[key])
        assert first[key].dtype == ml_dtypes.bfloat16
    assert first["a"].strides[-2] < first["a"].strides[-1]
    assert first["b"].strides[-2] > 6 * 2


def test_cases_survive_json():
    chosen = cases("quick")
    rows = json.loads(to_json(chosen))
    assert [Case.from_dict(row) for row in rows] == list(chosen)
    assert len({row["name"] for row in rows}) == len(rows)


def test_tiers_contain_one_another():
    quick, full, slow = (set(cases(tier)) for tier in TIERS)
    assert quick < full < slow
    with pytest.raises(rocpy.InvalidProblemError, match="tier: got .other., expected .quick., .full., .slow."):
        cases("other")
    assert all(case.dtype == "float16" for case in select("quick", dtype="float16"))


def test_case_list_tool_writes_a_file(tmp_path):
    path = tmp_path / "cases.json"
    assert main(["--tier", "quick", "--output", str(path)]) == 0
    assert len(json.loads(path.read_text())) == len(cases("quick"))


def test_run_case_reports_a_wrong_product():
    case = Case(3, 4, 5, epilogue="relu_aux")
    good = run_case(case, matmul=lambda *args, **kwargs: emulate(case, make_operands(case)))
    assert good.ok
    assert good.ratio < 1
    bad = run_case(case, matmul=lambda *args, **kwargs: emulate(case, make_operands(case))[0])
    assert not bad.ok


@pytest.mark.parametrize(
    ("keywords", "named"),
    [
        ({"epilogue": "gellu"}, "epilogue: there is no oracle of 'gellu'.*gelu"),
        ({"epilogue": 3}, "epilogue: "),
        ({"epilogue": "bias"}, "bias: epilogue 'bias' needs it"),
        ({"epilogue": "clamp"}, "clamp: epilogue 'clamp' needs it"),
        ({"epilogue": "drelu"}, "aux: epilogue 'drelu' needs it"),
        ({"bias": np.ones(2)}, "bias: epilogue 'default' takes none"),
        ({"epilogue": "relu", "clamp": (0, 1)}, "clamp: epilogue 'relu' takes none"),
    ],
)
def test_what_an_oracle_is_not_asked(keywords, named):
    with pytest.raises(rocpy.InvalidProblemError, match=f"^{named}"):
        evaluate(np.ones((2, 2)), np.ones((2, 2)), **keywords)


def test_fields_and_providers_that_there_are_not():
    with pytest.raises(rocpy.InvalidProblemError, match="^dtypo: a case has no such field.*dtype"):
        rocpy.testing.select(dtypo="float32")
    with pytest.raises(rocpy.InvalidProblemError, match="^provider: got 'x', expected numpy"):
        rocpy.testing.run_case(rocpy.testing.select()[0], provider="x")
