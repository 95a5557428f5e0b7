# SPDX-License-Identifier: MIT
"""rocpy.testing: comparisons beside infinity and NaN, names and documents of cases, and what is refused."""

import dataclasses
import json

import numpy as np
import pytest

import rocpy
from rocpy import testing

INFINITY = np.inf
NAN = np.nan


def outcome(actual, expected, bound):
    """Whether a comparison passes; what fails has a message."""
    result = testing.compare(actual, expected, bound)
    assert result.ok == (result.message == "")
    assert result.ok == (result.ratio <= 1.0)
    return result.ok


EPILOGUES = [
    ("default", {}),
    ("relu", {}),
    ("gelu", {}),
    ("gelu_erf", {}),
    ("silu", {}),
    ("sigmoid", {}),
    ("clamp", {"clamp": (-0.7, 0.7)}),
    ("drelu", {"aux": np.array([[-1.0]])}),
    ("drelu_bgrad", {"aux": np.array([[-1.0]])}),
    ("dgelu", {"aux": np.array([[1.0]])}),
]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("factor", [INFINITY, -INFINITY, NAN])
@pytest.mark.parametrize(("epilogue", "more"), EPILOGUES, ids=[name for name, _ in EPILOGUES])
def test_what_an_epilogue_makes_of_infinity_and_nan(epilogue, more, factor, dtype):
    expected = testing.evaluate(np.array([[factor]]), np.array([[1.0]]), epilogue=epilogue, **more)
    limits = testing.bounds(expected, dtype)
    for name, oracle in {"result": expected.result, **expected.aux}.items():
        right = oracle.astype(dtype)
        assert outcome(right, oracle, limits[name])
        for value in (INFINITY, -INFINITY, NAN, 777.0, -3e4, np.finfo(dtype).max):
            if not np.array_equal(right.ravel(), np.array([value], dtype), equal_nan=True):
                assert not outcome(np.full(oracle.shape, value, dtype), oracle, limits[name])


@pytest.mark.parametrize("bound", [INFINITY, NAN, 0.0])
@pytest.mark.parametrize("expected", [0.0, 1.0, INFINITY, -INFINITY, NAN])
@pytest.mark.parametrize("actual", [0.0, 1.0, 777.0, INFINITY, -INFINITY, NAN])
def test_a_bound_that_is_not_finite_allows_no_error(actual, expected, bound):
    same = actual == expected or (np.isnan(actual) and np.isnan(expected))
    assert outcome([actual], [expected], bound) == same
    assert outcome(np.array([actual + 0j]), np.array([expected + 0j]), [bound]) == same


def test_lists_are_compared():
    assert outcome([1.0, 2.0], [1.0, 2.5], 0.5)
    assert not outcome([1.0, 2.0], [1.0, 2.5], [0.5, 0.1])


@pytest.mark.parametrize(
    ("actual", "bound", "error", "match"),
    [
        (np.zeros(3), np.zeros((2, 3)), rocpy.InvalidProblemError, r"bound: got shape \(2, 3\)"),
        (np.zeros(3), np.zeros(2), rocpy.InvalidProblemError, r"bound: got shape \(2,\)"),
        (["a"], 0.0, rocpy.InvalidOperandError, "actual: got an array of <U1"),
        (None, 0.0, rocpy.InvalidOperandError, "actual: got an array of object"),
        ([1.0], None, rocpy.InvalidOperandError, "bound: got an array of object"),
    ],
)
def test_what_cannot_be_compared_is_refused_by_name(actual, bound, error, match):
    with pytest.raises(error, match=match):
        testing.compare(actual, actual, bound)


@pytest.mark.torch
def test_tensors_are_compared():
    torch = pytest.importorskip("torch")
    result = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
    assert outcome(result, torch.ones(3), torch.zeros(3))
    assert not outcome(result, np.full(3, 1.5), torch.full((3,), 0.25, requires_grad=True))


