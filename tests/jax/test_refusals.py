# SPDX-License-Identifier: MIT
"""What rocpy.jax.matmul does not take: each refusal names the operand and says what can be done."""

import re

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.errors import InvalidOperandError, UnsupportedError

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
rj = pytest.importorskip("rocpy.jax")

pytestmark = pytest.mark.jax


@pytest.mark.parametrize("kind", ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
@pytest.mark.parametrize("scales", [{}, {"scale_a": 1.0}, {"scale_b": np.ones((1, 4), np.uint8)}], ids=["no", "a", "b"])
def test_elements_of_less_than_a_byte(kind, scales):
    a, b = np.ones((4, 32), getattr(ml_dtypes, kind)), np.ones((32, 4), getattr(ml_dtypes, kind))
    with pytest.raises(UnsupportedError, match=f"a: products of {kind} need scales by blocks"):
        rj.matmul(a, b, **scales)


def test_what_is_no_array():
    from jax.experimental import sparse

    ones = jnp.ones((2, 2))
    for x, advice in (
        (sparse.BCOO.fromdense(ones), r"pass b.todense\(\)"),
        (jax.ShapeDtypeStruct((2, 2), jnp.float32), "it has no values"),
        (np.float32(1), r"multiply by it with \*"),
        (2.0, r"multiply by it with \*"),
        ([[1.0, 2.0]], r"pass jax.numpy.asarray\(b\)"),
        (jax.new_ref(ones), r"pass b\[\.\.\.\]"),
        (None, "a product has two operands"),
        ("text", "it is no array of numbers"),
        ([[1.0], [2.0, 3.0]], "it is no array of numbers"),
    ):
        with pytest.raises(InvalidOperandError, match=f"b: got .*: {advice}"):
            rj.matmul(ones, x)


@pytest.mark.parametrize("operand", ["a", "b", "c", "bias"])
def test_deleted_arrays(operand):
    operands = {"a": (2, 2), "b": (2, 2), "c": (2, 2), "bias": (2,)}
    arrays = {name: jax.device_put(np.ones(shape, np.float32)) for name, shape in operands.items()}
    arrays[operand].delete()
    with pytest.raises(InvalidOperandError, match=f"^{operand}: .*deleted"):
        rj.matmul(arrays["a"], arrays["b"], arrays["c"], bias=arrays["bias"], epilogue="bias")


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        (lambda x: {"alpha": x}, "^alpha: traced by jax.*multiply by it"),
        (lambda x: {"epilogue": "clamp", "clamp": (x, 1)}, "^clamp: traced by jax.*apply jax.numpy.clip"),
        (lambda x: {"epilogue": "clamp", "clamp": [0, x]}, "^clamp: traced by jax.*apply jax.numpy.clip"),
        (lambda x: {"epilogue": "clamp", "clamp": jnp.stack([x, x])}, "^clamp: traced by jax.*apply jax.numpy.clip"),
    ],
)
def test_traced_numbers(more, advice):
    ones = jnp.ones((2, 2))
    with pytest.raises(UnsupportedError, match=advice):
        jax.eval_shape(lambda x: rj.matmul(ones, ones, **more(x)), jnp.float32(0))


def test_keys_are_no_numbers():
    keys = jax.random.split(jax.random.key(0), 4).reshape(2, 2)
    with pytest.raises(InvalidOperandError, match=r"^a: .*keys are no numbers; .*jax.random.normal"):
        rocpy.matmul(keys, np.ones((2, 2), np.float32))


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_complex_factors(name):
    ones = jnp.ones((2, 2), jnp.complex64)
    with pytest.raises(InvalidOperandError, match=f"{name}: .*expected a real number; multiply by it yourself"):
        rj.matmul(ones, ones, ones, **{name: 1j})


@pytest.mark.parametrize("function", [lambda x: 2 * jax.nn.gelu(x), lambda x: jnp.maximum(x, 0)])
def test_functions_of_jax_in_an_epilogue_are_refused_with_what_to_use(function):
    with pytest.raises(UnsupportedError, match=rf"^{re.escape(__file__)}:\d+: .*use that of numpy or torch"):
        rocpy.epilogue(function)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("complex64", {"epilogue": "relu"}),
        ("complex64", {"epilogue": "silu_aux"}),
        ("complex64", {"epilogue": "clamp", "clamp": (0, 1)}),
        ("complex64", {"epilogue": "drelu", "aux": np.ones((16, 16), np.complex64)}),
        ("int8", {"epilogue": "gelu"}),
        ("int8", {"epilogue": "dgelu_bgrad", "aux": np.ones((16, 16), np.int32)}),
        ("int8", {"epilogue": "sigmoid_bias", "bias": np.ones(16, np.int32)}),
    ],
)
def test_functions_that_a_result_does_not_have_are_refused_when_traced(kind, more):
    x, batch = (jax.ShapeDtypeStruct(shape, jnp.dtype(kind)) for shape in ((16, 16), (2, 16, 16)))

    def product(x):
        return rj.matmul(x, x, **more)

    for trace in (
        lambda: jax.jit(product).lower(x),
        lambda: jax.eval_shape(product, x),
        lambda: jax.eval_shape(jax.vmap(product), batch),
    ):
        with pytest.raises(UnsupportedError, match=f"epilogue '{more['epilogue']}': a function of real numbers"):
            trace()


@pytest.mark.parametrize("scale", [True, np.True_])
def test_a_truth_value_is_no_scale(scale):
    ones = jnp.ones((4, 4), jnp.float8_e4m3fn)
    with pytest.raises(InvalidOperandError, match="^scale_a: got True, expected a real number$"):
        rj.matmul(ones, ones, scale_a=scale, scale_b=1.0)
