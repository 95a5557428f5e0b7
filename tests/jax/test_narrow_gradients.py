# SPDX-License-Identifier: MIT
"""Gradients of what stands beside operands of eight bits: a bias and c, in the result's type, nothing lost."""

import numpy as np
import pytest

from rocpy.errors import InvalidOperandError

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
rj = pytest.importorskip("rocpy.jax")

pytestmark = pytest.mark.jax
M, N, K = 64, 6, 4
ACTIVATIONS = ["default", "relu", "gelu", "silu", "sigmoid"]
BIASES = [(N,), (M, 1)]


def operands(kind):
    rng = np.random.default_rng(5)
    whole = [rng.integers(-2, 3, shape) for shape in ((M, K), (K, N))]
    return [jnp.asarray(one, jnp.dtype(kind)) for one in whole]


def name_of(activation, bias):
    if not bias:
        return activation
    return "bias" if activation == "default" else f"{activation}_bias"


def wanted_of(activation, a, b, c, bias):
    functions = {
        "default": lambda x: x,
        "relu": jax.nn.relu,
        "silu": jax.nn.silu,
        "sigmoid": jax.nn.sigmoid,
        "gelu": jax.nn.gelu,
    }
    y = jnp.matmul(a.astype(jnp.float32), b.astype(jnp.float32))
    y = y if c is None else y + c
    return functions[activation](y if bias is None else y + bias)


# Sums of this lose everything if its numbers are rounded to eight bits first.
WEIGHTS = jnp.where(jnp.arange(M)[:, None] % 2 == 0, 1 + 2.0**-9, -1.0) * jnp.ones((M, N))


