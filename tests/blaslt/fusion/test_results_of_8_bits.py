# SPDX-License-Identifier: MIT
"""Composed results of 8 bits: integers wrap as fused ones do, floats are rounded after their scale, sums are wider."""

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.blaslt.selection.recipes import recipes

M, N, K = 3, 5, 40
GRADIENTS = ("bgrada", "bgradb", "drelu_bgrad")
NAMES = (
    "default", "bias", "relu", "relu_bias", "relu_aux", "relu_aux_bias", "clamp", "clamp_bias", "clamp_aux",
    "clamp_aux_bias", "drelu", *GRADIENTS,
)  # fmt: skip
FACTORS = {
    "alpha": {"alpha": 100_003},
    "beta": {"alpha": 2, "beta": 2**31 - 1},
    "bias": {"alpha": -7, "bias": 2**31 - 5},
}


def wrapped(x):
    return (x + 2**31) % 2**32 - 2**31


def stored(x, dtype):
    return np.clip(x, *((-128, 127) if dtype == "int8" else (-(2**31), 2**31 - 1)))


def outputs(result, name):
    """Return the result and what is returned beside it."""
    if not isinstance(result, tuple):
        return result, None
    row = rocpy.blaslt.model.epilogues.EPILOGUES[name]
    return result[0], result[1][row.outputs[0]]


@pytest.mark.parametrize("dtype", ["int8", "int32"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize("column", [False, True])
def test_sums_of_integers_wrap(name, dtype, factors, column, rng):
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((M, K), (K, N)))
    c, aux = (rng.integers(-100, 100, (M, N)).astype(dtype) for _ in range(2))
    more = dict(FACTORS[factors])
    shift = more.pop("bias", 3)
    arguments = {"alpha": more["alpha"]}
    sums = more["alpha"] * (a.astype(object) @ b)
    if "beta" in more:
        arguments |= {"c": c, "beta": more["beta"]}
        sums = sums + more["beta"] * c.astype(object)
    if "bias" in name:
        sums = sums + shift
        arguments["bias"] = np.full((M, 1) if column else N, shift, np.int32)
    x = y = wrapped(sums)
    if "relu" in name and "drelu" not in name:
        y = np.maximum(x, 0)
    if "clamp" in name:
        arguments["clamp"] = (-50, 60)
        y = np.clip(x, -50, 60)
    if "drelu" in name:
        arguments["aux"] = aux
        y = np.where(aux > 0, x, 0)
    found, extra = outputs(
        rocpy.matmul(a, b, epilogue=None if name == "default" else name, dtype=dtype, **arguments), name
    )
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, stored(y, dtype).astype(dtype))
    if "_aux" in name:
        np.testing.assert_array_equal(extra, stored(x, dtype).astype(dtype))
    elif extra is not None:
        wanted = {"bgrada": a.astype(object).sum(1), "bgradb": b.astype(object).sum(0)}.get(name, y.sum(0))
        np.testing.assert_array_equal(extra, wrapped(wanted).astype(np.int32))


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("result", ["int8", "int32"])
@pytest.mark.parametrize("m", [0, 2])
def test_gradients_of_integers_are_as_wide_as_a_bias(name, result, m):
    a, b = np.full((m, 300), 100, np.int8), np.full((300, 2), 100, np.int8)
    aux = {"aux": np.ones((m, 2), result)} if "drelu" in name else {}
    sums = {"bgrada": np.full(m, 30000), "bgradb": np.full(2, 30000)}.get(name, np.full(2, m * 3_000_000))
    for scales, factor in (({}, 1), ({"scale_a": 0.5, "scale_b": 0.5}, 0.25 if "drelu" in name else 0.5)):
        extra = rocpy.matmul(a, b, epilogue=name, dtype=result, **scales, **aux)[1]
        found = extra[name.removeprefix("drelu_")]
        assert found.dtype == (np.float32 if scales else np.int32)
        np.testing.assert_array_equal(found, sums * factor)


@pytest.mark.parametrize("kind", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", [None, "bgrada", "bgradb"])
@pytest.mark.parametrize("scales", ["scalar", "vector"])
@pytest.mark.parametrize(
    ("value", "scale_d", "with_c"), [(16.0, 2.0**-8, False), (2.0**-6, 2.0**9, False), (16.0, 2.0**-8, True)]
)
def test_results_of_8_bit_floats_are_rounded_after_their_scale(kind, name, scales, value, scale_d, with_c):
    # Scales of a and two batch axes with one b: sums along b have batch axes of their own, and are composed.
    a, b = np.full((3, 2, 4, 64), value, kind), np.full((64, 4), value, kind)
    one = {"scalar": (1.0, 1.0), "vector": (np.ones((4, 1), np.float32), np.ones((3, 2, 1, 4), np.float32))}[scales]
    c = {"c": np.full((3, 2, 4, 4), 1.0, kind), "scale_c": 1024.0} if with_c else {}
    result = rocpy.matmul(
        a, b, epilogue=name, scale_a=one[0], scale_b=one[1], scale_d=scale_d, dtype=kind.__name__, **c
    )
    wanted = (64 * value**2 + 1024.0 * with_c) * scale_d
    np.testing.assert_array_equal(outputs(result, name)[0].astype(np.float64), float(kind(wanted)))


@pytest.mark.parametrize("name", rocpy.blaslt.model.epilogues.EPILOGUES)
@pytest.mark.parametrize("amax", [False, True])
def test_no_composition_begins_with_a_result_of_8_bits(name, amax):
    for operand, result in (("float8_e4m3fn", "float8_e4m3fn"), ("float8_e5m2", "float8_e4m3fn"), ("int8", "int8")):
        for scales in {True, operand != "int8"}:
            for recipe in recipes(name, operand, result, False, scales, False, amax):
                assert rocpy.dtypes.lookup(recipe.dtype).bits > 8
