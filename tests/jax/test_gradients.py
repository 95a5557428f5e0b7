# SPDX-License-Identifier: MIT
"""Gradients and vmap of rocpy.jax.matmul against jax's own derivative of the same formula in float64."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import rocpy
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.errors import InvalidProblemError
from rocpy.testing.tolerance import gamma, unit_roundoff

pytestmark = pytest.mark.jax


def formula(jax, epilogue, a, b, c=None, *, bias=None, aux=None, alpha=1.0, beta=1.0, clamp=None, dtype=None):
    """Return the results of an epilogue, in the order of matmul's, spelled out in jax.numpy."""
    row, jnp = EPILOGUES[epilogue], jax.numpy
    functions = {
        "relu": jax.nn.relu,
        "gelu": functools.partial(jax.nn.gelu, approximate=True),
        "gelu_erf": functools.partial(jax.nn.gelu, approximate=False),
        "silu": jax.nn.silu,
        "sigmoid": jax.nn.sigmoid,
        "clamp": lambda x: jnp.clip(x, *clamp),
    }
    y = alpha * jnp.matmul(a, b)
    y = y if c is None else y + beta * c
    y = y if bias is None else y + bias
    name = epilogue.replace("_aux", "").removesuffix("_bias").removesuffix("_bgrad")
    if row.aux == "load":
        y = y * jax.vmap(jax.grad(functions[name[1:]]))(aux.reshape(-1)).reshape(aux.shape)
    d = (functions.get(name) or getattr(jax.nn, name, lambda y: y))(y)
    extra = {"bgrad": lambda: d.sum(-2), "bgrada": lambda: a.sum(-1), "bgradb": lambda: b.sum(-2)}
    if row.aux == "store":
        return d, y
    return (d, extra[row.gradient]()) if row.gradient else (d,)


def results(outputs):
    return (outputs[0], *outputs[1].values()) if isinstance(outputs, tuple) else (outputs,)


def close(found, wanted, terms, precision="float64"):
    """Demand agreement up to the rounding of sums of ``terms`` products of numbers of order 1, on both sides."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    assert found.shape == wanted.shape
    scale = max(1.0, float(np.abs(wanted).max(initial=0.0)))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2 * gamma(terms, unit_roundoff(precision)) * scale)


def draw(rng, epilogue, a, b, *, c=False, dtype=np.float64):
    """Return operands and keywords of a product."""
    row = EPILOGUES[epilogue]
    full = (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])
    shapes = {"a": a, "b": b} | ({"c": full} if c else {}) | ({"bias": (b[-1],)} if row.bias else {})
    shapes |= {"aux": full} if row.aux == "load" else {}
    return {k: rng.standard_normal(s).astype(dtype) for k, s in shapes.items()}, (
        {"clamp": (-0.75, 0.625)} if row.clamp else {}
    )


def as_function(matmul, epilogue, **keywords):
    def run(operands):
        a, b, *c = (operands[k] for k in ("a", "b", "c") if k in operands)
        more = {k: operands[k] for k in ("bias", "aux") if k in operands}
        return results(matmul(a, b, *c, epilogue=epilogue, **more, **keywords))

    return run


def spelled_out(jax, epilogue, **keywords):
    def run(operands):
        return formula(jax, epilogue, **operands, **keywords)

    return run


def loss(function):
    """Return a scalar of a function's results: weighted, so that no gradient is the same everywhere."""

    def run(operands):
        return sum((x * np.cos(np.arange(x.size)).reshape(x.shape)).sum() for x in function(operands))

    return run


TWICE = ("gelu_aux_bias", "dgelu_bgrad", "silu", "bgradb", "sigmoid")
QUICK = ("default", "relu_bias", "gelu_aux_bias", "silu_bias", "clamp_aux", "dgelu_bgrad", "bgrada")
MANY = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in EPILOGUES]


