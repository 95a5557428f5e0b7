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


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "int8", "float4_e2m1fn"])
@pytest.mark.parametrize("name", ["scale_a", "scale_b", "a", "b"])
@pytest.mark.parametrize("epilogue", ["bias", "rest"])
def test_arrays_of_scales_can_be_reset(epilogue, name, kind, rng):
    conversion = rocpy.quantize_mx if kind == "float4_e2m1fn" else rocpy.quantize
    operands, others = {}, {}
    for which, shape, axis in (("a", (4, 32), -1), ("b", (32, 8), -2)):
        operands[which], operands[f"scale_{which}"] = conversion(rng.standard_normal(shape), kind, axis=axis)
        others[which], others[f"scale_{which}"] = conversion(3 * rng.standard_normal(shape), kind, axis=axis)
    function = rocpy.epilogue(EPILOGUES[epilogue])
    arguments = {"epilogue": function, "epilogue_inputs": {"s": np.float32(3)}, "dtype": "float32"}
    changed = {one: others[one] for one in (name, f"scale_{name}") if one in others}
    new = operands | changed
    expected = rocpy.matmul(new.pop("a"), new.pop("b"), **new, **arguments)
    with rocpy.Matmul(operands.pop("a"), operands.pop("b"), **operands, **arguments) as mm:
        mm.execute()
        mm.reset_operands(**changed)
        np.testing.assert_array_equal(mm.execute(), expected)
