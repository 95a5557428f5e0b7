# SPDX-License-Identifier: MIT
"""Numbers on the host, factors and bounds: what is none is refused by name, by every entry."""

from __future__ import annotations

import decimal
import fractions

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.errors import InvalidOperandError, InvalidProblemError

A, INT8 = np.ones((2, 2), np.float32), np.ones((2, 2), np.int8)
FUNCTION = rocpy.epilogue(lambda x: np.tanh(x) * x)

NO_NUMBERS = [
    2 + 0j, np.complex64(2 + 3j), np.complex128(2), np.clongdouble(2 + 3j), np.array(2 + 3j, np.complex64),
    "2", np.str_("2"), np.array("2"), b"2", bytearray(b"2"), memoryview(b"2"), np.void(b"2"), 10**400,
    np.datetime64(1, "s"), np.ones(2), [2.0],
]  # fmt: skip
NUMBERS = [2, 2.0, True, np.int8(2), np.float16(2), np.longdouble(2), np.array(2.0)]

FACTORS = {
    "alpha": lambda x: rocpy.matmul(A, A, alpha=x),
    "alpha, planned": lambda x: rocpy.Matmul(A, A, alpha=x),
    "alpha, reset": lambda x: rocpy.Matmul(A, A).reset_operands(alpha=x),
    "alpha, integers": lambda x: rocpy.matmul(INT8, INT8, alpha=x),
    "alpha, composed": lambda x: rocpy.matmul(A, A, alpha=x, epilogue="gelu_erf", options={"reproducible": "batch"}),
    "alpha, function": lambda x: rocpy.matmul(A, A, alpha=x, epilogue=FUNCTION),
    "alpha, function, reset": lambda x: rocpy.Matmul(A, A, epilogue=FUNCTION).reset_operands(alpha=x),
    "alpha, groups": lambda x: rocpy.grouped_matmul([A], [A], alpha=x),
    "alpha, groups in one array": lambda x: rocpy.grouped_matmul(A, A[None], offsets=[0, 2], alpha=x),
    "alpha, explained": lambda x: rocpy.explain(A, A, alpha=x),
    "beta": lambda x: rocpy.matmul(A, A, A, beta=x),
    "beta, planned": lambda x: rocpy.Matmul(A, A, A, beta=x),
    "beta, reset": lambda x: rocpy.Matmul(A, A, A).reset_operands(beta=x),
}
CLAMPS = {
    "clamp": lambda x: rocpy.matmul(A, A, epilogue="clamp", clamp=(x, 4)),
    "clamp_aux": lambda x: rocpy.matmul(A, A, epilogue="clamp_aux", clamp=(1, x)),
    "planned": lambda x: rocpy.Matmul(A, A, epilogue="clamp", clamp=(x, 4)),
    "groups": lambda x: rocpy.grouped_matmul([A], [A], epilogue="clamp", clamp=(x, 4)),
}


def name_of(value):
    return f"{type(value).__name__}{getattr(value, 'dtype', '')}"


@pytest.mark.parametrize("entry", FACTORS)
@pytest.mark.parametrize("value", NO_NUMBERS, ids=name_of)
def test_factors_that_are_no_real_numbers(entry, value):
    with pytest.raises(InvalidOperandError, match=rf"^{entry.partition(',')[0]}: got "):
        FACTORS[entry](value)


@pytest.mark.parametrize("entry", CLAMPS)
@pytest.mark.parametrize("value", NO_NUMBERS, ids=name_of)
def test_bounds_that_are_no_real_numbers(entry, value):
    with pytest.raises(InvalidProblemError, match="^clamp: got .*a pair of numbers"):
        CLAMPS[entry](value)


@pytest.mark.parametrize("entry", [*FACTORS, *CLAMPS])
@pytest.mark.parametrize("value", NUMBERS, ids=name_of)
def test_numbers_of_every_kind(entry, value):
    (FACTORS | CLAMPS)[entry](value)


@pytest.mark.torch
def test_complex_tensors(torch):
    value = torch.tensor(2j)
    for entry, call in FACTORS.items():
        with pytest.raises(InvalidOperandError, match=rf"^{entry.partition(',')[0]}: got tensor"):
            call(value)
    for call in CLAMPS.values():
        with pytest.raises(InvalidProblemError, match="^clamp: got "):
            call(value)
    tensor = torch.ones(2, 2)
    for a in (tensor, tensor.clone().requires_grad_()):
        with pytest.raises(InvalidOperandError, match="^alpha: got "):
            rocpy.matmul(a, tensor, alpha=np.complex64(2j))


@pytest.mark.jax
@pytest.mark.parametrize("value", NO_NUMBERS, ids=name_of)
def test_jax(value):
    import rocpy.jax

    for name in ("alpha", "beta", "scale_a", "scale_b"):
        operands = (INT8, INT8) if name.startswith("scale") else (A, A, A)
        arguments = {"scale_a": 1.0, "scale_b": 1.0, "dtype": "float32"} if name.startswith("scale") else {}
        with pytest.raises(InvalidOperandError, match=f"^{name}: got "):
            rocpy.jax.matmul(*operands, **{**arguments, name: value})
    with pytest.raises(InvalidProblemError, match="^clamp: got .*a pair of numbers"):
        rocpy.jax.matmul(A, A, epilogue="clamp", clamp=(0, value))


INT8_SCALED = {"scale_b": 1.0, "dtype": "float32"}
SCALES = {
    "scale_a": lambda x: rocpy.matmul(INT8, INT8, scale_a=x, **INT8_SCALED),
    "scale_a, composed": lambda x: rocpy.matmul(INT8, INT8, scale_a=x, scale_b=1.0, dtype="int8"),
    "scale_a, planned": lambda x: rocpy.Matmul(INT8, INT8, scale_a=x, **INT8_SCALED).execute(),
    "scale_a, groups": lambda x: rocpy.grouped_matmul([INT8], [INT8], scale_a=[x], scale_b=[1.0], dtype="float32")[0],
    "scale_a, groups in one array": lambda x: rocpy.grouped_matmul(
        INT8, INT8[None], offsets=[0, 2], scale_a=x, **INT8_SCALED
    ),
    "scale, of a Weight": lambda x: rocpy.matmul(INT8, rocpy.Weight(INT8, scale=x), scale_a=1.0, dtype="float32"),
}
KINDS_OF_TWO = [
    2, 2.0, np.int8(2), np.uint8(2), np.int64(2), np.float16(2), np.longdouble(2), ml_dtypes.bfloat16(2),
    fractions.Fraction(2), decimal.Decimal(2),
]  # fmt: skip


@pytest.mark.parametrize("entry", [*FACTORS, *SCALES])
@pytest.mark.parametrize("value", KINDS_OF_TWO, ids=name_of)
def test_scales_and_factors_take_the_same_numbers(entry, value):
    if entry in SCALES:
        assert (SCALES[entry](value) == 4).all()
    else:
        FACTORS[entry](value)


@pytest.mark.parametrize("entry", SCALES)
@pytest.mark.parametrize(
    "value",
    [True, np.True_, 2j, np.complex64(2), np.str_("2"), "2", np.datetime64(1, "s"), fractions.Fraction(10**400)],
    ids=name_of,
)
def test_scales_that_are_no_real_numbers(entry, value):
    with pytest.raises(InvalidOperandError, match=rf"^{entry.partition(',')[0]}(\[0\])?: got "):
        SCALES[entry](value)