@pytest.mark.parametrize("epilogue", MANY)
def test_every_epilogue(epilogue, jax, matmul, rng):
    operands, keywords = draw(rng, epilogue, (3, 4), (4, 5), c=True)
    ours = as_function(matmul, epilogue, alpha=1.5, beta=-0.5, **keywords)
    theirs = spelled_out(jax, epilogue, alpha=1.5, beta=-0.5, **keywords)
    value, found = jax.jit(jax.value_and_grad(loss(ours)))(operands)
    expected, wanted = jax.jit(jax.value_and_grad(loss(theirs)))(operands)
    close(value, expected, 400)
    assert set(found) == set(wanted)
    for name in wanted:
        close(found[name], wanted[name], 400)


@pytest.mark.parametrize("options", [{"fallback": "error"}, {"reproducible": "batch"}], ids=str)
def test_a_differentiated_product_is_what_the_options_promise(options, jax, matmul, rng):
    a, b, aux = (rng.standard_normal(shape).astype(np.float32) for shape in ((13, 6), (6, 5), (13, 5)))
    product = lambda a: matmul(a, b, epilogue="dgelu", aux=aux, options=options)  # noqa: E731
    result, pull = jax.vjp(product, a)
    assert np.array_equal(result, product(a))
    assert pull(result)[0].shape == a.shape


@pytest.mark.parametrize("epilogue", ["gelu_bias", *(pytest.param(x, marks=pytest.mark.slow) for x in TWICE)])
def test_second_derivatives(epilogue, jax, matmul, rng):
    operands, _ = draw(rng, epilogue, (2, 3), (3, 2))

    def twice(function):
        first = jax.grad(loss(function))
        return jax.grad(lambda x: sum((g * g).sum() for g in first(x).values()))

    found, wanted = (jax.jit(twice(f))(operands) for f in (as_function(matmul, epilogue), spelled_out(jax, epilogue)))
    for name in wanted:
        close(found[name], wanted[name], 2000)


@pytest.mark.parametrize(
    ("a", "b", "bias"),
    [
        ((2, 3, 4), (4, 5), (5,)),
        pytest.param((2, 3, 4), (2, 4, 5), (5,), marks=pytest.mark.slow),
        pytest.param((2, 1, 3, 4), (6, 4, 5), (5,), marks=pytest.mark.slow),
        ((3, 4), (2, 4, 5), (2, 5)),
        pytest.param((2, 3, 4), (4, 5), (2, 5), marks=pytest.mark.slow),
        ((3, 4), (4, 5), (3, 1)),
        ((1, 3, 4), (4, 1), (1,)),
    ],
)
def test_broadcast_operands(a, b, bias, jax, matmul, rng):
    a, b, bias = (rng.standard_normal(shape) for shape in (a, b, bias))
    spread = bias[:, None, :] if bias.ndim == 2 and bias.shape[-1] == b.shape[-1] and b.shape[-1] > 1 else bias
    found = jax.jit(jax.grad(loss(lambda x: results(matmul(*x[:2], epilogue="gelu_bias", bias=x[2])))))((a, b, bias))
    wanted = jax.jit(jax.grad(loss(lambda x: formula(jax, "gelu_bias", *x[:2], bias=x[2]))))((a, b, spread))
    for ours, theirs in zip(found, wanted, strict=True):
        close(ours, np.reshape(theirs, ours.shape), 400)


VECTORS = [
    ((4,), (4, 5)),
    ((4,), (4,)),
    *(pytest.param(*x, marks=pytest.mark.slow) for x in (((3, 4), (4,)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)))),
]


@pytest.mark.parametrize(("a", "b"), VECTORS)
def test_vectors(a, b, jax, matmul, rng):
    operands = rng.standard_normal(a), rng.standard_normal(b)
    found = jax.jit(jax.grad(loss(lambda x: results(matmul(*x, epilogue="silu")))))(operands)
    wanted = jax.jit(jax.grad(loss(lambda x: formula(jax, "silu", *x))))(operands)
    for ours, theirs in zip(found, wanted, strict=True):
        close(ours, theirs, 400)


