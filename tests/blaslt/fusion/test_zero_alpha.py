# SPDX-License-Identifier: MIT
"""With alpha = 0 nothing of a and b, nor of their scales, is in the result, whichever way the epilogue is computed."""

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.testing import ORACLES, evaluate

GRADIENTS = ("bgrada", "bgradb")
BACKWARD = ("drelu_bgrad", "dgelu_bgrad", "dgelu_erf_bgrad", "dsilu_bgrad")
FLOATS = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float64": np.float64,
}


def form_of_function(a, b, **keywords):
    return rocpy.matmul(a, b, **keywords)


def form_of_plan(a, b, **keywords):
    with rocpy.Matmul(a, b, **keywords) as planned:
        return planned.execute()


def form_of_weight(a, b, **keywords):
    with rocpy.Weight(b) as weight:
        return rocpy.matmul(a, weight, **keywords)


FORMS = [form_of_function, form_of_plan, form_of_weight]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("epilogue", GRADIENTS)
@pytest.mark.parametrize("which", ["a", "b"])
def test_sums_along_an_operand(form, dtype, epilogue, which):
    plain = np.arange(6, dtype=np.float32).reshape(2, 3).astype(FLOATS[dtype])
    a, b, c = plain.copy(), plain.T.copy(), np.full((2, 2), 3, FLOATS[dtype])
    (a if which == "a" else b)[...] = np.nan
    d, extra = form(a, b, c=c.copy(), alpha=0.0, epilogue=epilogue)
    np.testing.assert_array_equal(d.astype(np.float64), 3.0)
    sums = {"bgrada": plain.sum(1), "bgradb": plain.T.sum(0)}[epilogue].astype(np.float64)
    summed = np.full(2, np.nan) if epilogue == f"bgrad{which}" else sums
    np.testing.assert_array_equal(extra[epilogue].astype(np.float64), summed)


@pytest.mark.parametrize("epilogue", GRADIENTS)
def test_sums_beside_a_batch_written_into_c(epilogue):
    a, b = np.full((3, 4, 5), np.nan, np.float32), np.ones((3, 5, 6), np.float32)
    c = np.arange(72, dtype=np.float32).reshape(3, 4, 6)
    wanted = 2.0 * c
    d, extra = rocpy.matmul(a, b, c, alpha=0.0, beta=2.0, epilogue=epilogue, out=c)
    assert d is c
    np.testing.assert_array_equal(c, wanted)
    np.testing.assert_array_equal(extra[epilogue], np.nan if epilogue == "bgrada" else np.full((3, 6), 5))


@pytest.mark.parametrize("form", FORMS[:2])
@pytest.mark.parametrize("operand", ["float8_e4m3fn", "int8"])
@pytest.mark.parametrize("scale", [np.nan, np.inf, 1.0])
@pytest.mark.parametrize("epilogue", ["default", *GRADIENTS, *BACKWARD])
def test_scaled_operands(form, operand, scale, epilogue):
    dtype = np.dtype(getattr(ml_dtypes, operand, operand))
    a, b = np.ones((2, 32), dtype), np.ones((32, 3), dtype)
    if operand != "int8":
        a[...] = np.nan
    scales = {"scale_a": np.full(2, scale, np.float32), "scale_b": np.full(3, scale, np.float32)}
    aux = {"aux": np.ones((2, 3), np.float32)} if epilogue in BACKWARD else {}
    result = form(a, b, **scales, **aux, alpha=0.0, epilogue=epilogue, dtype="float32")
    d = result[0] if isinstance(result, tuple) else result
    np.testing.assert_array_equal(d, 0.0)


@pytest.mark.parametrize("alpha", [0.0, 1e-46])
def test_a_factor_that_rounds_to_zero(alpha):
    a, b = np.ones((2, 32), np.int8), np.ones((32, 3), np.int8)
    scales = {"scale_a": np.full(2, np.inf, np.float32), "scale_b": 1.0}
    aux = np.ones((2, 3), np.float32)
    d, _ = rocpy.matmul(a, b, **scales, alpha=alpha, epilogue="dgelu_bgrad", aux=aux, dtype="float32")
    np.testing.assert_array_equal(d, 0.0)


@pytest.mark.parametrize("epilogue", [name for name in ORACLES if not name.startswith(("bgrad", "clamp"))])
def test_the_oracle_reads_neither(epilogue):
    oracle = ORACLES[epilogue]
    keywords = {"bias": np.ones(2)} if oracle.bias else {}
    keywords |= {"aux": np.ones((2, 2))} if oracle.aux_in else {}
    seen = evaluate(np.full((2, 2), np.nan), np.ones((2, 2)), alpha=0.0, epilogue=epilogue, **keywords)
    assert np.isfinite(seen.result).all()
    assert (seen.magnitude == (1.0 if oracle.bias else 0.0)).all()


@pytest.mark.parametrize("scales", [(np.inf, np.nan), (1e30, 1e30)])
@pytest.mark.parametrize("epilogue", ["default", "relu_bias"])
@pytest.mark.parametrize("kind", ["number", "vector"])
def test_scales_multiply_nothing(kind, epilogue, scales):
    """With alpha = 0 and with K = 0; the library multiplies what is left, 0, by its factors."""
    shapes = ((), ()) if kind == "number" else ((3, 1), (1, 4))
    scale_a, scale_b = (np.full(shape, one, np.float32) for shape, one in zip(shapes, scales, strict=True))
    bias, c = np.full(4, 2, np.float32), np.ones((3, 4), np.float32)
    more = {"scale_a": scale_a, "scale_b": scale_b, "dtype": "float32", "epilogue": epilogue}
    more |= {"bias": bias} if epilogue == "relu_bias" else {}
    wanted = np.full((3, 4), 3.0 if epilogue == "relu_bias" else 1.0)
    for k, alpha in ((0, 1.0), (32, 0.0)):
        a, b = (np.ones(shape, ml_dtypes.float8_e4m3fn) for shape in ((3, k), (k, 4)))
        np.testing.assert_array_equal(rocpy.matmul(a, b, c, alpha=alpha, **more), wanted)
        more_in_groups = {key: value for key, value in more.items() if key != "bias"}
        bias_of_groups = {"bias": [bias]} if "bias" in more else {}
        d = rocpy.grouped_matmul([a], [b], alpha=alpha, **more_in_groups, **bias_of_groups)[0]
        np.testing.assert_array_equal(d, wanted - 1)
