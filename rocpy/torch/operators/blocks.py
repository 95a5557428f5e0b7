# SPDX-License-Identifier: MIT
"""Feed-forward blocks: two layers whose gradient products are fused, and a gated pair in one product."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rocpy._producers.torch_modes import is_batched
from rocpy._producers.torch_tensors import route
from rocpy.blaslt.front.function import matmul
from rocpy.torch.operators.activations import ACTIVATIONS, Activation, Fused
from rocpy.torch.operators.arithmetic import in_default_environment
from rocpy.torch.operators.autograd import as_matrix, linear_backward
from rocpy.torch.operators.counters import count_gradients, watched
from rocpy.torch.operators.kernels import linear_forward
from rocpy.torch.operators.linear_layer import linear, linear_result
from rocpy.torch.operators.registration import define, record, route_of
from rocpy.torch.operators.shapes import MLP_OPERANDS, check_layer_tensors
from rocpy.torch.operators.sharding import lacks_lists
from rocpy.torch.operators.tangents import refuse_tangents

__all__ = ["gated", "run_mlp"]

_NONE = ACTIVATIONS["none"]


# ---- two layers ----


def _forward(
    x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor | None, activation: Activation, keep: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    hidden, pre = linear_forward(x, w1, b1, activation, keep)
    return linear_forward(hidden, w2, b2, _NONE, False)[0], hidden, pre


class MLPFunction(torch.autograd.Function):  # type: ignore[misc]
    """``activation(x @ w1.T + b1) @ w2.T + b2``, recorded.

    The results after the first are the hidden layer and, where the gradient reads it, its pre-activation: as results
    they are part of the graph, so that a second derivative flows through them.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w1: Tensor,
        b1: Tensor | None,
        w2: Tensor,
        b2: Tensor | None,
        activation: Activation,
        below: Any,
    ) -> Any:
        """Compute, and save what the two layers by themselves would save."""
        results = below(x, w1, b1, w2, b2)
        y, hidden, *rest = results
        ctx.activation = activation
        ctx.set_materialize_grads(False)
        needs = ctx.needs_input_grad
        first = any(needs[:3])
        pre = rest[0] if rest else None
        ctx.save_for_backward(
            x if needs[1] else None,
            w1 if needs[0] else None,
            w2 if first else None,
            hidden if needs[3] or (first and activation.saves == "result") else None,
            pre if first else None,
        )
        return (y, hidden) if pre is None else (y, hidden, pre)

    @staticmethod
    @in_default_environment
    def backward(
        ctx: Any, grad: Tensor | None, grad_hidden: Tensor | None = None, grad_pre: Tensor | None = None
    ) -> Any:
        """Return the gradients that are needed; the activation's is part of the second layer's product."""
        x, w1, w2, hidden, pre = ctx.saved_tensors
        activation = ctx.activation
        needs = ctx.needs_input_grad
        saved = pre if pre is not None else hidden
        plain = grad_hidden is None and grad_pre is None and not torch.is_grad_enabled()
        grad_w2 = grad_b2 = d = grad_b1 = None
        if grad is not None:
            epilogues = activation.fused_for(grad)
            fused = w2 is not None and plain and epilogues.gradient is not None
            rows = hidden if needs[3] else None
            grad_h, grad_w2, grad_b2 = linear_backward(grad, rows, None if fused else w2, needs[4])
            if fused:
                d, grad_b1 = _through_activation(grad, w2, saved, epilogues, needs[2])
            elif grad_h is not None:
                grad_hidden = grad_h if grad_hidden is None else grad_h + grad_hidden
        if grad_hidden is not None:
            d = activation.derivative(grad_hidden, saved) if activation.saves else grad_hidden
        if grad_pre is not None:
            d = grad_pre if d is None else d + grad_pre
        if d is None:
            return None, None, None, grad_w2, grad_b2, None, None
        linear_gradients = linear_backward(d, x, w1, needs[2] and grad_b1 is None)
        return (
            linear_gradients[0],
            linear_gradients[1],
            linear_gradients[2] if grad_b1 is None else grad_b1,
            grad_w2,
            grad_b2,
            None,
            None,
        )


