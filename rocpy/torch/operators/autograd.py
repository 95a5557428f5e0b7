# SPDX-License-Identifier: MIT
"""Gradients of the linear layer: one autograd function for plain tensors and for torch's dispatcher alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rocpy._producers.torch_modes import is_sharded
from rocpy.blaslt.front.function import matmul
from rocpy.torch.operators.activations import Activation
from rocpy.torch.operators.arithmetic import in_default_environment
from rocpy.torch.operators.counters import count_gradients, watched
from rocpy.torch.operators.sharding import evenly_sharded

__all__ = ["LinearFunction", "apply_linear", "as_matrix", "in_rows", "linear_backward", "needs_grad"]

Below = Callable[[Tensor, Tensor, "Tensor | None"], Any]


def needs_grad(*operands: object) -> bool:
    """Whether the call must be recorded: grad mode is on and an operand requires a gradient."""
    return torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in operands)


def in_rows(x: Tensor) -> Tensor:
    """Return a tensor as one matrix, its axes but the last in one; ``flatten`` has no rule for entries of a batch."""
    if is_sharded(x):
        x = evenly_sharded(x)
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def as_matrix(d: Tensor) -> Tensor:
    """Return a gradient as one matrix that the library can read twice without a copy; an expanded one is made dense."""
    if d.dim() != 2:
        d = in_rows(d)
    return d if d.is_contiguous() or d.t().is_contiguous() else d.contiguous()


class LinearFunction(torch.autograd.Function):  # type: ignore[misc]
    """``activation(x @ weight.T + bias)``, recorded.

    For an activation whose gradient reads the pre-activation there are two results, the second being that. As a result
    it is part of the graph, so that a second derivative flows through it like any other tensor.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation, below: Below) -> Any:
        """Compute, and save what the gradient reads: no more than a linear layer and its activation do."""
        saves = activation.saves
        result = below(x, weight, bias)
        y, pre = result if saves == "input" else (result, None)
        ctx.activation = activation
        ctx.set_materialize_grads(False)
        needs = ctx.needs_input_grad
        rows, matrix = (x if needs[1] else None), (weight if needs[0] else None)
        if saves == "input":
            ctx.save_for_backward(rows, matrix, pre)
            return y, pre
        if saves:
            ctx.save_for_backward(rows, matrix, y)
        else:
            ctx.save_for_backward(rows, matrix)
        return y

    @staticmethod
    @in_default_environment
    def backward(ctx: Any, grad: Tensor | None, grad_pre: Tensor | None = None) -> Any:
        """Return the gradients of those inputs that need one."""
        x, weight, *saved = ctx.saved_tensors
        d = grad
        if grad is not None and saved:
            d = ctx.activation.derivative(grad, saved[0])
        if grad_pre is not None:
            d = grad_pre if d is None else d + grad_pre
        if d is None:
            return None, None, None, None, None
        return (*linear_backward(d, x, weight, ctx.needs_input_grad[2]), None, None)


def linear_backward(
    d: Tensor, x: Tensor | None, weight: Tensor | None, need_bias: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return a linear layer's gradients from its pre-activation's; the bias' comes out of the weight's product.

    ``x`` is given where the weight needs a gradient, ``weight`` where the input does.
    """
    lead = d.shape[:-1]
    d = as_matrix(d)
    grad_x = grad_weight = grad_bias = None
    if watched:
        fused = x is not None and need_bias
        count_gradients(d, gradients=(weight is not None) + (x is not None), fused_gradients=fused)
    is_complex = d.is_complex()
    if weight is not None:
        grad_x = matmul(d, weight.conj() if is_complex else weight)
        if len(lead) != 1:
            grad_x = grad_x.reshape(*lead, weight.shape[1])
    if x is not None:
        rows = x if x.dim() == 2 else in_rows(x)
        if is_complex:
            rows = rows.conj()
        if need_bias:
            grad_weight, sums = matmul(d.t(), rows, epilogue="bgrada")
            grad_bias = sums["bgrada"]
        else:
            grad_weight = matmul(d.t(), rows)
    elif need_bias:
        grad_bias = d.sum(0)
    return grad_x, grad_weight, grad_bias


# Records a linear layer, which the last argument computes. This is Function.apply without its look-ups for torch.func,
# whose states never come by here.
apply_linear = super(torch.autograd.Function, LinearFunction).apply
