# SPDX-License-Identifier: MIT
"""Two layers with an epilogue of the user's between them: its gradient is the epilogue of the second one's product."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from rocpy.blaslt.front.function import matmul
from rocpy.epilogues import CustomEpilogue, Expression
from rocpy.epilogues.expressions.expression import Builder
from rocpy.epilogues.expressions.gradient import gradient_of
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError
from rocpy.torch.operators.activations import ACTIVATIONS
from rocpy.torch.operators.arithmetic import in_default_environment
from rocpy.torch.operators.autograd import as_matrix, in_rows, linear_backward
from rocpy.torch.operators.counters import count_gradients, watched
from rocpy.torch.operators.custom_products import _with_product, empty_custom_results
from rocpy.torch.operators.kernels import linear_forward
from rocpy.torch.operators.linear_layer import linear_result
from rocpy.torch.operators.registration import define, record
from rocpy.torch.operators.shapes import (
    MLP_OPERANDS,
    ProductSettings,
    check_layer_bias,
    check_layer_input,
    check_layer_tensors,
    check_product,
)
from rocpy.torch.operators.tangents import refuse_tangents

__all__ = ["custom_mlp", "takes"]

_NONE = ACTIVATIONS["none"]


def takes(epilogue: Any) -> bool:
    """Whether an epilogue is a function of the first layer's result alone."""
    return not epilogue.inputs


@functools.lru_cache(maxsize=64)
def _forward_of(text: str) -> CustomEpilogue:
    """Return the activation and what it was applied to, as the epilogue of one product."""
    return CustomEpilogue(_with_product(Expression.from_json(text)))


@functools.lru_cache(maxsize=64)
def _backward_of(text: str) -> CustomEpilogue:
    """Return the activation's gradient as an epilogue of the product that gives the result's gradient."""
    gradient = gradient_of(Expression.from_json(text))
    whole = gradient.expression
    builder = Builder((*(name for name in whole.inputs if name not in gradient.gradients), "product"))
    replacements = {"x": lambda: builder.input("product"), gradient.gradients[0]: builder.x}
    copies = builder.copy(
        whole,
        lambda node: replacements.get("x" if node.op == "x" else node.value, lambda: None)() if not node.args else None,
    )
    output = copies[whole.outputs[gradient.names.index(gradient.product)]]
    return CustomEpilogue(builder.finish([output], True, (), whole.name))


def _inputs(b1: Tensor | None, **more: Any) -> dict[str, Any]:
    return more if b1 is None else {"bias": b1, **more}


def _kernel(x: Tensor, w1: Tensor, b1: Any, w2: Tensor, b2: Any, expression: str) -> list[Tensor]:
    try:
        hidden, pre = matmul(x, w1.mT, epilogue=_forward_of(expression), epilogue_inputs=_inputs(b1))
    except (InvalidOperandError, InvalidProblemError, UnsupportedError):
        _check_first_layer(x, w1, b1)
        raise
    return [linear_forward(hidden, w2, b2, _NONE, False)[0], hidden, pre]


def _fake(x: Tensor, w1: Tensor, b1: Any, w2: Tensor, b2: Any, expression: str) -> list[Tensor]:
    right, named = w1.mT, _inputs(b1)
    try:
        problem = check_product(x, right, None, None, None, "default", ProductSettings(1.0, 0.0, None, None, None))
        hidden, pre = empty_custom_results(x, right, None, problem, _forward_of(expression).expression, named)
    except (InvalidOperandError, InvalidProblemError, UnsupportedError):
        _check_first_layer(x, w1, b1)
        raise
    return [linear_result(hidden, w2, b2, _NONE), hidden, pre]


def _check_first_layer(x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    check_layer_input(x, weight, bias=bias)
    if bias is not None:
        check_layer_bias(bias, (*x.shape[:-1], weight.shape[0]))


class CustomMLPFunction(torch.autograd.Function):  # type: ignore[misc]
    """``epilogue(x @ w1.T + b1) @ w2.T + b2``, recorded; the hidden layer and the first product are results too."""

    @staticmethod
    def forward(
        ctx: Any, below: Any, x: Tensor, w1: Tensor, b1: Any, w2: Tensor, b2: Any, expression: str
    ) -> tuple[Tensor, ...]:
        """Compute, and save what the gradient reads."""
        y, hidden, pre = below(x, w1, b1, w2, b2, expression)
        ctx.set_materialize_grads(False)
        ctx.expression = expression
        ctx.save_for_backward(x, w1, b1, w2, hidden, pre)
        return y, hidden, pre

    @staticmethod
    @in_default_environment
    def backward(ctx: Any, grad: Any, grad_hidden: Any = None, grad_pre: Any = None) -> Any:
        """Return the gradients; the activation's is part of the second layer's product."""
        x, w1, b1, w2, hidden, pre = ctx.saved_tensors
        needs = ctx.needs_input_grad
        gradient = gradient_of(Expression.from_json(ctx.expression))
        has_slope = gradient.product in gradient.names  # a function of steps, such as floor, has none
        first = any(needs[1:4]) and has_slope
        fused = grad is not None and first and grad_hidden is None and not torch.is_grad_enabled()
        grad_w2 = grad_b2 = d = None
        if grad is not None:
            rows = hidden if needs[4] else None
            after, grad_w2, grad_b2 = linear_backward(grad, rows, w2 if first and not fused else None, needs[5])
            if after is not None:
                grad_hidden = after if grad_hidden is None else after + grad_hidden
        if fused:
            lines = as_matrix(grad)
            if watched:
                count_gradients(lines, gradients=1, fused_gradients=1)
            available = _inputs(b1, product=as_matrix(pre))
            epilogue = _backward_of(ctx.expression)
            wanted = {name: value for name, value in available.items() if name in epilogue.inputs}
            d = matmul(lines, w2, epilogue=epilogue, epilogue_inputs=wanted, dtype=pre.dtype).view(pre.shape)
        elif first and grad_hidden is not None:
            d = gradient(pre, _inputs(b1), [grad_hidden], [gradient.product]).get(gradient.product)
        elif any(needs[1:4]) and not has_slope:
            d = torch.zeros_like(pre)  # as in torch
        grad_b1 = None
        if grad_pre is not None:  # of the product before the bias
            if d is not None and needs[3]:
                grad_b1 = in_rows(d).sum(0) if d.dim() > 1 else d
            d = grad_pre if d is None else d + grad_pre
        linear_gradients: tuple[Any, ...] = (None, None, None)
        if d is not None:
            plain = needs[3] and grad_pre is None
            linear_gradients = linear_backward(d, x if needs[2] else None, w1 if needs[1] else None, plain)
        return (
            None,
            *linear_gradients[:2],
            linear_gradients[2] if grad_b1 is None else grad_b1,
            grad_w2,
            grad_b2,
            None,
        )


_apply = super(torch.autograd.Function, CustomMLPFunction).apply
mlp = define(
    "custom_mlp",
    "(Tensor x, Tensor w1, Tensor? b1, Tensor w2, Tensor? b2, str expression) -> Tensor[]",
    _kernel,
    _fake,
)
record(mlp, lambda below, *args: list(_apply(below, *args)))


def custom_mlp(x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor | None, epilogue: Any) -> Tensor:
    """Compute two layers with an epilogue of the user's between them, for a gradient."""
    check_layer_tensors(input=x)
    refuse_tangents(**dict(zip(MLP_OPERANDS.values(), (x, w1, b1, w2, b2), strict=True)))
    result: Tensor = mlp(x, w1, b1, w2, b2, epilogue.text if b1 is None else epilogue.biased.text)[0]
    return result
