# SPDX-License-Identifier: MIT
"""Epilogues that hipBLASLt has no number for, fused by tile programs: types, layouts, algorithms, what is said."""

import numpy as np
import pytest
from epilogue_shapes import SHAPES

import rocpy
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.testing import Case, evaluate, run_case
from rocpy.testing.cases import DTYPES
from tests.support.presented import is_native

FUSED = tuple(name for name, row in EPILOGUES.items() if row.program)


def fused_cases():
    for epilogue in FUSED:
        for dtype in DTYPES:
            for extra in SHAPES:
                yield Case(13, 22, 19, dtype, epilogue=epilogue, **extra)
        yield Case(13, 22, 19, "bfloat16", "float32", epilogue=epilogue)
        yield Case(70, 130, 260, "float32", epilogue=epilogue)


@pytest.mark.parametrize("case", list(fused_cases()), ids=lambda case: case.name)
def test_fused_products_are_within_bounds(case):
    result = run_case(case)
    assert result.ok, result.message


@pytest.mark.parametrize("epilogue", FUSED)
def test_every_algorithm(epilogue, rng):
    if is_native("float32", epilogue=epilogue):
        pytest.skip("this release has an enumerator for it")
    row = EPILOGUES[epilogue]
    for m, n, k in ((3, 300, 40), (40, 70, 50), (20, 24, 9000)):
        a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
        given = {"bias": rng.standard_normal(n, np.float32)} if row.bias else {}
        given |= {"aux": rng.standard_normal((m, n), np.float32)} if row.aux == "load" else {}
        with rocpy.Matmul(a, b, epilogue=epilogue, **given) as mm:
            found = mm.plan(max_algorithms=64)
            assert {one.lowering for one in found} == {"fused"}
            results = [mm.execute(algorithm=one) for one in found]
        wanted = evaluate(a, b, epilogue=epilogue, **given)
        for result in results:
            parts = result if row.outputs else (result, {})
            np.testing.assert_allclose(parts[0], wanted.result, rtol=1e-4, atol=2e-5 * np.sqrt(k) * 4)
            for key, value in parts[1].items():
                np.testing.assert_allclose(value, wanted.aux[key], rtol=1e-3, atol=2e-5 * np.sqrt(k) * 4 * np.sqrt(m))


def test_forward_and_gradient_fit_together(rng):
    x, w, bias = (
        rng.standard_normal((9, 12), np.float32),
        rng.standard_normal((12, 15), np.float32),
        rng.standard_normal(15, np.float32),
    )
    y, aux = rocpy.matmul(x, w, epilogue="gelu_erf_aux_bias", bias=bias)
    assert list(aux) == ["gelu_erf_aux"]
    np.testing.assert_array_equal(y, rocpy.matmul(x, w, epilogue="gelu_erf_bias", bias=bias))
    np.testing.assert_array_equal(aux["gelu_erf_aux"], rocpy.matmul(x, w, epilogue="bias", bias=bias))
    g, v = rng.standard_normal((9, 7), np.float32), rng.standard_normal((7, 15), np.float32)
    d, sums = rocpy.matmul(g, v, epilogue="dgelu_erf_bgrad", aux=aux)
    np.testing.assert_allclose(sums["bgrad"], d.sum(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(d, rocpy.matmul(g, v, epilogue="dgelu_erf", aux=aux))


def test_what_is_said_of_them(rng):
    x = rng.standard_normal((4, 4), np.float32)
    found = rocpy.explain(x, x, epilogue="gelu_erf_bias", bias=x[0])
    assert found.algorithm.lowering == "fused"
    assert found.unfused == ""
    answer = rocpy.blaslt.supported("float32", epilogue="dsilu_bgrad", options={"fallback": "error"})
    assert answer.lowering == "fused"
    assert not answer.reasons
    batch = rocpy.blaslt.supported("float32", epilogue="gelu_erf", options={"reproducible": "batch"})
    assert batch.lowering == "fused"


def test_special_values():
    x = np.array([[np.inf, -np.inf, np.nan, 0.0, -200.0]], np.float32)
    one = np.ones((1, 1), np.float32)
    for epilogue in ("gelu_erf", "silu_aux"):
        found = rocpy.matmul(one, x, epilogue=epilogue)
        found = found[0] if isinstance(found, tuple) else found
        np.testing.assert_array_equal(found, [[np.inf, 0.0, np.nan, 0.0, 0.0]])


def test_weights_scales_and_groups(rng):
    x, w, bias = (
        rng.standard_normal((9, 32), np.float32),
        rng.standard_normal((32, 48), np.float32),
        rng.standard_normal(48, np.float32),
    )
    plain = rocpy.matmul(x, w, epilogue="gelu_erf_bias", bias=bias)
    np.testing.assert_allclose(
        rocpy.matmul(x, rocpy.Weight(w, bias=bias), epilogue="gelu_erf_bias"), plain, rtol=1e-5, atol=1e-5
    )
    a, scale_a = rocpy.quantize(x, "float8_e4m3fn")
    b, scale_b = rocpy.quantize(w, "float8_e4m3fn")
    seen = rocpy.matmul(a, b, scale_a=scale_a, scale_b=scale_b, epilogue="gelu_erf", dtype="float32")
    wide = rocpy.dequantize(a, scale_a, "float64") @ rocpy.dequantize(b, scale_b, "float64")
    np.testing.assert_allclose(seen, evaluate(wide, np.eye(48), epilogue="gelu_erf").result, rtol=1e-5, atol=1e-5)
    marks = [0, 4, 4, 9]
    groups = rocpy.grouped_matmul(x, np.stack([w, 2 * w, 3 * w]), offsets=marks, epilogue="gelu_erf")
    for group, (low, high) in enumerate(((0, 4), (4, 4), (4, 9))):
        np.testing.assert_allclose(
            groups[low:high], rocpy.matmul(x[low:high], (group + 1) * w, epilogue="gelu_erf"), rtol=1e-5, atol=1e-5
        )
