# SPDX-License-Identifier: MIT
"""A made-up epilogue: "mish" and "mish_bias", y tanh(ln(1 + exp(y))), which no library fuses."""

from __future__ import annotations

from edits import insert_before

ROWS = "rocpy/blaslt/model/epilogues.py"
FORMULA = "rocpy/blaslt/composed/product.py"
ORACLE = "rocpy/testing/oracles.py"
FILES = (ROWS, FORMULA, ORACLE)

COMPOSED = """def _mish(framework: Framework, x: Any) -> Any:
    # tanh(ln(1 + e)) is n / (n + 2) with n = e (e + 2); beyond 20 it is 1 in every type.
    e = framework.module.exp(framework.clamp(x, -2000.0, 20.0))
    n = e * (e + 2.0)
    return _negligible(framework, x, x * (n / (n + 2.0)))


"""

COMPUTED = '''def mish(x: Array) -> Array:
    """Return x tanh(ln(1 + exp(x))), with its limit at minus infinity."""
    with np.errstate(invalid="ignore"):
        y = x * np.tanh(np.logaddexp(0.0, x))
    return np.where(np.isneginf(x), -0.0, y)


def mish_gradient(x: Array) -> Array:
    """Return the derivative of `mish`; 0 and 1 at the infinities."""
    t = np.tanh(np.logaddexp(0.0, x))
    with np.errstate(invalid="ignore"):
        slope = x * sigmoid(x) * (1.0 - t * t)
    return t + np.where(np.abs(x) > 800.0, 0.0, slope)


'''

TEST = '''# SPDX-License-Identifier: MIT
"""The made-up epilogue gives what its oracle says, of each type and in each framework."""

import numpy as np
import pytest

import rocpy
from rocpy.testing import Case, oracles, run_case


@pytest.mark.parametrize("epilogue", ["mish", "mish_bias"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_mish(epilogue, dtype, layout):
    result = run_case(Case(9, 12, 7, dtype=dtype, layout=layout, epilogue=epilogue))
    assert result.ok, result.message


def test_limits():
    ends = np.array([[-np.inf, -2000.0, -1.0, 0.0, 30.0, np.inf, np.nan]])
    found = rocpy.matmul(np.ones((1, 1)), ends, epilogue="mish")
    np.testing.assert_allclose(found, oracles.mish(ends), rtol=1e-14, atol=1e-300)


def test_bounds_of_the_derivatives():
    x, smooth, h = np.linspace(-12, 12, 100_001), oracles.SMOOTH["mish"], 1e-6
    first = (oracles.mish(x + h) - oracles.mish(x - h)) / (2 * h)
    np.testing.assert_allclose(smooth.derivative(x), first, atol=1e-8)
    second = (smooth.derivative(x + h) - smooth.derivative(x - h)) / (2 * h)
    assert smooth.steepest * 0.99 < np.abs(first).max() <= smooth.steepest
    assert smooth.curvature * 0.95 < np.abs(second).max() <= smooth.curvature
'''
TESTS = (
    "tests/blaslt/products/test_oracles.py::test_every_epilogue_has_an_oracle_and_cases",
    "tests/blaslt/products/test_matmul_cases.py::test_epilogues_without_an_enumerator_are_composed_or_refused[mish]",
    "tests/blaslt/products/test_matmul_cases.py::test_epilogue_rows_agree_with_the_oracles[mish_bias]",
    "tests/blaslt/fusion/test_supported.py",
    "tests/jax/test_gradients.py::test_every_epilogue[mish_bias]",
    "tests/torch/test_gradients.py::test_every_epilogue[a0-b0-mish]",
    "tests/test_tables.py",
    "tests/unit/test_what_is_shown.py",
)


def change(texts: dict[str, str]) -> dict[str, str]:
    """Return the files with the epilogue."""

    def edited(path: str, *insertions: tuple[str, str]) -> str:
        found = texts
        for line, text in insertions:
            found = {path: insert_before(found, path, line, text)}
        return found[path]

    row = '    EpilogueRow("mish{}", None, "y tanh(ln(1 + exp(y)))"{}),\n'
    return {
        ROWS: edited(
            ROWS,
            (
                '    EpilogueRow("clamp", ',
                row.format("", "") + row.format("_bias", ", bias=True"),
            ),
            ('    CLAMP = "clamp"\n', '    MISH = "mish"\n    MISH_BIAS = "mish_bias"\n'),
            (
                '    "gelu_erf", "gelu_erf_bias", "clamp",',
                '    "mish", "mish_bias", Epilogue.MISH, Epilogue.MISH_BIAS,\n',
            ),
        ),
        FORMULA: edited(
            FORMULA,
            ("_ACTIVATIONS: dict[str", COMPOSED),
            ('    "silu": _silu,\n', '    "mish": _mish,\n'),
        ),
        ORACLE: edited(
            ORACLE,
            ("def relu(x: Array)", COMPUTED),
            ('    "drelu": lambda e:', '    "mish": mish,\n'),
            ('    "sigmoid": Smooth(', '    "mish": Smooth(mish_gradient, 1.09, 0.66, 8.0),\n'),
            (
                '    "clamp": Oracle("clamp"),\n',
                '    "mish": Oracle("mish"),\n    "mish_bias": Oracle("mish", bias=True),\n',
            ),
        ),
    }
