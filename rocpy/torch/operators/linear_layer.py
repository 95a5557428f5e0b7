# SPDX-License-Identifier: MIT
"""The operators ``torch.ops.rocpy.linear`` and ``linear_aux``: a layer with its activation, and what gradients read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rocpy.torch.operators.activations import ACTIVATIONS
from rocpy.torch.operators.autograd import apply_linear
from rocpy.torch.operators.kernels import linear_forward
from rocpy.torch.operators.registration import define, record
from rocpy.torch.operators.shapes import check_devices

__all__ = ["linear", "linear_aux", "linear_shape"]


def linear_shape(x: Tensor, weight: Tensor, bias: Tensor | None) -> Sequence[Any]:
    """Return a layer's result shape, or refuse its operands."""
    check_devices(x=x, weight=weight, bias=bias)
    torch._check(x.dim() >= 1, lambda: f"x: a scalar; a layer's input has shape (..., {weight.shape[-1]})")
    torch._check(weight.dim() == 2, lambda: f"weight: got shape {tuple(weight.shape)}, expected (N, K)")
    torch._check(
        x.shape[-1] == weight.shape[1],
        lambda: f"x and weight: the last axes, {x.shape[-1]} and {weight.shape[1]}, must be equal",
    )
    torch._check(x.dtype == weight.dtype, lambda: f"x is {x.dtype} and weight is {weight.dtype}; cast one")
    if bias is not None:
        torch._check(
            bias.dim() == 1 and bias.shape[0] == weight.shape[0],
            lambda: f"bias: got shape {tuple(bias.shape)}, expected length {weight.shape[0]}",
        )
    return (*x.shape[:-1], weight.shape[0])


def _linear_kernel(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    return linear_forward(x, weight, bias, ACTIVATIONS[activation], False)[0]


def _linear_fake(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:  # noqa: ARG001
    return x.new_empty(linear_shape(x, weight, bias))


def _linear_aux_kernel(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> tuple[Tensor, Any]:
    return linear_forward(x, weight, bias, ACTIVATIONS[activation], True)


def _linear_aux_fake(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    shape = linear_shape(x, weight, bias)
    return x.new_empty(shape), x.new_empty(shape)


_SCHEMA = "(Tensor x, Tensor weight, Tensor? bias, str activation)"
linear = define("linear", f"{_SCHEMA} -> Tensor", _linear_kernel, _linear_fake)
linear_aux = define("linear_aux", f"{_SCHEMA} -> (Tensor, Tensor)", _linear_aux_kernel, _linear_aux_fake)


def _record_linear(below: Any, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    row = ACTIVATIONS[activation]
    if row.saves == "input":
        return linear_aux(x, weight, bias, activation)[0]
    return apply_linear(x, weight, bias, row, lambda x, weight, bias: below(x, weight, bias, activation))


def _record_linear_aux(below: Any, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Any:
    row = ACTIVATIONS[activation]
    return apply_linear(x, weight, bias, row, lambda x, weight, bias: below(x, weight, bias, activation))


record(linear, _record_linear)
record(linear_aux, _record_linear_aux)
