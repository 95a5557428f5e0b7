# SPDX-License-Identifier: MIT
"""Factors and scales of rocpy.jax.matmul mean what they mean in rocpy.matmul: none is truncated or multiplied away."""

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
matmul = pytest.importorskip("rocpy.jax").matmul

pytestmark = pytest.mark.jax
A = np.array([[100, 3], [-7, 5], [3, -1], [1, 0]], np.int8)
B = np.array([[1, 2, -1], [1, 0, 3]], np.int8)
HALF = {"scale_a": 0.5, "scale_b": 1.0}


def same(a, b, **keywords):
    """Compare with rocpy.matmul, under jax.jit."""
    wanted = rocpy.matmul(a, b, **keywords)
    arrays = {name: jnp.asarray(x) for name, x in keywords.items() if isinstance(x, np.ndarray)}
    numbers = {name: x for name, x in keywords.items() if name not in arrays}

    def run(a, b, arrays):
        return matmul(a, b, **arrays, **numbers)

    found = jax.jit(run)(jnp.asarray(a), jnp.asarray(b), arrays)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(np.asarray(one).astype(np.float64), other.astype(np.float64))


@pytest.mark.parametrize("dtype", ["int8", "int32", "float32", "bfloat16"])
@pytest.mark.parametrize(
    "scales",
    [HALF, {"scale_a": 2.0, "scale_b": 0.25}, {"scale_a": 0.3, "scale_b": 0.07}, {"scale_a": 1e10, "scale_b": 1.0},
     {"scale_a": np.inf, "scale_b": 1.0}, {"scale_a": -1.5, "scale_b": 1.0, "alpha": 2.5}],
)  # fmt: skip
def test_scales_of_int8(dtype, scales):
    same(A, B, dtype=dtype, **scales)


@pytest.mark.parametrize(
    "more",
    [{"epilogue": "relu"}, {"epilogue": "gelu_erf"}, {"epilogue": "relu_aux"}, {"epilogue": "bgrada"},
     {"epilogue": "bias", "bias": np.array([0.5, -0.25, 3], np.float32)},
     {"epilogue": "bias", "bias": np.array([5, -1, 3], np.int32)},
     {"c": np.arange(12, dtype=np.int8).reshape(4, 3)}, {"c": np.arange(12, dtype=np.int8).reshape(4, 3), "beta": 0.5}],
    ids=lambda more: "-".join(map(str, more)),
)  # fmt: skip
def test_what_follows_scaled_sums(more):
    same(A, B, dtype="int8", **HALF, **more)


@pytest.mark.parametrize(
    ("value", "scale_a", "scale_b"), [(np.nan, 0.0, 1.0), (np.nan, 1e-30, 1e-30), (0.0, np.inf, 1.0), (448.0, 0.3, 7.0)]
)
@pytest.mark.parametrize("dtype", ["float32", "float8_e4m3fn"])
def test_scales_of_8_bit_floats(value, scale_a, scale_b, dtype):
    a, b = np.full((2, 3), value, ml_dtypes.float8_e4m3fn), np.ones((3, 2), ml_dtypes.float8_e4m3fn)
    same(a, b, scale_a=scale_a, scale_b=scale_b, dtype=dtype)


@pytest.mark.parametrize("dtype", ["int8", "int32"])
@pytest.mark.parametrize("factors", [{"alpha": 2.5}, {"alpha": 2.0**40}, {"beta": 0.5}, {"beta": -(2.0**31) - 1}])
def test_integers_are_scaled_by_integers(dtype, factors):
    c = {"c": np.ones((4, 3), dtype)} if "beta" in factors else {}
    for function in (rocpy.matmul, matmul, jax.jit(lambda a, b, **c: matmul(a, b, dtype=dtype, **c, **factors))):
        more = {} if isinstance(function, type(jax.jit(len))) else {"dtype": dtype, **factors}
        with pytest.raises(InvalidProblemError, match=f"{next(iter(factors))} = .*32-bit integers"):
            function(A, B, **c, **more)
    same(A, B, dtype=dtype, alpha=3)


@pytest.mark.parametrize("name", ["scale_a", "scale_b"])
@pytest.mark.parametrize(
    ("value", "error"),
    [(np.nan, InvalidProblemError), (np.float32(np.nan), InvalidProblemError), (True, InvalidOperandError),
     (np.bool_(True), InvalidOperandError), (np.array(True), InvalidOperandError)],
)  # fmt: skip
def test_numbers_that_are_no_scales(name, value, error):
    for dtype in ("float32", "int8"):
        with pytest.raises(error, match=f"{name}: got"):
            matmul(A, B, dtype=dtype, **{"scale_a": 1.0, "scale_b": 1.0, name: value})


@pytest.mark.parametrize("name", ["bgrada", "bgradb"])
def test_sums_of_an_operand_have_its_scale_where_they_are_differentiated(name):
    a, b = np.full((2, 64), 1.5, ml_dtypes.float8_e4m3fn), np.full((64, 2), 1.25, ml_dtypes.float8_e4m3fn)

    def run(a, b):
        return matmul(a, b, epilogue=name, scale_a=0.5, scale_b=3.0, dtype="float32")

    plain, (recorded, _) = run(a, b), jax.vjp(run, jnp.asarray(a), jnp.asarray(b))
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(recorded), strict=True):
        np.testing.assert_array_equal(one, other)


def test_gradients_have_the_scales():
    a, b = jnp.ones((2, 4), jnp.float8_e4m3fn), jnp.full((4, 3), 2.0, jnp.float8_e4m3fn)
    grad = jax.grad(lambda a: matmul(a, b, scale_a=0.5, scale_b=4.0, alpha=2.0, dtype="float32").sum())(a)
    np.testing.assert_array_equal(np.asarray(grad, np.float32), 24.0)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["alpha", "beta", "scale_a"])
def test_a_tensor_that_requires_a_gradient_is_no_number(torch, name):
    value = torch.nn.Parameter(torch.tensor(2.0))
    operands, given = ((A, B), dict(HALF)) if name == "scale_a" else ((B.T * 1.0, B * 1.0, np.ones((3, 3))), {})
    with pytest.raises(UnsupportedError, match=f"^{name}: a tensor, and it requires grad"):
        matmul(*operands, **(given | {name: value}))
    with torch.no_grad():
        matmul(*operands, **(given | {name: value.detach()}))