@pytest.mark.parametrize("field", ["alpha", "beta", "scale_d", "alpha_imaginary"])
def test_cases_of_other_numbers_have_other_names(field):
    numbers = [2.0, 2.00000001, 1e-300, 0.1 + 0.2, 0.3, 123456789.0, 123456788.0, INFINITY, NAN]
    chosen = [testing.Case(2, 2, 2, **{field: number}) for number in numbers]
    assert len({case.name for case in chosen}) == len(numbers)
    assert dataclasses.replace(chosen[0], group="edges").name == chosen[0].name


def test_documents_of_cases_are_json():
    def refuse(constant):
        raise AssertionError(constant)

    case = testing.Case(2, 2, 2, alpha=INFINITY, beta=-INFINITY, scale_d=INFINITY)
    (row,) = json.loads(testing.to_json([case]), parse_constant=refuse)
    assert testing.Case.from_dict(row) == case
    report = testing.run_selftest(selection=[case, testing.Case(2, 2, 2, alpha=NAN)], with_algorithms=False)
    json.loads(json.dumps(report), parse_constant=refuse)


def test_values_of_fields_as_others_write_them():
    assert testing.select(dtype=np.float32) == testing.select(dtype=rocpy.dtypes.float32) != ()
    assert testing.select(dtype=np.float32) == testing.select(dtype="float32")
    assert testing.select(batch_a=[2]) == testing.select(batch_a=(2,)) != ()
    assert testing.select("quick", group="decode") == ()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [("dtype", "flot32", "float32"), ("epilogue", "rleu", "relu"), ("group", "edgse", "edges"), ("bias", "rwo", "row")],
)
def test_a_text_that_no_case_has(field, value, words):
    with pytest.raises(rocpy.InvalidProblemError, match=f"^{field}: no case has '{value}'; did you mean '{words}'"):
        testing.select(**{field: value})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dtype": "flot32"}, "dtype: there is no dtype 'flot32'; did you mean 'float32'"),
        ({"dtype": np.float32}, "dtype: got .*, expected the name of a dtype"),
        ({"out_dtype": "flot32"}, "out_dtype: "),
        ({"dtype_b": "flot32"}, "dtype_b: "),
        ({"epilogue": "rleu"}, "epilogue: "),
        ({"layout": "nz"}, "layout: got 'nz', expected two letters of 'ntpqxr'"),
        ({"layout": "nnn"}, "layout: "),
        ({"bias": "rwo", "epilogue": "bias"}, "bias: got 'rwo', expected 'row', 'column', 'batch'; did you mean 'row'"),
        ({"data": "integer"}, "data: "),
        ({"scale": "vectr"}, "scale: "),
    ],
)
def test_a_case_that_there_cannot_be(fields, words):
    case = testing.Case(2, 2, 2, **fields)
    for call in (testing.run_case, testing.make_operands):
        with pytest.raises(rocpy.InvalidProblemError, match=f"^{words}"):
            call(case)


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, "a, b"),
        ({"beta": 1.0}, "a, b, c"),
        ({"epilogue": "gelu_bias"}, "a, b, bias"),
        ({"epilogue": "drelu"}, "a, b, aux"),
        ({"scale": "scalar"}, "a, b, scale_a, scale_b"),
    ],
)
def test_operands_that_a_case_lacks(fields, names):
    with pytest.raises(rocpy.InvalidProblemError, match=f"^operands: .* needs {names}, too"):
        testing.run_case(testing.Case(2, 2, 2, **fields), operands={})


def test_shapes_scales_and_tiers_that_fit_nothing():
    a = np.ones((4, 4), np.float32)
    with pytest.raises(rocpy.InvalidProblemError, match=r"^a and b: shapes \(4, 4\) and \(3, 3\)"):
        testing.evaluate(a, np.ones((3, 3)))
    with pytest.raises(rocpy.InvalidProblemError, match="^scale_b: does not fit the operand"):
        testing.evaluate(a, a, scale_b=[1, 2])
    with pytest.raises(rocpy.InvalidProblemError, match="^tier: got array"):
        testing.select(tier=a)
    with pytest.raises(rocpy.InvalidOperandError, match="^selection: got ndarray"):
        testing.to_json(np.array(3))
