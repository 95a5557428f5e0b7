# SPDX-License-Identifier: MIT
"""Epilogues of the user's on products of quantized operands: every way computes them, with the scales."""

from __future__ import annotations

import numpy as np
import pytest
from presented import is_composed

import rocpy
from rocpy.testing import Case, evaluate, make_operands

EPILOGUES = {
    "bias": lambda x, s: np.maximum(x + s, 0),
    "addend": lambda x, s: x * 0.5 + s * 2,
    "rest": lambda x, s: np.tanh(x / 64) * s,
}


@pytest.mark.parametrize("platform", ["with programs", "without programs"])
@pytest.mark.parametrize("scale", ["scalar", "vector", "block32"])
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_each_way_heeds_the_scales(epilogue, scale, platform, rng, request):
    if platform == "without programs":
        request.getfixturevalue("without_programs")
    case = Case(9, 16, 64, "float8_e4m3fn", "float32", scale=scale)
    operands = make_operands(case, rng)
    plain = evaluate(**operands).result
    a, b = operands.pop("a"), operands.pop("b")
    inputs = {"s": rng.standard_normal((9, 16), dtype=np.float32)}
    wanted = EPILOGUES[epilogue](plain, inputs["s"].astype(np.float64))
    bound = 1e-4 * np.abs(plain).max()
    arguments = dict(epilogue=rocpy.epilogue(EPILOGUES[epilogue]), epilogue_inputs=inputs, dtype="float32", **operands)
    with rocpy.Matmul(a, b, **arguments) as mm:
        ways = {one.lowering for one in mm.plan()}
        composed = is_composed("float8_e4m3fn", dtype="float32", scale_a=scale, scale_b=scale)
        assert ("native" in ways) == (not composed and epilogue != "rest")
        for one in mm.algorithms:
            np.testing.assert_allclose(mm.execute(algorithm=one), wanted, rtol=1e-5, atol=bound)
