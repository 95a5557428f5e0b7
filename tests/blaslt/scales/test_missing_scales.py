# SPDX-License-Identifier: MIT
"""Products of quantized values raise without both scales, whoever is asked; 1.0 says that none is meant."""

from __future__ import annotations

import numpy as np
import pytest

import rocpy
from rocpy import dtypes
from rocpy.blaslt import supported
from rocpy.errors import InvalidProblemError

FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
MX = ("float8_e4m3fn", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
QUANTIZED = [*((name, None) for name in FLOAT8), *(("int8", x) for x in ("float32", "bfloat16", "float16"))]


def ones(shape: tuple[int, ...], name: str) -> np.ndarray:
    return np.ones(shape, dtypes.lookup(name).numpy)


def test_the_values_of_a_quantized_array_are_no_operand():
    x = np.full((4, 4), 2.0, np.float32)
    values, scale = rocpy.quantize(x)
    for missing in ({}, {"scale_a": scale}, {"scale_b": scale}):
        with pytest.raises(InvalidProblemError, match=r"=1\.0"):
            rocpy.matmul(values, values, **missing)
    np.testing.assert_allclose(rocpy.matmul(values, values, scale_a=scale, scale_b=scale).astype(np.float32), 16.0)


@pytest.mark.parametrize(("name", "result"), QUANTIZED)
def test_everything_that_takes_operands_asks_for_scales(name, result):
    a, b = ones((3, 8), name), ones((8, 5), name)
    calls = [
        lambda **scales: rocpy.matmul(a, b, dtype=result, **scales),
        lambda **scales: rocpy.Matmul(a, b, dtype=result, **scales).execute(),
        lambda **scales: rocpy.matmul(a, rocpy.Weight(b), dtype=result, **scales),
        lambda **scales: rocpy.grouped_matmul([a], [b], dtype=result, **scales)[0],
        lambda **scales: rocpy.grouped_matmul(a, b[None], offsets=[0, 3], dtype=result, **scales),
        lambda **scales: rocpy.explain(a, b, dtype=result, **scales),
        lambda **scales: rocpy.matmul(a, b, dtype=result, epilogue=rocpy.epilogue(lambda x: x * 0.5 + x), **scales),
    ]
    for call in calls:
        for missing in ({}, {"scale_a": 1.0}, {"scale_b": 1.0}):
            with pytest.raises(InvalidProblemError, match=r"scale_[ab]=1\.0 "):
                call(**missing)
        call(scale_a=1.0, scale_b=1.0)
    answer = supported(name, dtype=result)
    assert not answer
    assert "needs scale_a and scale_b" in answer.reasons[0]
    assert supported(name, dtype=result, scale_a="scalar", scale_b="scalar")
    np.testing.assert_array_equal(rocpy.matmul(a, b, dtype=result, scale_a=1.0, scale_b=1.0).astype(np.float32), 8.0)


def test_a_weight_brings_its_scale():
    a, b = ones((3, 8), "float8_e4m3fn"), ones((8, 5), "float8_e4m3fn")
    weight = rocpy.Weight(b, scale=np.float32(2.0))
    with pytest.raises(InvalidProblemError, match=r"scale_a: none.*scale_a=1\.0 for"):
        rocpy.matmul(a, weight)
    np.testing.assert_array_equal(rocpy.matmul(a, weight, scale_a=0.5).astype(np.float32), 8.0)


@pytest.mark.parametrize("name", MX)
def test_blocks_ask_for_their_exponents(name):
    values, scales = rocpy.quantize_mx(np.ones((4, 64), np.float32), name)
    right, more = rocpy.quantize_mx(np.ones((64, 4), np.float32), name, axis=0)
    if not name.startswith("float8"):
        with pytest.raises(InvalidProblemError, match="scale_a and scale_b: none.*quantize_mx"):
            rocpy.matmul(values, right)
    for missing in ({"scale_a": scales}, {"scale_b": more}):
        with pytest.raises(InvalidProblemError, match="none.*bytes of 127"):
            rocpy.matmul(values, right, **missing)
    np.testing.assert_array_equal(rocpy.matmul(values, right, scale_a=scales, scale_b=more).astype(np.float32), 64.0)


def test_sums_of_int8_need_none():
    a, b = ones((3, 8), "int8"), ones((8, 5), "int8")
    assert rocpy.matmul(a, b).dtype == np.int32
    assert rocpy.matmul(a, b, dtype="int8").dtype == np.int8
    assert supported("int8")


@pytest.mark.parametrize("name", ["float8_e4m3fn", "int8"])
@pytest.mark.parametrize("epilogue", ["bgrada", "bgradb"])
@pytest.mark.parametrize("kind", ["scalar", "vector"])
def test_gradients_sum_what_the_values_stand_for(name, epilogue, kind):
    a, b = ones((3, 8), name), ones((8, 5), name)
    scale_a = np.float32(0.5) if kind == "scalar" else np.arange(1, 4, dtype=np.float32)
    scale_b = np.float32(4.0) if kind == "scalar" else np.arange(1, 6, dtype=np.float32)
    given = {"scale_a": scale_a, "scale_b": scale_b, "epilogue": epilogue, "dtype": "float32"}
    wanted = np.broadcast_to(8 * scale_a, 3) if epilogue == "bgrada" else np.broadcast_to(8 * scale_b, 5)
    np.testing.assert_array_equal(rocpy.matmul(a, b, **given)[1][epilogue], wanted)
    with rocpy.Matmul(a, b, **given) as planned:
        np.testing.assert_array_equal(planned.execute()[1][epilogue], wanted)
    # The same where the result is empty.
    left = a if epilogue == "bgrada" else a[:0]
    right = b[:, :0] if epilogue == "bgrada" else b
    given |= {"scale_a": scale_a[: left.shape[0]] if kind == "vector" else scale_a}
    given |= {"scale_b": scale_b[: right.shape[1]] if kind == "vector" else scale_b}
    result, beside = rocpy.matmul(left, right, **given)
    assert result.size == 0
    np.testing.assert_array_equal(beside[epilogue], wanted)
    with rocpy.Matmul(left, right, **given) as planned:
        np.testing.assert_array_equal(planned.execute()[1][epilogue], wanted)
