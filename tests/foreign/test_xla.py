# SPDX-License-Identifier: MIT
"""XLA's ROCm backend, as PyPI's jax-rocm7-pjrt has it, on the stand-in ROCm tree: `make foreign`."""

import importlib.util

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax_rocm7_plugin") is None, reason="jax's ROCm plugin: not installed (make foreign)"
)


@pytest.fixture(autouse=True)
def _devices(rocm_devices):
    """Every test is of the ROCm backend."""


def numbers(rng, *shape):
    return rng.standard_normal(shape, dtype=np.float32)


def test_operations_of_a_program(rng, measured):
    import jax
    import jax.numpy as jnp

    measured("float32 16x64")
    x = numbers(rng, 16, 64)
    wide = x.astype(np.float64)
    cases = {
        "softmax": (lambda x: jax.nn.softmax(x, axis=1), lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)),
        "sort": (lambda x: jnp.sort(x, axis=0), lambda x: np.sort(x, axis=0)),
        "cumulative sum": (lambda x: jnp.cumsum(x, axis=1), lambda x: np.cumsum(x, axis=1)),
        "product": (lambda x: x @ x.T, lambda x: x @ x.T),
        "gather": (lambda x: x[::3, ::-2], lambda x: x[::3, ::-2]),
        "loop": (lambda x: jax.lax.fori_loop(0, 5, lambda i, y: y * 0.5 + i, x), lambda x: x / 32 + 49 / 8),
    }
    for name, (on_device, oracle) in cases.items():
        np.testing.assert_allclose(jax.jit(on_device)(x), oracle(wide), rtol=1e-4, atol=1e-4, err_msg=name)


def test_an_mlp_trains_as_in_float64(rng, measured):
    import jax
    import jax.numpy as jnp

    measured("batch 32, layers 16-64-4, 5 steps of float32")
    x, y = numbers(rng, 32, 16), numbers(rng, 32, 4)
    weights = [numbers(rng, 16, 64) / 4, numbers(rng, 64), numbers(rng, 64, 4) / 8, numbers(rng, 4)]

    def loss(weights, x, y):
        first, first_bias, second, second_bias = weights
        return jnp.mean((jnp.tanh(x @ first + first_bias) @ second + second_bias - y) ** 2)

    @jax.jit
    def step(weights, x, y):
        value, gradients = jax.value_and_grad(loss)(weights, x, y)
        return value, [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]

    trained, losses = weights, []
    for _ in range(5):
        value, trained = step(trained, x, y)
        losses.append(float(value))

    w1, b1, w2, b2 = (w.astype(np.float64) for w in weights)
    expected = []
    for _ in range(5):
        h = np.tanh(x @ w1 + b1)
        error = h @ w2 + b2 - y
        expected.append(np.mean(error**2))
        d = 2 * error / error.size
        inner = d @ w2.T * (1 - h**2)
        w1, b1, w2, b2 = w1 - 0.1 * x.T @ inner, b1 - 0.1 * inner.sum(0), w2 - 0.1 * h.T @ d, b2 - 0.1 * d.sum(0)
    np.testing.assert_allclose(losses, expected, rtol=2e-6)
    assert losses[-1] < losses[0]
    for got, want in zip(trained, (w1, b1, w2, b2), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_sums_over_two_devices(rocm_devices, rng, measured):
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    measured("float32 2x1024")
    mesh = jax.make_mesh((2,), ("x",), devices=rocm_devices)
    x = numbers(rng, 2, 1024)
    spread = jax.device_put(x, NamedSharding(mesh, PartitionSpec("x")))
    assert {shard.device for shard in spread.addressable_shards} == set(rocm_devices)

    def body(part):
        return jax.lax.psum(part, "x")

    summed = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec()))(spread)
    np.testing.assert_allclose(summed[0], x.astype(np.float64).sum(axis=0), rtol=1e-6, atol=1e-6)


def test_rocpys_product_inside_jit(rocm_devices, rng, measured):
    import jax

    import rocpy.jax

    measured("float32 48x32 by 32x40 with GELU, and its gradient")
    a, b = numbers(rng, 48, 32), numbers(rng, 32, 40)

    @jax.jit
    def value_and_gradient(a, b):
        return jax.value_and_grad(lambda a: rocpy.jax.matmul(a * 2, b, epilogue="gelu").sum())(a)

    for device in rocm_devices:
        value, gradient = value_and_gradient(jax.device_put(a, device), jax.device_put(b, device))
        assert gradient.devices() == {device}
        x = 2 * a.astype(np.float64) @ b
        scale = np.sqrt(2 / np.pi)
        t = np.tanh(scale * (x + 0.044715 * x**3))
        slope = 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * scale * (1 + 3 * 0.044715 * x**2)
        np.testing.assert_allclose(value, (0.5 * x * (1 + t)).sum(), rtol=1e-4)
        np.testing.assert_allclose(gradient, 2 * slope @ b.T.astype(np.float64), rtol=1e-3, atol=1e-3)


def test_a_product_of_device_arrays_stays_on_their_device(rocm_devices, rng, measured):
    import jax

    import rocpy

    measured("float32 32x48 by 48x16 on each device")
    a, b = numbers(rng, 32, 48), numbers(rng, 48, 16)
    for device in rocm_devices:
        result = rocpy.matmul(jax.device_put(a, device), jax.device_put(b, device), epilogue="relu")
        assert isinstance(result, jax.Array)
        assert result.devices() == {device}
        np.testing.assert_allclose(result, np.maximum(a.astype(np.float64) @ b, 0), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose((result + 1).sum(), np.maximum(a.astype(np.float64) @ b, 0).sum() + 512, rtol=1e-5)