@pytest.mark.parametrize("name", ["float32", "bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_narrow_types(name, jax, matmul, rng):
    operands, _ = draw(rng, "gelu_bias", (8, 16), (16, 4), dtype=jax.numpy.dtype(name))
    found = jax.jit(jax.grad(loss(as_function(matmul, "gelu_bias"))))(operands)
    wide = {key: value.astype(np.float64) for key, value in operands.items()}
    wanted = jax.jit(jax.grad(loss(spelled_out(jax, "gelu_bias"))))(wide)
    for key, value in found.items():
        assert value.dtype == operands[key].dtype
        # The slope and each of two sums are rounded once to the type; sums of 16 terms are in float32.
        close(value, wanted[key], 40 if name == "float32" else 16, name)


def test_mixed_types(jax, matmul, rng):
    a, b = (rng.standard_normal(s).astype(jax.numpy.bfloat16) for s in ((8, 16), (16, 4)))
    found = jax.jit(jax.grad(loss(lambda x: results(matmul(*x, dtype="float32", epilogue="relu")))))((a, b))
    wanted = jax.jit(jax.grad(loss(lambda x: formula(jax, "relu", *x))))(tuple(x.astype(np.float64) for x in (a, b)))
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == jax.numpy.bfloat16
        close(ours, theirs, 8, "bfloat16")


def test_eight_bits_give_gradients_of_eight_bits(jax, matmul, rng):
    a, b = (rng.standard_normal(s).astype(jax.numpy.float8_e4m3fn) for s in ((4, 8), (8, 4)))
    found = jax.grad(lambda a: matmul(a, b, scale_a=1.0, scale_b=1.0, dtype="float32").sum())(a)
    assert found.dtype == a.dtype
    wanted = np.tile(np.asarray(b, np.float64).sum(1), (4, 1))
    # A sum of eight numbers, rounded to bfloat16 and then to three bits of mantissa.
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, rtol=2**-4 + 2**-8, atol=2**-9 + 2**-6)


def test_integers_have_no_gradient(jax, matmul):
    a = np.ones((4, 4), np.int8)
    assert jax.jit(matmul)(a, a).dtype == np.int32
    with pytest.raises(TypeError, match="int8"):
        jax.grad(lambda a: matmul(a, a, scale_a=1.0, scale_b=1.0, dtype="float32").sum())(a)


def test_the_backward_products_are_ours_and_sum_the_bias(jax, matmul):
    shapes = [jax.ShapeDtypeStruct(s, np.float32) for s in ((8, 16), (16, 4), (4,))]
    gradient = jax.grad(lambda a, b, bias: matmul(a, b, epilogue="gelu_bias", bias=bias).sum(), (0, 1, 2))
    text = jax.jit(gradient).lower(*shapes).as_text()
    assert text.count("stablehlo.custom_call @rocpy_matmul") == 3
    assert "dot_general" not in text
    assert text.count('"gelu_aux_bias"') == 1
    assert text.count('"bgradb"') == 1


def test_remat_and_forward_mode(jax, matmul, rng):
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 5))
    run = lambda a: matmul(a, b, epilogue="gelu").sum()  # noqa: E731
    close(jax.jit(jax.grad(jax.checkpoint(run)))(a), jax.jit(jax.grad(run))(a), 10)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(run, (a,), (a,))


# ---- vmap ----


SHAPES = (((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)))
AXES = ("a", "b", "ab", "c", "rest", "all")
MAPPED = ("default", "gelu_aux_bias", "drelu_bgrad", "bgrada", "bgradb", "clamp_bias")
VMAPS = [
    # Each epilogue with each operand in turn by default, and everything with everything in the slow tests.
    pytest.param(epilogue, axes, shapes, marks=() if (i + j) % 3 == k else pytest.mark.slow)
    for i, epilogue in enumerate(MAPPED)
    for j, axes in enumerate(AXES)
    for k, shapes in enumerate(SHAPES)
]


