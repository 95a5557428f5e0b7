# SPDX-License-Identifier: MIT
"""Products that torch records or casts, where nothing watches: few calls, and what the operators compute otherwise."""

from __future__ import annotations

import contextlib

import pytest
from profiled import python_calls

import rocpy

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

pytestmark = pytest.mark.torch
SCALED = rocpy.epilogue(lambda x, bias, s: (x + bias) * s)
WEIGHT = rocpy.Weight(torch.ones(4, 5))


def leaf(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_()


CALLS = {
    "product": lambda a, b, c, bias: rocpy.matmul(a, b),
    "batch": lambda a, b, c, bias: rocpy.matmul(a.expand(2, 3, 4), b),
    "vector": lambda a, b, c, bias: rocpy.matmul(a[0], b),
    "addend": lambda a, b, c, bias: rocpy.matmul(a, b, c, alpha=2.0, beta=0.5),
    "relu": lambda a, b, c, bias: rocpy.matmul(a, b, epilogue="relu_bias", bias=bias),
    "gelu": lambda a, b, c, bias: rocpy.matmul(a, b, epilogue="gelu_bias", bias=bias),
    "aux": lambda a, b, c, bias: rocpy.matmul(a, b, epilogue="gelu_aux")[1]["gelu_aux"],
    "clamp": lambda a, b, c, bias: rocpy.matmul(a, b, epilogue="clamp", clamp=(-0.5, 0.5)),
    "dgelu": lambda a, b, c, bias: rocpy.matmul(a, b, epilogue="dgelu", aux=c),
    "weight": lambda a, b, c, bias: rocpy.matmul(a, WEIGHT, epilogue="bias", bias=bias),
    "custom": lambda a, b, c, bias: rocpy.matmul(a, b, epilogue=SCALED, epilogue_inputs={"bias": bias, "s": 2.0}),
    "linear": lambda a, b, c, bias: rt.linear(a, b.t(), bias, "gelu"),
    "groups": lambda a, b, c, bias: rocpy.grouped_matmul([a, a[:2]], [b], epilogue="bias", bias=bias)[1],
}


class Passing(TorchDispatchMode):
    """Does nothing; where a mode is active, torch's dispatcher sees every operator."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def outcome(call, surroundings):
    """The result, the gradients, second derivatives and what was saved for the gradients."""
    operands = [leaf(3, 4), leaf(4, 5), leaf(3, 5), leaf(5)]
    saved = []
    with surroundings, torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x.shape) or x, lambda x: x):
        y = call(*operands)
        forward = list(saved)
        first = torch.autograd.grad(y.square().sum(), operands, create_graph=True, allow_unused=True)
        one = sum(x.square().sum() for x in first if x is not None)
        second = torch.autograd.grad(one, operands, allow_unused=True)
    return y, first, second, forward


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_the_same_as_by_the_dispatcher(name, autocast):
    def cast():
        return torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast)

    with cast():
        short = outcome(CALLS[name], contextlib.nullcontext())
        long = outcome(CALLS[name], Passing())
    torch.testing.assert_close(short, long, rtol=0, atol=0)


@pytest.mark.parametrize("rare", [{}, {"scale_a": None}], ids=["usual", "rare"])
def test_recorded_products_may_have_a_choice_of_tuning(rare):
    a, b, s = leaf(3, 4), leaf(4, 5).detach(), leaf(5)
    inputs = {"bias": 0.0, "s": s}
    scaled = rocpy.matmul(a.detach(), b, epilogue=SCALED, epilogue_inputs=inputs, autotune=False, **rare)
    torch.testing.assert_close(scaled, (a @ b) * s)
    for amp in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            for epilogue, more in (("relu", {}), (SCALED, {"epilogue_inputs": inputs})):
                assert rocpy.matmul(a, b, epilogue=epilogue, autotune=False, **more, **rare).requires_grad


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("name", ["product", "addend", "gelu", "linear"])
def test_a_recorded_product_takes_few_calls(name, autocast):
    operands = [leaf(3, 4), leaf(4, 5), leaf(3, 5), leaf(5)]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        assert python_calls(lambda: CALLS[name](*operands)) < (130 if autocast else 45)


def test_a_changed_operand_is_noticed():
    a, b = leaf(3, 4), leaf(4, 5)
    factor = a * 1
    y = rocpy.matmul(factor, b)
    factor.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
