# SPDX-License-Identifier: MIT
"""A bias of one value per row: its gradients, and what a mapped axis makes of its shape."""

from __future__ import annotations

import pytest

import rocpy

torch = pytest.importorskip("torch")
pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch
EPILOGUES = [row.name for row in rocpy.blaslt.EPILOGUES.values() if row.bias]
# Shapes of a, b and the bias.
SHAPES = [
    ((2, 3, 4), (2, 4, 5), (3, 1)),
    ((2, 3, 4), (2, 4, 5), (2, 3, 1)),
    ((2, 3, 4), (4, 5), (1, 3, 1)),
    ((3, 4), (2, 4, 5), (2, 3, 1)),
    ((2, 2, 3, 4), (2, 4, 5), (2, 2, 3, 1)),
    ((3, 2, 3, 4), (2, 4, 5), (2, 3, 1)),
    ((2, 3, 4), (2, 4, 1), (2, 3, 1)),
    ((2, 3, 4), (2, 4, 1), (3, 1)),
    ((3, 3, 4), (4, 1), (3, 1)),  # one for each batch entry
    ((3, 4), (4, 1), (3, 1)),
    ((2, 3, 4), (2, 4, 0), (2, 3, 1)),
    ((2, 3, 0), (2, 0, 5), (2, 3, 1)),
    ((1, 4), (4, 1), (1, 1)),
    ((1, 1, 4), (4, 1), (1, 1, 1)),
]


def randn(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def run(a, b, bias, epilogue="bias"):
    clamp = (-0.5, 0.5) if rocpy.blaslt.EPILOGUES[epilogue].clamp else None
    result = rocpy.matmul(a, b, epilogue=epilogue, bias=bias, clamp=clamp)
    return (result[0], *result[1].values()) if isinstance(result, tuple) else result


def check(epilogue, a, b, bias):
    operands = randn(*a), randn(*b), randn(*bias)
    assert torch.autograd.gradcheck(lambda *x: run(*x, epilogue), operands, fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda *x: run(*x, epilogue), operands, fast_mode=True)


@pytest.mark.parametrize(("a", "b", "bias"), SHAPES)
def test_gradients(a, b, bias):
    check("relu_bias", a, b, bias)


@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_gradients_of_every_epilogue(epilogue):
    check(epilogue, (2, 3, 4), (2, 4, 5), (2, 3, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16] if torch else [], ids=str)
def test_gradients_of_every_type(dtype):
    bias = randn(2, 3, 1, dtype=dtype)
    run(randn(2, 3, 4, dtype=dtype), randn(2, 4, 5, dtype=dtype), bias).sum().backward()
    torch.testing.assert_close(bias.grad, torch.full((2, 3, 1), 5, dtype=dtype))


def test_gradients_otherwise():
    a, b, bias = (torch.randn(shape) for shape in ((2, 3, 4), (4, 5), (2, 3, 1)))
    expected = torch.full((2, 3, 1), 5.0)

    def sum_of(bias):
        return run(a, b, bias).sum()

    torch.testing.assert_close(torch.func.grad(sum_of)(bias), expected)
    compiled = torch.compile(sum_of, backend="aot_eager", fullgraph=True)
    of_weight = lambda bias: rocpy.matmul(a, rocpy.Weight(b), epilogue="bias", bias=bias).sum()  # noqa: E731
    for function in (compiled, of_weight):
        leaf = bias.clone().requires_grad_()
        torch.testing.assert_close(torch.autograd.grad(function(leaf), leaf)[0], expected)


@pytest.mark.parametrize("mapped", [(0, 0, 0), (0, None, None), (0, None, 0), (None, None, 0), (0, 0, None)], ids=str)
@pytest.mark.parametrize("extent", [1, 3])
@pytest.mark.parametrize(("a", "b", "bias"), SHAPES)
def test_mapped(a, b, bias, extent, mapped):
    operands = [
        torch.randn(shape if axis is None else (extent, *shape))
        for shape, axis in zip((a, b, bias), mapped, strict=True)
    ]
    entries = [
        run(*(x if axis is None else x[i] for x, axis in zip(operands, mapped, strict=True))) for i in range(extent)
    ]
    torch.testing.assert_close(torch.vmap(run, in_dims=mapped)(*operands), torch.stack(entries))
