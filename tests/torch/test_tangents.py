# SPDX-License-Identifier: MIT
"""Tangents and gradients that the fused product would drop are refused, where they are and nowhere else."""

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import rocpy
import rocpy.epilogues
import rocpy.torch

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch's own, in make_dual


@pytest.fixture
def x():
    return torch.arange(9.0).reshape(3, 3)


@pytest.mark.parametrize("place", ["a", "b", "c", "bias", "aux"])
def test_a_tangent_is_refused(x, place):
    with forward_ad.dual_level():
        operands = {"a": x, "b": x}
        given = {"c": {"c": x}, "bias": {"epilogue": "relu_bias", "bias": x[0]}}.get(place, {})
        if place == "aux":
            given = {"epilogue": "dgelu", "aux": x}
        everything = operands | given
        everything[place] = forward_ad.make_dual(everything[place], torch.ones_like(everything[place]))
        with pytest.raises(rocpy.UnsupportedError, match=f"{place}.*tangent"):
            rocpy.matmul(everything.pop("a"), everything.pop("b"), **everything)


def test_tensors_without_a_tangent_go_on(x):
    want = x @ x
    with forward_ad.dual_level():
        forward_ad.make_dual(x, x)
        torch.testing.assert_close(rocpy.matmul(x, x), want)
    torch.testing.assert_close(rocpy.matmul(x, x), want)


def test_a_planned_product_refuses_a_tangent(x):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, x)
        with pytest.raises(rocpy.UnsupportedError, match="tangent"):
            rocpy.Matmul(dual, x)
        with rocpy.Matmul(x, x) as mm, pytest.raises(rocpy.UnsupportedError, match="tangent"):
            mm.reset_operands(a=dual)


def _by_dual_level(product, x):
    with forward_ad.dual_level():
        return torch.func.grad(lambda z: product(z).sum())(forward_ad.make_dual(x, torch.ones_like(x)))


def _by_vjp(product, x):
    with forward_ad.dual_level():
        return torch.func.vjp(product, forward_ad.make_dual(x, torch.ones_like(x)))


def _by_vmap(product, x):
    with forward_ad.dual_level():
        rows = forward_ad.make_dual(torch.stack([x, x]), torch.ones(2, 3, 3))
        return torch.func.vmap(product)(rows)


@pytest.mark.parametrize(
    "transformed",
    [
        lambda f, x: torch.func.jvp(f, (x,), (x,)),
        lambda f, x: torch.func.jvp(torch.func.grad(lambda z: f(z).pow(2).sum()), (x,), (x,)),
        lambda f, x: torch.func.jacfwd(torch.func.grad(lambda z: f(z).sin().sum()))(x),
        lambda f, x: torch.func.hessian(lambda z: f(z).pow(2).sum())(x),
        lambda f, x: torch.func.vmap(lambda z: torch.func.jvp(f, (z,), (z,))[1])(torch.stack([x, x])),
        lambda f, x: torch.func.jvp(torch.func.vmap(f), (torch.stack([x, x]),), (torch.ones(2, 3, 3),)),
        _by_dual_level,
        _by_vjp,
        _by_vmap,
    ],
    ids=[
        "jvp",
        "of grad",
        "jacfwd of grad",
        "hessian",
        "in vmap",
        "of vmap",
        "dual in grad",
        "dual in vjp",
        "dual vmap",
    ],
)
@pytest.mark.parametrize("name", ["matmul", "torch matmul", "linear", "mlp", "epilogue"])
def test_a_tangent_below_other_transforms_is_refused(x, name, transformed):
    epilogue = rocpy.epilogues.epilogue(lambda acc, scale: acc * scale)
    mlp = rocpy.torch.MLP(3, 4, activation="gelu")
    product = {
        "matmul": lambda z: rocpy.matmul(z, x),
        "torch matmul": lambda z: rocpy.torch.matmul(z, x),
        "linear": lambda z: rocpy.torch.linear(z, x),
        "mlp": mlp,
        "epilogue": lambda z: rocpy.matmul(z, x, epilogue=epilogue, epilogue_inputs={"scale": x[0]}),
    }[name]
    with pytest.raises(rocpy.UnsupportedError, match="tangent"):
        transformed(product, x)


@pytest.mark.parametrize("product", [rocpy.matmul, lambda a, b: rocpy.torch.linear(a, b.T)], ids=["matmul", "linear"])
def test_what_has_no_tangent_is_transformed_beside_one(x, product):
    def gradient(multiply):
        return torch.func.grad(lambda z: multiply(z, x).pow(2).sum())(x)

    def beside(multiply):
        return torch.func.jvp(lambda y: gradient(multiply).sum() * y.sum(), (x,), (x,))

    for found, wanted in zip(beside(product), beside(torch.matmul), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_a_factor_that_requires_a_gradient_is_refused(x, name):
    factor = torch.tensor(2.0, requires_grad=True)
    for operands in ((x, x, x), (x.numpy(), x.numpy(), x.numpy())):
        with pytest.raises(rocpy.UnsupportedError, match=f"{name}: a tensor"):
            rocpy.matmul(*operands, **{name: factor})
        with torch.no_grad():
            found = rocpy.matmul(*operands, **{name: factor})
        wanted = {"alpha": 2 * x @ x + x, "beta": x @ x + 2 * x}[name]
        np.testing.assert_allclose(np.asarray(found), wanted.numpy())
    np.testing.assert_allclose(rocpy.matmul(x, x, alpha=torch.tensor(2.0)).numpy(), (2 * x @ x).numpy())
    with forward_ad.dual_level(), pytest.raises(rocpy.UnsupportedError, match="alpha.*tangent"):
        rocpy.matmul(x, x, alpha=forward_ad.make_dual(torch.tensor(1.0), torch.tensor(1.0)))
