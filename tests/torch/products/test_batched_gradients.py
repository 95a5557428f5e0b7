# SPDX-License-Identifier: MIT
"""Gradients of many directions at once: vectorized Jacobians and Hessians, batched gradients, torch's older vmap."""

from __future__ import annotations

import pytest

import rocpy

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")
from torch._vmap_internals import _vmap  # noqa: E402
from torch.autograd.functional import hessian, jacobian  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::UserWarning")]

squash = rocpy.epilogue(lambda x: torch.tanh(x) * 2)
shifted = rocpy.epilogue(lambda x, bias: torch.tanh(x + bias))


def replaced():
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.GELU(), torch.nn.Linear(5, 3)).double()
    rt.replace_linear(model)
    return model


def ones(*shape):
    return torch.linspace(-1, 1, torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)


FUNCTIONS = {
    "replaced": replaced(),
    "default": lambda x: rocpy.matmul(x, ones(4, 3)),
    "bias": lambda x: rocpy.matmul(x, ones(4, 3), epilogue="bias", bias=ones(3)),
    "relu": lambda x: rocpy.matmul(x, ones(4, 3), epilogue="relu"),
    "gelu": lambda x: rocpy.matmul(x, ones(4, 3), epilogue="gelu"),
    "aux": lambda x: rocpy.matmul(x, ones(4, 3), epilogue="gelu_aux")[1]["gelu_aux"],
    "c": lambda x: rocpy.matmul(x, ones(4, 3), x[:, :3]),
    "batched": lambda x: rocpy.matmul(x.expand(3, 2, 4), ones(3, 4, 3)),
    "rows": lambda x: rocpy.matmul(x.expand(3, 2, 4), ones(4, 3)),
    "linear": lambda x: rt.linear(x, ones(3, 4), ones(3), "silu"),
    "custom": lambda x: rocpy.matmul(x, ones(4, 3), epilogue=shifted, epilogue_inputs={"bias": ones(3)}),
    "mlp": rt.MLP(4, 4).double(),
    "custom_mlp": rt.MLP(4, 4, activation=squash).double(),
    "gated": rt.GatedMLP(4, 4).double(),
    "grouped": lambda x: rocpy.grouped_matmul(x, ones(2, 4, 3), offsets=torch.tensor([1, 2])),
}
every_function = pytest.mark.parametrize("name", FUNCTIONS)


@every_function
def test_vectorized_derivatives(name):
    function, x = FUNCTIONS[name], ones(2, 4)

    def loss(x):
        return function(x).square().sum()

    torch.testing.assert_close(jacobian(function, x, vectorize=True), jacobian(function, x))
    torch.testing.assert_close(hessian(loss, x, vectorize=True), hessian(loss, x))


@every_function
def test_gradients_of_a_batch_of_directions(name):
    x = ones(2, 4).requires_grad_()
    y = FUNCTIONS[name](x)
    directions = ones(3, *y.shape)
    together = torch.autograd.grad(y, x, directions, is_grads_batched=True, retain_graph=True)[0]
    one_by_one = [torch.autograd.grad(y, x, d, retain_graph=True)[0] for d in directions]
    torch.testing.assert_close(together, torch.stack(one_by_one))


@every_function
@pytest.mark.parametrize("recorded", [True, False])
def test_results_of_a_batch(name, recorded):
    function, batch = FUNCTIONS[name], ones(3, 2, 4)
    with torch.set_grad_enabled(recorded):
        torch.testing.assert_close(_vmap(function)(batch), torch.stack([function(x) for x in batch]))


def test_gradcheck_with_batched_gradients():
    operands = ones(2, 4).requires_grad_(), ones(4, 3).requires_grad_()

    def product(a, b):
        return rocpy.matmul(a, b, epilogue="gelu")

    assert torch.autograd.gradcheck(product, operands, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(product, operands, check_batched_grad=True)


def test_an_entry_of_a_batch_is_refused_where_memory_is_needed():
    with pytest.raises(rocpy.UnsupportedError, match=r"w: it is one entry of a batch \(vectorize=True"):
        _vmap(rocpy.Weight)(ones(2, 4, 3))