@pytest.mark.parametrize("kind", ["int8", "float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", BIASES, ids=str)
def test_bias(kind, activation, shape):
    a, b = operands(kind)
    scales = {"scale_a": 1.0, "scale_b": 1.0} if jnp.dtype(kind).itemsize == 1 else {}

    def found_of(bias):
        y = rj.matmul(a, b, epilogue=name_of(activation, True), bias=bias, dtype="float32", **scales)
        return (y * WEIGHTS).sum()

    bias = jnp.linspace(-0.5, 0.5, int(np.prod(shape)), dtype=jnp.float32).reshape(shape)
    found = jax.grad(found_of)(bias)
    wanted = jax.grad(lambda bias: (wanted_of(activation, a, b, None, bias) * WEIGHTS).sum())(bias)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("kind", ["int8", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("beta", [-0.5, pytest.param(1.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", [(M, N), (1, N), (N,)], ids=str)
def test_addend(kind, activation, beta, shape):
    a, b = operands(kind)
    c = jnp.linspace(-0.5, 0.5, int(np.prod(shape)), dtype=jnp.float32).reshape(shape)

    def found_of(c):
        y = rj.matmul(a, b, c, beta=beta, epilogue=activation, scale_a=1.0, scale_b=1.0, dtype="float32")
        return (y * WEIGHTS).sum()

    found = jax.grad(found_of)(c)
    wanted = jax.grad(lambda c: (wanted_of(activation, a, b, beta * c, None) * WEIGHTS).sum())(c)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint, lambda f: jax.vmap(f, axis_size=2, in_axes=None)])
def test_under_transformations(wrap):
    a, b = operands("int8")

    def run(bias):
        return rj.matmul(a, b, epilogue="bias", bias=bias, scale_a=1.0, scale_b=1.0, dtype="float32")

    found = jax.grad(lambda bias: wrap(run)(bias).sum())(jnp.zeros(N))
    assert (found == M * (2 if wrap not in (jax.jit, jax.checkpoint) else 1)).all()


def test_a_result_of_integers_has_no_gradient():
    a, b = operands("int8")
    y, pull = jax.vjp(lambda c: rj.matmul(a, b, c), jnp.zeros((M, N), jnp.int32))
    assert y.dtype == jnp.int32
    (grad,) = pull(np.zeros((M, N), jax.dtypes.float0))
    assert grad.dtype == jax.dtypes.float0


@pytest.mark.parametrize("name", ["alpha", "beta", "scale_a"])
@pytest.mark.parametrize("value", ["2", b"2", "x", [2], 1j, 10**400])
def test_numbers_that_are_none(name, value):
    with pytest.raises(InvalidOperandError, match=f"{name}: .*expected a real number"):
        rj.matmul(
            np.ones((2, 2), np.float32), np.ones((2, 2), np.float32), np.ones((2, 2), np.float32), **{name: value}
        )


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int8(2), np.array(2.0), True])
def test_numbers_of_every_kind(value):
    ones = np.ones((2, 2), np.float32)
    assert (rj.matmul(ones, ones, alpha=value) == 2 * float(value)).all()


@pytest.mark.parametrize(
    ("dtype", "operand"),
    [(dtype, operand) for dtype in ("f4", "f2", "c8") for operand in ("a", "b", "c")]
    + [("f4", "bias"), ("f2", "bias")],
)
def test_arrays_in_the_other_byte_order(dtype, operand):
    def run(**swapped):
        given = {"a": np.ones((2, 3), dtype), "b": np.ones((3, 4), dtype)}
        given |= {"c": np.full((2, 4), 5, dtype)} if operand == "c" else {}
        given |= {"bias": np.full(4, 5, dtype), "epilogue": "bias"} if operand == "bias" else {}
        given |= {name: change(given[name]) for name, change in swapped.items()}
        return np.asarray(rj.matmul(given.pop("a"), given.pop("b"), **given))

    found = run(**{operand: lambda x: x.astype(x.dtype.newbyteorder(">"))})
    np.testing.assert_array_equal(found, run())


@pytest.mark.parametrize("dtype", ["O", "U3", "M8[s]", "f4,f4"])
def test_arrays_that_jax_lacks(dtype):
    with pytest.raises(InvalidOperandError, match="b: "):
        rj.matmul(np.ones((2, 2), np.float32), np.zeros((2, 2), dtype))


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_erf", "silu", "sigmoid", "clamp", "gelu_aux", "relu_aux"])
@pytest.mark.parametrize("alpha", [1 / 16, pytest.param(1.0, marks=pytest.mark.slow)])
def test_a_result_of_eight_bits(kind, name, alpha):
    """The derivative is computed in wider types, from what was saved in eight bits."""
    a, b = jnp.full((1, 4), 4, kind), jnp.full((4, 1), 2, kind)
    settings = {"clamp": (-3.1, 33.3)} if name == "clamp" else {}

    def loss(a, dtype):
        y = rj.matmul(a, b, alpha=alpha, epilogue=name, scale_a=1.0, scale_b=1.0, dtype=dtype, **settings)
        return (y[0] if isinstance(y, tuple) else y).astype(jnp.float32).sum()

    found, wanted = (jax.grad(loss)(a, dtype).astype(jnp.float32) for dtype in (kind, "float32"))
    np.testing.assert_allclose(found, wanted, rtol=2.0 ** -(jnp.finfo(kind).nmant + 1))


@pytest.mark.parametrize("name", ["drelu_bgrad", "dgelu_bgrad"])
def test_sums_of_a_result_of_eight_bits(name):
    """More terms than eight bits can count are added in the wider type of the sums."""
    a, b = jnp.ones((600, 2), jnp.float8_e4m3fn), jnp.ones((2, 3), jnp.float8_e4m3fn)
    aux = jnp.full((600, 3), 8, jnp.float8_e4m3fn)

    def run(a):
        _, more = rj.matmul(a, b, epilogue=name, aux=aux, scale_a=1.0, scale_b=1.0, dtype="float8_e4m3fn")
        return more["bgrad"].astype(jnp.float32)

    found, _ = jax.vjp(run, a)
    np.testing.assert_array_equal(found, np.full(3, 1200))


@pytest.mark.parametrize("alpha", [1.0, 2.0**-14])
@pytest.mark.parametrize("scale", [2.0**20, 2.0**-30], ids=["large", "small"])
def test_a_gradient_beyond_the_range_of_float16(alpha, scale):
    """The gradient of a float32 result may be; those of the float16 operands are not."""
    a, b = jnp.ones((8, 4), jnp.float16), jnp.full((4, 8), 1 / (scale * alpha) * 2.0**-3, jnp.float32)
    b = jnp.clip(b, 2.0**-14, 2.0**14).astype(jnp.float16)

    def loss(a, b):
        return (rj.matmul(a, b, alpha=alpha, dtype="float32", epilogue="relu") * scale).sum()

    found = jax.grad(loss)(a, b)
    assert found.dtype == jnp.float16
    assert (found == np.float16(8 * alpha * scale * float(b[0, 0]))).all()


def test_a_factor_of_c_beyond_the_range_of_float16():
    a, b, c = (jnp.ones((2, 2), jnp.float16) for _ in range(3))
    _, pull = jax.vjp(lambda c: rj.matmul(a, b, c, beta=2.0**17), c * 0)
    assert (pull(c * 2.0**-10)[0] == 128).all()