def _through_activation(
    grad: Tensor, w2: Tensor, saved: Tensor, epilogues: Fused, need_bias: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the gradient of the first layer's pre-activation and of its bias, as one product."""
    rows, aux = as_matrix(grad), as_matrix(saved)
    if watched:
        count_gradients(rows, gradients=1, fused_gradients=1)
    if need_bias:
        d, sums = matmul(rows, w2, epilogue=epilogues.gradient_bias, aux=aux)
        return d.view(saved.shape), sums["bgrad"]
    return matmul(rows, w2, epilogue=epilogues.gradient, aux=aux).view(saved.shape), None


# As in _autograd.
_apply = super(torch.autograd.Function, MLPFunction).apply

_SCHEMA = "(Tensor x, Tensor w1, Tensor? b1, Tensor w2, Tensor? b2, str activation)"


def _kernel(x: Tensor, w1: Tensor, b1: Any, w2: Tensor, b2: Any, activation: str) -> Tensor:
    return _forward(x, w1, b1, w2, b2, ACTIVATIONS[activation], False)[0]


def _fake(x: Tensor, w1: Tensor, b1: Any, w2: Tensor, b2: Any, activation: str) -> Tensor:
    return linear_result(linear_result(x, w1, b1, ACTIVATIONS[activation]), w2, b2, _NONE)


def _kernel_aux(x: Tensor, w1: Tensor, b1: Any, w2: Tensor, b2: Any, activation: str) -> Any:
    y, hidden, pre = _forward(x, w1, b1, w2, b2, ACTIVATIONS[activation], True)
    return [y, hidden] if pre is None else [y, hidden, pre]


def _fake_aux(x: Tensor, w1: Tensor, b1: Any, w2: Tensor, b2: Any, activation: str) -> Any:
    keep = ACTIVATIONS[activation].saves == "input"
    hidden = linear_result(x, w1, b1, ACTIVATIONS[activation], keep)
    pre_activation = [hidden.new_empty(hidden.shape)] if keep else []
    return [linear_result(hidden, w2, b2, _NONE), hidden, *pre_activation]


mlp = define("mlp", f"{_SCHEMA} -> Tensor", _kernel, _fake)
mlp_aux = define("mlp_aux", f"{_SCHEMA} -> Tensor[]", _kernel_aux, _fake_aux)


def _record_mlp(below: Any, *args: Any) -> Tensor:
    if lacks_lists(args):
        x, w1, b1, w2, b2, activation = args
        return linear(linear(x, w1, b1, activation), w2, b2, "none")
    return _record_mlp_aux(below.of(mlp_aux), *args)[0]


def _record_mlp_aux(below: Any, x: Any, w1: Any, b1: Any, w2: Any, b2: Any, activation: str) -> Any:
    return list(_apply(x, w1, b1, w2, b2, ACTIVATIONS[activation], lambda *operands: below(*operands, activation)))


_run = record(mlp, _record_mlp)
record(mlp_aux, _record_mlp_aux)


def run_mlp(x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor | None, activation: Activation) -> Tensor:
    """Compute two layers with an activation between them; see `has_layer_shapes` for what they take."""
    access = route_of(x, w1, b1, w2, b2)
    if access == 0 and not torch.compiler.is_compiling():
        check_layer_tensors(input=x)
        refuse_tangents(**dict(zip(MLP_OPERANDS.values(), (x, w1, b1, w2, b2), strict=True)))
    return _run(access, x, w1, b1, w2, b2, activation.name)


# ---- the gate ----


class GateFunction(torch.autograd.Function):  # type: ignore[misc]
    """``activation(gate) * up`` of two halves of one tensor, recorded; keeps that tensor alone."""

    @staticmethod
    def forward(ctx: Any, both: Tensor, activation: Activation) -> Tensor:
        """Compute without keeping the activated gate."""
        ctx.activation = activation
        ctx.save_for_backward(both)
        return _gate(both, activation, in_place=True)

    @staticmethod
    @in_default_environment
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Return the gradient of both halves."""
        (both,) = ctx.saved_tensors
        activation = ctx.activation
        gate, up = both.chunk(2, -1)
        result = activation.function(gate)
        saved = result if activation.saves == "result" else gate
        # Of real numbers these are the tensors themselves.
        up, result = up.conj(), result.conj()
        if torch.is_grad_enabled() or is_batched(grad):
            return torch.cat((activation.derivative(grad * up, saved), grad * result), -1), None
        d = torch.empty_like(both, memory_format=torch.contiguous_format)
        first, second = d.chunk(2, -1)
        first.copy_(activation.derivative(grad * up, saved))
        torch.mul(grad, result, out=second)
        return d, None


_apply_gate = super(torch.autograd.Function, GateFunction).apply


@in_default_environment
def _gate(both: Tensor, activation: Activation, *, in_place: bool) -> Tensor:
    gate, up = both.chunk(2, -1)
    result = activation.function(gate)
    # Without an activation the result is the half itself.
    return result.mul_(up) if in_place and activation.saves else result * up


def gated(both: Tensor, activation: Activation) -> Tensor:
    """Return ``activation(gate) * up`` of the halves of the last axis."""
    if not torch.compiler.is_compiling():
        route_taken = route(both, both)
        if route_taken == 1:
            return _gate(both, activation, in_place=True)
        if route_taken == 2:
            return _apply_gate(both, activation)
    return _gate(both, activation, in_place=False)
