# SPDX-License-Identifier: MIT
"""Dtypes: defaults, what `dtype=` may ask for, rounding, and the arithmetic of special values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.testing import evaluate, oracles
from rocpy.testing.cases import DTYPES
from rocpy.testing.runner import check_outputs, dtype_of

NARROW = ("float16", "bfloat16")


@pytest.mark.parametrize("name", DTYPES)
def test_the_result_has_the_operands_dtype(name):
    a = np.ones((3, 3), dtype=dtype_of(name))
    assert rocpy.matmul(a, a).dtype == dtype_of(name)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("wanted", ["float32", np.float32, np.dtype("float32")])
def test_narrow_operands_give_float32_on_request(name, wanted, rng):
    a, b = (rng.standard_normal((9, 9)).astype(dtype_of(name)) for _ in range(2))
    d = rocpy.matmul(a, b, dtype=wanted)
    assert d.dtype == np.float32
    assert check_outputs(evaluate(a, b), d, np.float32)["result"].ok


def test_a_dtype_may_be_asked_for_that_is_the_default():
    a = np.ones((3, 3), dtype=ml_dtypes.bfloat16)
    for wanted in ("bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)):
        assert rocpy.matmul(a, a, dtype=wanted).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("operand", "wanted"), [("float32", "float16"), ("float64", "float32"), ("float16", "bfloat16")]
)
def test_impossible_result_dtypes_are_refused(operand, wanted):
    a = np.ones((3, 3), dtype=dtype_of(operand))
    with pytest.raises(rocpy.UnsupportedError, match=f"{operand} product cannot return {wanted}"):
        rocpy.matmul(a, a, dtype=wanted)


@pytest.mark.parametrize("wanted", ["float33", 7, object(), "int99"])
def test_names_that_are_no_dtype_are_refused(wanted):
    a = np.ones((3, 3), dtype=np.float32)
    with pytest.raises(
        (rocpy.InvalidProblemError, rocpy.UnsupportedError, rocpy.InvalidOperandError), match=r"dtype|float33"
    ):
        rocpy.matmul(a, a, dtype=wanted)


@pytest.mark.parametrize("kind", ["int32", "uint8", "bool", "int16", "longdouble", "datetime64[s]", "S4", "object"])
def test_dtypes_that_have_no_product_are_refused(kind):
    a = np.ones((3, 3)).astype(kind)
    with pytest.raises((rocpy.UnsupportedError, rocpy.InvalidOperandError), match="a"):
        rocpy.matmul(a, a)


def test_mixed_dtypes_are_refused():
    a, b = np.ones((3, 3), dtype=np.float32), np.ones((3, 3), dtype=np.float64)
    with pytest.raises(rocpy.InvalidProblemError, match="a is float32 and b is float64"):
        rocpy.matmul(a, b)
    with pytest.raises(rocpy.InvalidProblemError, match="c is float64"):
        rocpy.matmul(a, a, b)
    with pytest.raises(rocpy.InvalidProblemError, match="bias is float64"):
        rocpy.matmul(a, a, epilogue="bias", bias=b[0])
    with pytest.raises(rocpy.InvalidProblemError, match="aux is float64"):
        rocpy.matmul(a, a, epilogue="drelu", aux=b)


@pytest.mark.parametrize("name", NARROW)
def test_a_bias_may_be_float32(name, rng):
    a, b = (rng.standard_normal((9, 9)).astype(dtype_of(name)) for _ in range(2))
    bias = rng.standard_normal(9, dtype=np.float32)
    d = rocpy.matmul(a, b, epilogue="gelu_bias", bias=bias)
    assert check_outputs(evaluate(a, b, epilogue="gelu_bias", bias=bias), d, dtype_of(name))["result"].ok


def test_foreign_byte_order_is_refused_or_right(rng):
    a = rng.standard_normal((5, 5), dtype=np.float32)
    swapped = a.astype(">f4")
    try:
        d = rocpy.matmul(swapped, swapped)
    except (rocpy.InvalidOperandError, rocpy.UnsupportedError):
        pass
    else:
        assert check_outputs(evaluate(a, a), d, np.float32)["result"].ok


def test_tf32_is_a_float32_option(rng):
    a, b = (rng.standard_normal((9, 40), dtype=np.float32) for _ in range(2))
    d = rocpy.matmul(a, b.T, compute="tf32")
    # Operands may be rounded to 11 bits; the sum of K products errs by 2 * 2^-11 of the magnitudes.
    assert (np.abs(d - a @ b.T) <= 2.0**-10 * 1.01 * (np.abs(a) @ np.abs(b.T))).all()
    with pytest.raises(rocpy.UnsupportedError, match="tf32"):
        rocpy.matmul(a.astype(np.float64), b.T.astype(np.float64), compute="tf32")
    with pytest.raises((rocpy.UnsupportedError, rocpy.InvalidProblemError), match="compute"):
        rocpy.matmul(a, b.T, compute="float8")


@pytest.mark.parametrize("name", NARROW)
def test_sums_are_made_in_float32(name):
    # In 16 bits the sum would stop growing at 2048 (float16) or 256 (bfloat16).
    a = np.ones((1, 4096), dtype=dtype_of(name))
    assert float(rocpy.matmul(a, a.T)[0, 0]) == 4096


@pytest.mark.parametrize("name", NARROW)
def test_results_round_to_nearest_even_once(name):
    dtype = dtype_of(name)
    bits = {"float16": 10, "bfloat16": 7}[name]
    # 1 + h is halfway between 1 and the next number, 1 + 3h between that and the one after: ties go to the even one.
    h = 2.0 ** -(bits + 1)
    a = np.array([[1.0, 1.0]], dtype=dtype)
    for tail, expected in ((h, 1.0), (3 * h, 1 + 4 * h), (h * 1.25, 1 + 2 * h), (-h / 2, 1.0)):
        b = np.array([[1.0], [tail]], dtype=dtype)
        assert float(rocpy.matmul(a, b)[0, 0]) == expected


def test_overflow_becomes_infinity():
    a = np.full((2, 2), 300.0, dtype=np.float16)
    assert np.isposinf(rocpy.matmul(a, a).astype(np.float32)).all()
    assert np.isneginf(rocpy.matmul(a, -a).astype(np.float32)).all()
    assert rocpy.matmul(a, a, dtype="float32")[0, 0] == 180000


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64"])
def test_subnormal_results_are_kept(name):
    dtype = dtype_of(name)
    info = ml_dtypes.finfo(dtype)
    tiny = np.full((1, 1), float(info.smallest_normal), dtype=dtype)
    half = np.full((1, 1), 0.5, dtype=dtype)
    assert float(rocpy.matmul(tiny, half)[0, 0]) == float(info.smallest_normal) / 2
    least = np.full((1, 1), float(info.smallest_subnormal), dtype=dtype)
    assert float(rocpy.matmul(least, np.ones((1, 1), dtype=dtype))[0, 0]) == float(info.smallest_subnormal)


def test_the_callers_floating_point_mode_is_left_alone():
    a = np.ones((64, 64), dtype=np.float32)
    rocpy.matmul(a, a, epilogue="gelu")
    least = np.float32(1e-45)
    assert least * np.float32(1.0) != 0


@pytest.mark.parametrize("shape", [(3, 4, 5), (40, 33, 70), (1, 300, 200), (130, 1, 64)])
@pytest.mark.parametrize("name", DTYPES)
def test_nan_and_infinity_go_where_ieee_says(name, shape, rng):
    m, n, k = shape
    dtype = dtype_of(name)
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    a[0, 0], b[-1, -1] = np.nan, np.inf
    if m > 1:
        a[1, -1] = -np.inf
        b[-1, 0] = 0  # infinity times zero
    found = check_outputs(evaluate(a, b), rocpy.matmul(a, b), dtype)["result"]
    assert found.ok, found.message


SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 88.0, -88.0, -104.0, 3.4e38)
# Where AMD's library gives what docs/concepts/numerics.md says, and IEEE 754 something else.
OTHERWISE_ON_AMD = {"relu": (0,), "gelu": (2, 10), "gelu_aux": (2, 10)}


@pytest.mark.parametrize("epilogue", ["relu", "gelu", "silu", "sigmoid", "clamp", "gelu_aux", "relu_aux"])
def test_activations_of_special_values(epilogue):
    values = np.array(SPECIAL, dtype=np.float32)
    if not rocpy.platform.current().is_emulated:
        values = np.delete(values, OTHERWISE_ON_AMD.get(epilogue, ()))
    a = np.ones((1, 1), dtype=np.float32)
    options = {"clamp": (-2.0, 3.0)} if epilogue == "clamp" else {}
    with np.errstate(all="ignore"):
        expected = evaluate(a, values[None, :], epilogue=epilogue, **options)
    for name, found in check_outputs(
        expected, rocpy.matmul(a, values[None, :], epilogue=epilogue, **options), np.float32
    ).items():
        assert found.ok, f"{name}: {found.message}"


@pytest.mark.parametrize("function", ["gelu", "gelu_erf", "silu", "sigmoid"])
def test_activations_over_their_range(function):
    # The product of one element with 1 is that element, so the epilogue is seen alone: no bound of the sum is in the
    # way.
    x = np.concatenate([np.linspace(-20, 20, 40_001), np.geomspace(1e-38, 1e4, 2001), -np.geomspace(1e-38, 1e4, 2001)])
    x = np.concatenate([x, np.linspace(-0.04, 0.04, 40_001)]).astype(np.float32)
    d = rocpy.matmul(np.ones((1, 1), dtype=np.float32), x[None, :], epilogue=function)[0].astype(np.float64)
    exact = oracles.FUNCTIONS[function](x.astype(np.float64))
    if not rocpy.platform.current().is_emulated:
        # What the host platform promises beyond the bound of every platform.
        expected = evaluate(np.ones((1, 1)), x[None, :].astype(np.float64), epilogue=function)
        found = check_outputs(expected, d[None, :].astype(np.float32), np.float32)["result"]
        assert found.ok, found.message
        return
    error = np.abs(d - exact)
    ulps = error / np.maximum(np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64), 2.0**-149)
    limit = {"gelu": 3, "gelu_erf": 6}.get(function, 4)
    assert ulps[x >= -1].max() <= limit, x[x >= -1][ulps[x >= -1].argmax()]
    assert error[x < -1].max() <= 2.0**-24, x[x < -1][error[x < -1].argmax()]


def test_gelu_gradient_over_its_range():
    x = np.linspace(-12, 12, 40_001).astype(np.float32)
    ones = np.ones((1, 1), dtype=np.float32)
    d = rocpy.matmul(ones, np.ones((1, x.size), dtype=np.float32), epilogue="dgelu", aux=x[None, :])[0]
    assert np.abs(d - oracles.gelu_gradient(x.astype(np.float64))).max() <= 2.0**-19


@pytest.mark.parametrize("name", DTYPES)
def test_beta_zero_does_not_read_c(name, rng):
    dtype = dtype_of(name)
    a, b = rng.standard_normal((6, 7)).astype(dtype), rng.standard_normal((7, 5)).astype(dtype)
    c = np.full((6, 5), np.nan, dtype=dtype)
    d = rocpy.matmul(a, b, c, beta=0.0)
    assert np.array_equal(d, rocpy.matmul(a, b))
    out = c.copy()
    rocpy.matmul(a, b, out, beta=0.0, out=out)
    assert np.array_equal(out, d)
    assert np.isnan(rocpy.matmul(a, b, c, beta=1.0).astype(np.float64)).all()


def test_a_result_overwrites_nan_in_out(rng):
    a, b = rng.standard_normal((6, 7), dtype=np.float32), rng.standard_normal((7, 5), dtype=np.float32)
    out = np.full((6, 5), np.nan, dtype=np.float32)
    assert np.isfinite(rocpy.matmul(a, b, out=out)).all()


@pytest.mark.parametrize("alpha", [np.nan, np.inf, -np.inf, 0.0, 1e-40, -3])
@pytest.mark.parametrize("beta", [np.nan, np.inf, 1e-40, 2])
def test_alpha_and_beta_are_ieee_numbers(alpha, beta, rng):
    a, b = rng.standard_normal((6, 7), dtype=np.float32), rng.standard_normal((7, 5), dtype=np.float32)
    c = rng.standard_normal((6, 5), dtype=np.float32)
    expected = evaluate(a, b, c, alpha=float(alpha), beta=float(beta))
    found = check_outputs(expected, rocpy.matmul(a, b, c, alpha=alpha, beta=beta), np.float32)["result"]
    assert found.ok, found.message


@pytest.mark.parametrize(
    "scalar", [np.float32(1.5), np.float64(1.5), np.float16(1.5), np.array(1.5), ml_dtypes.bfloat16(1.5)]
)
def test_alpha_may_be_any_real_scalar(scalar):
    a = np.ones((2, 2), dtype=np.float32)
    assert rocpy.matmul(a, a, alpha=scalar)[0, 0] == 3
    assert rocpy.matmul(a, a, alpha=np.int64(2))[0, 0] == 4
    assert rocpy.matmul(a, a, alpha=True)[0, 0] == 2


@pytest.mark.parametrize(
    "scalar",
    ["2", bytearray(b"2"), memoryview(b"2"), None, 1 + 2j, np.ones(2), [], object()],
    ids=lambda scalar: type(scalar).__name__,
)
@pytest.mark.parametrize("epilogue", [None, rocpy.epilogue(lambda x: x * 2.5)], ids=["none", "custom"])
def test_alpha_that_is_no_real_scalar_is_refused(scalar, epilogue):
    a = np.ones((2, 2), dtype=np.float32)
    with pytest.raises((rocpy.InvalidProblemError, rocpy.InvalidOperandError), match="alpha"):
        rocpy.matmul(a, a, alpha=scalar, epilogue=epilogue)
