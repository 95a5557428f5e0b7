# SPDX-License-Identifier: MIT
"""Random epilogues: every way to compute a product with one is within a derived bound of the function on float64."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rocpy
from rocpy.epilogues.expressions.resolve import resolve
from rocpy.epilogues.lowering.hip import kernel_source
from rocpy.epilogues.lowering.tile import encode
from rocpy.epilogues.lowering.triton import text_of
from rocpy.testing import expressions
from rocpy.testing.tolerance import FORMATS, compare, gamma, ulp

QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LONG = settings(max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
DTYPES = {"float32": np.float32, "float64": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@st.composite
def problems(draw):
    """A function's text with its inputs, the seed of the operands, a dtype and extents."""
    text, names = expressions.random_text(lambda count: draw(st.integers(0, count - 1)), draw(st.integers(1, 8)))
    extents = tuple(draw(st.sampled_from((1, 2, 5, 16, 31, 48, 65))) for _ in range(3))
    return text, names, draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from(tuple(DTYPES))), extents


def operands(seed, dtype, extents):
    m, n, k = extents
    rng = np.random.default_rng(seed)
    shapes = {"a": (m, k), "b": (k, n), "row": (n,), "column": (m, 1), "full": (m, n), "scalar": ()}
    return {name: rng.standard_normal(shape).astype(DTYPES[dtype]) for name, shape in shapes.items()}


def product_and_distance(a, b, compute):
    """Rule 1 of rocpy.testing.tolerance, for a product with nothing beside it."""
    count = a.shape[-1] + 6
    a, b = a.astype(np.float64), b.astype(np.float64)
    relative = gamma(count, 2.0 ** -(FORMATS[compute].fraction_bits + 1)) + gamma(count, 2.0**-53)
    return a @ b, relative * (np.abs(a) @ np.abs(b))


def check(problem, max_unknown=0.5):
    text, names, seed, dtype, extents = problem
    function = expressions.function_of(text, names)
    epilogue = rocpy.epilogue(function)
    arrays = operands(seed, dtype, extents)
    compute = "float64" if dtype == "float64" else "float32"
    x, dx = product_and_distance(arrays["a"], arrays["b"], compute)
    inputs = {name: arrays[name] for name in names}
    with np.errstate(all="ignore"):
        expected = np.broadcast_to(function(x, *(arrays[name].astype(np.float64) for name in names)), x.shape)
        ((value, error),) = expressions.bounded(epilogue.expression, x, dx, inputs, compute)
        # The bound is one of the same function.
        np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-9)
        bound = error + 0.5 * ulp(np.abs(expected) + error, DTYPES[dtype])
    known = np.isfinite(bound)
    with rocpy.Matmul(arrays["a"], arrays["b"], epilogue=epilogue, epilogue_inputs=inputs) as mm:
        ways = {one.lowering: one for one in mm.plan()}
        results = {lowering: mm.execute(algorithm=one) for lowering, one in ways.items()}
    results["function form"] = rocpy.matmul(arrays["a"], arrays["b"], epilogue=epilogue, epilogue_inputs=inputs)
    for lowering, d in results.items():
        assert d.dtype == DTYPES[dtype], lowering
        actual = np.where(known, d.astype(np.float64), 0.0).astype(d.dtype)
        found = compare(actual, np.where(known, expected, 0.0), np.where(known, bound, 1.0), name=lowering)
        assert found.ok, f"{found.message}\n{epilogue}"
    return set(ways)


@QUICK
@given(problems())
def test_every_lowering_against_the_function_on_float64(problem):
    assert "unfused" in check(problem)


@pytest.mark.slow
@LONG
@given(problems())
def test_every_lowering_at_length(problem):
    check(problem)


def test_the_bound_notices_a_wrong_operation(rng):
    epilogue = rocpy.epilogue(lambda x, row: np.tanh(x + row) * 0.5)
    x, row = rng.standard_normal((7, 5)), rng.standard_normal(5).astype(np.float32)
    ((value, error),) = expressions.bounded(epilogue.expression, x, 1e-6, {"row": row})
    assert compare(value.astype(np.float32), value, error + ulp(value, np.float32)).ok
    assert not compare((value * 1.001).astype(np.float32), value, error + ulp(value, np.float32)).ok


def texts_of(function, dtype):
    """Return what each generated lowering makes of a function: its instructions, or its text without the comment."""
    epilogue = rocpy.epilogue(function)
    resolved = resolve(epilogue.expression, dtype, {})
    hip = [line for line in kernel_source(resolved).source.splitlines() if not line.startswith("//")]
    return encode(resolved).instructions, hip, text_of(epilogue, dtype, "nn", {}).text


@pytest.mark.parametrize(
    ("function", "same"),
    [
        (lambda x: np.clip(np.tanh(x), 0.25, None), lambda x: np.maximum(np.tanh(x), 0.25)),
        (lambda x: np.clip(np.tanh(x), None, 0.25), lambda x: np.minimum(np.tanh(x), 0.25)),
        (lambda x: x * np.array(0.1), lambda x: x * 0.1),
        (lambda x: x + np.array(2, np.int8), lambda x: x + 2.0),
        (lambda x: np.where(x > np.array(0.25, np.float32), x, np.array(1.5)), lambda x: np.where(x > 0.25, x, 1.5)),
        (lambda x: (x * 1.0) ** -2 + 0 * x, lambda x: x ** np.array(-2) + 0 * x),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_means_the_same_is_generated_alike(function, same, dtype):
    assert texts_of(function, dtype) == texts_of(same, dtype)
