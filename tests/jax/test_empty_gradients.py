# SPDX-License-Identifier: MIT
"""Gradients of jax products without terms or elements: empty or zero, as jnp has them."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
rj = pytest.importorskip("rocpy.jax")

SHAPES = [
    ((3, 0), (0, 4)),
    ((0, 3), (3, 4)),
    ((3, 2), (2, 0)),
    ((2, 3, 0), (0, 4)),
    ((2, 3, 0), (2, 0, 4)),
    ((0, 3, 2), (2, 4)),
    ((2, 0, 0), (0, 4)),
    ((0,), (0, 4)),
    ((3, 0), (0,)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
@pytest.mark.parametrize("epilogue", ["default", "relu_bias", "gelu_bias"])
def test_gradients(a, b, epilogue):
    x, y = jnp.ones(a, jnp.float32), jnp.ones(b, jnp.float32)
    bias = jnp.ones(b[-1] if len(b) > 1 else 1, jnp.float32) if "bias" in epilogue else None

    def total(x, y, bias):
        return rj.matmul(x, y, epilogue=epilogue, bias=bias).sum()

    found = jax.grad(total, argnums=(0, 1))(x, y, bias)
    wanted = jax.grad(lambda x, y: jnp.matmul(x, y).sum(), argnums=(0, 1))(x, y)
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