@pytest.mark.parametrize(("epilogue", "axes", "shapes"), VMAPS)
def test_vmap(epilogue, axes, shapes, jax, matmul, rng):
    operands, keywords = draw(rng, epilogue, *shapes, c=True)
    mapped = {"a": "a", "b": "b", "ab": "ab", "c": "c", "rest": ("bias", "aux"), "all": tuple(operands)}[axes]
    chosen = {name: 0 if name in mapped else None for name in operands}
    if not any(axis == 0 for axis in chosen.values()):
        chosen["c"] = 0
    given = {k: np.stack([x, -x, 0.5 * x]) if chosen[k] == 0 else x for k, x in operands.items()}
    run = as_function(matmul, epilogue, **keywords)
    found = jax.jit(jax.vmap(run, in_axes=(chosen,)))(given)
    theirs = jax.jit(spelled_out(jax, epilogue, **keywords))
    for place in range(3):
        wanted = theirs({k: x[place] if chosen[k] == 0 else x for k, x in given.items()})
        for ours, one in zip(found, wanted, strict=True):
            close(ours[place], one, 100)


@pytest.mark.parametrize(("a", "b"), [((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((4,), (2, 4, 5))])
@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_vmap_of_vectors(a, b, axes, jax, matmul, rng):
    shapes = [(3, *x) if axis == 0 else x for x, axis in zip((a, b), axes, strict=True)]
    operands = [rng.standard_normal(shape) for shape in shapes]
    found = jax.vmap(lambda a, b: matmul(a, b, epilogue="relu"), axes)(*operands)
    wanted = jax.vmap(lambda a, b: jax.nn.relu(a @ b), axes)(*operands)
    close(found, wanted, 100)


def test_vmap_of_biases(jax, matmul, rng):
    a, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 1))
    for bias in ((3, 1), (1,)):
        biases = rng.standard_normal((3, *bias))
        found = jax.vmap(lambda x: matmul(a, b, epilogue="bias", bias=x))(biases)
        close(found, a @ b + biases.reshape(3, -1, 1), 20)
        nested = jax.vmap(jax.vmap(lambda x: matmul(a, b, epilogue="bias", bias=x)))(biases[None])
        close(nested[0], found, 20)


def test_vmap_and_gradients_in_either_order(jax, matmul, rng):
    xs, w, bias = rng.standard_normal((6, 3, 4)), rng.standard_normal((4, 5)), rng.standard_normal(5)
    theirs = jax.grad(lambda w, x: formula(jax, "gelu_bias", x, w, bias=bias)[0].sum())
    wanted = jax.jit(jax.vmap(theirs, (None, 0)))(w, xs)
    one = lambda w, x: matmul(x, w, epilogue="gelu_bias", bias=bias).sum()  # noqa: E731
    close(jax.jit(jax.vmap(jax.grad(one), (None, 0)))(w, xs), wanted, 100)
    close(jax.jit(jax.grad(lambda w: jax.vmap(one, (None, 0))(w, xs).sum()))(w), wanted.sum(0), 200)


def test_vmap_refuses_what_the_product_refuses(jax, matmul):
    with pytest.raises(InvalidProblemError, match="must be equal"):
        jax.vmap(matmul)(np.ones((2, 3, 4)), np.ones((2, 5, 4)))


@pytest.mark.parametrize("exponent", [-1, -2, -3, -8, -16])
def test_powers_in_the_value_of_an_epilogue(jax, exponent):
    """Their gradients are finite where a square of the result, or of the operand, is not."""
    x = np.array([1e-11, 1e-3, 0.05, -1.5, 20.0, 1e3, 1e13, -1e18, 1e38, -7.0], np.float32)
    evaluate = rocpy.epilogue(lambda x: x**exponent).evaluate
    with np.errstate(over="ignore"):
        wide = (exponent * x.astype(float) ** (exponent - 1)).astype(np.float32)
    normal = np.isinf(wide) | (np.abs(wide) > 1e-37)  # XLA has no smaller ones
    for form in (jax.grad, lambda function: jax.jit(jax.grad(function))):
        slope = np.asarray(form(lambda v: evaluate(v).sum())(jax.numpy.asarray(x)))
        np.testing.assert_allclose(slope[normal], wide[normal], rtol=2e-5)
