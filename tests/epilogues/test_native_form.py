# SPDX-License-Identifier: MIT
"""The library's epilogue takes the place of a function only where it keeps NaN, infinities and float32's range."""

import numpy as np
import pytest

import rocpy

ONE = np.ones((1, 1), np.float32)
VALUES = [np.nan, np.inf, -np.inf, 3.0e38, -3.0e38, 1e38, 1e-35, -1e-35, 1e-40, 1.0, 0.0]


def stepwise(function, x, *inputs):
    with np.errstate(all="ignore"):
        return function(np.full((1, 1), x, np.float32), *inputs)[0, 0]


FACTORS = [
    lambda x: x / 1e30 / 1e30,
    lambda x: x * 1e30 * 1e30,
    lambda x: x * 1e30 * 1e-30,
    lambda x: x * 1e-30 * 1e30,
    lambda x: x / 1e-30 / 1e30,
    lambda x: x * 1e-46,
    lambda x: x * 1e46,
    lambda x: x / 1e-46,
    lambda x: x / 1e46,
    lambda x: x * 1e-40,
    lambda x: x * 0.5 * 4.0,
    lambda x: -x * 2.0 * 4.0,
    lambda x: x / 2.0 * 0.25,
    lambda x: x + x,
    lambda x: x + x - x,
    lambda x: x * 2.0 - x,
    lambda x: x - x * 0.5,
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("place", range(len(FACTORS)))
def test_factors(place, value):
    function = FACTORS[place]
    d = rocpy.matmul(np.full((1, 1), value, np.float32), ONE, epilogue=rocpy.epilogue(function))[0, 0]
    # Up to the precision of the numbers below the normal ones, which one step loses less of.
    np.testing.assert_allclose(d, stepwise(function, value), rtol=1e-6, atol=1e-44)


SUMS = [
    lambda x, r: x + r - r,
    lambda x, r: x - r + r,
    lambda x, r: r + x + r,
    lambda x, r: x + r + r - 2 * r,
    lambda x, r: x + (r - r),
    lambda x, r: (x + r) * 0.5,
    lambda x, r: (x - r) * 2.0,
    lambda x, r: (x + r) / 4,
    lambda x, r: -(x + r),
    lambda x, r: x * 0.5 - r,
    lambda x, r: np.maximum(x + r - r, 0),
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("x", [1.0, 3e38])
@pytest.mark.parametrize("place", range(len(SUMS)))
def test_terms(place, x, value):
    function, r = SUMS[place], np.full((1, 1), value, np.float32)
    d = rocpy.matmul(np.full((1, 1), x, np.float32), ONE, epilogue=rocpy.epilogue(function), epilogue_inputs={"r": r})[
        0, 0
    ]
    np.testing.assert_allclose(d, stepwise(function, x, r), rtol=1e-6, atol=1e-44)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, r: x * 2 + r,
        lambda x, r: x / 4 * 0.5 + r,
        lambda x, r: x - 2 * r,
        lambda x, r: -(x - r),
        lambda x, r: np.maximum(r / 2 - -x * 3.0, 0),
    ],
)
def test_these_are_the_librarys_own(function, rng):
    if rocpy.blaslt.supported("float32", epilogue="relu").lowering != "native":
        pytest.skip("the release has no epilogue relu")
    a, b, r = (rng.standard_normal((4, 4), dtype=np.float32) for _ in range(3))
    epilogue = rocpy.epilogue(function)
    how = rocpy.explain(a, b, epilogue=epilogue, epilogue_inputs={"r": r})
    assert how.algorithm.lowering == "native"
    d = rocpy.matmul(a, b, epilogue=epilogue, epilogue_inputs={"r": r})
    np.testing.assert_allclose(d, function(a @ b, r), rtol=1e-4, atol=1e-5)
