# SPDX-License-Identifier: MIT
"""Tangents and gradients that the fused product would drop are refused, where they are and nowhere else."""

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import rocpy

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
