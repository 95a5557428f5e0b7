# SPDX-License-Identifier: MIT
"""The ready-made epilogues against what they stand for."""

import numpy as np
import pytest

import rocpy
from rocpy import epilogues
from rocpy.testing import oracles


@pytest.fixture
def product(rng):
    a, b = rng.standard_normal((5, 7), dtype=np.float32), rng.standard_normal((7, 8), dtype=np.float32)
    return a, b, a.astype(np.float64) @ b.astype(np.float64)


def run(product, epilogue, **inputs):
    return rocpy.matmul(product[0], product[1], epilogue=epilogue, epilogue_inputs=inputs)


def test_residual_add(product, rng):
    residual = rng.standard_normal((5, 8), dtype=np.float32)
    np.testing.assert_allclose(
        run(product, epilogues.residual_add, residual=residual), product[2] + residual, atol=1e-5
    )
    how = rocpy.explain(*product[:2], epilogue=epilogues.residual_add, epilogue_inputs={"residual": residual})
    assert how.algorithm.lowering == "native"


def test_bias_residual_gelu(product, rng):
    bias, residual = rng.standard_normal(8, dtype=np.float32), rng.standard_normal((5, 8), dtype=np.float32)
    expected = oracles.gelu(product[2] + bias + residual)
    inputs = {"bias": bias, "residual": residual}
    np.testing.assert_allclose(run(product, epilogues.bias_residual_gelu, **inputs), expected, atol=1e-5)
    how = rocpy.explain(*product[:2], epilogue=epilogues.bias_residual_gelu, epilogue_inputs=inputs)
    assert how.algorithm.lowering == "native"


@pytest.mark.parametrize(
    ("epilogue", "oracle"), [(epilogues.swiglu, oracles.silu), (epilogues.geglu, oracles.gelu_erf)]
)
def test_gates(rng, epilogue, oracle):
    x, gate, up = (rng.standard_normal(shape, dtype=np.float32) for shape in ((5, 7), (7, 4), (7, 4)))
    d = rocpy.matmul(x, epilogues.interleave(gate, up), epilogue=epilogue)
    wide = [value.astype(np.float64) for value in (x, gate, up)]
    assert d.shape == (5, 4)
    assert d.flags.c_contiguous
    np.testing.assert_allclose(d, oracle(wide[0] @ wide[1]) * (wide[0] @ wide[2]), atol=1e-5)
    with pytest.raises(rocpy.InvalidProblemError, match="equal"):
        epilogues.interleave(gate, up[:, :3])


def test_softcap(product):
    np.testing.assert_allclose(run(product, epilogues.softcap, cap=2.0), 2 * np.tanh(product[2] / 2), atol=1e-5)
    np.testing.assert_allclose(run(product, epilogues.softcap), 30 * np.tanh(product[2] / 30), atol=1e-5)


def test_dropout(product, rng):
    mask = rng.random((5, 8)) < 0.75
    expected = np.where(mask, product[2] / 0.75, 0)
    np.testing.assert_allclose(run(product, epilogues.dropout, mask=mask, scale=1 / 0.75), expected, atol=1e-5)
    nan = (np.full((5, 7), np.nan, np.float32), product[1])
    assert (rocpy.matmul(*nan, epilogue=epilogues.dropout, epilogue_inputs={"mask": mask * 0}) == 0).all()


@pytest.mark.parametrize("dtype", ["int8", "int32", "float8_e4m3fn", "float8_e5m2"])
def test_requantising(rng, dtype):
    a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((5, 40), (40, 6)))
    wide = a.astype(np.int64) @ b.astype(np.int64)
    scale = np.exp2(-rng.integers(4, 9, (5, 1))).astype(np.float32)
    d = rocpy.matmul(a, b, epilogue=epilogues.scale_clamp_cast(dtype), epilogue_inputs={"scale": scale})
    assert d.dtype.name == dtype
    if dtype.startswith("int"):
        np.testing.assert_array_equal(d, np.clip(np.rint(wide * scale), np.iinfo(dtype).min, np.iinfo(dtype).max))
    else:
        limit = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}[dtype]
        np.testing.assert_array_equal(d, np.clip(wide * scale, -limit, limit).astype(np.float32).astype(d.dtype))


@pytest.mark.parametrize("arguments", [{"low": 3, "high": 1}, {"low": float("nan")}, {"dtype": "float32"}])
def test_requantising_refuses(arguments):
    with pytest.raises(rocpy.InvalidProblemError):
        epilogues.scale_clamp_cast(**arguments)


def test_names():
    for name in ("residual_add", "bias_residual_gelu", "swiglu", "geglu", "softcap", "dropout"):
        assert getattr(epilogues, name).name == name


def test_what_has_no_columns_is_not_interleaved():
    with pytest.raises(rocpy.InvalidProblemError, match=r"gate: shape \(\), .*no columns"):
        epilogues.interleave(np.array(1.0), np.array(2.0))
