# SPDX-License-Identifier: MIT
"""The operators ``torch.ops.rocpy.linear`` and ``linear_aux``: a layer with its activation, and what gradients read."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rocpy.errors import InvalidProblemError, UnsupportedError
from rocpy.torch.operators.activations import ACTIVATIONS, Activation
from rocpy.torch.operators.autograd import apply_linear
from rocpy.torch.operators.kernels import layer_epilogue, linear_forward
from rocpy.torch.operators.registration import define, record
from rocpy.torch.operators.shapes import (
    ProductSettings,
    check_devices,
    check_layer_input,
    check_product,
    require,
    result_dtype,
)

__all__ = ["linear", "linear_aux", "linear_result", "run_linear"]


def linear_result(x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation, keep: bool = False) -> Tensor:
    """Return a layer's result without values, or refuse its operands as the layer itself does.

    ``keep``: the pre-activation, which has the result's shape and type, is returned beside it.
    """
    check_devices(input=x, weight=weight, bias=bias)
    if weight.dim() != 2:
        raise InvalidProblemError(f"weight: got shape {tuple(weight.shape)}, expected (N, K)")
    if bias is not None:
        require(
            bias.dim() == 1 and bias.shape[0] == weight.shape[0],
            lambda: f"bias: got shape {tuple(bias.shape)}, expected length {weight.shape[0]}",
        )
    name = layer_epilogue(x, bias, activation, keep) or ("default" if bias is None else "bias")
    right = weight.mT
    try:
        check_product(x, right, None, bias, None, name, _PLAIN)
        dtype = result_dtype(x, weight, None)
    except (InvalidProblemError, UnsupportedError) as error:
        check_layer_input(x, weight, activation.name if isinstance(error, UnsupportedError) else "")
        raise
    return x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=dtype)


_PLAIN = ProductSettings(1.0, 0.0, None, None, None)


def _linear_kernel(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    return linear_forward(x, weight, bias, ACTIVATIONS[activation], False)[0]


def _linear_fake(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    return linear_result(x, weight, bias, ACTIVATIONS[activation])


def _linear_aux_kernel(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> tuple[Tensor, Any]:
    return linear_forward(x, weight, bias, ACTIVATIONS[activation], True)


def _linear_aux_fake(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> tuple[Tensor, Tensor]:
    y = linear_result(x, weight, bias, ACTIVATIONS[activation], True)
    return y, y.new_empty(y.shape)


_SCHEMA = "(Tensor x, Tensor weight, Tensor? bias, str activation)"
linear = define("linear", f"{_SCHEMA} -> Tensor", _linear_kernel, _linear_fake)
linear_aux = define("linear_aux", f"{_SCHEMA} -> (Tensor, Tensor)", _linear_aux_kernel, _linear_aux_fake)


def _record_linear(below: Any, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    row = ACTIVATIONS[activation]
    if row.saves == "input":
        return _record_linear_aux(below.of(linear_aux), x, weight, bias, activation)[0]
    return apply_linear(x, weight, bias, row, lambda x, weight, bias: below(x, weight, bias, activation))


def _record_linear_aux(below: Any, x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Any:
    row = ACTIVATIONS[activation]
    return apply_linear(x, weight, bias, row, lambda x, weight, bias: below(x, weight, bias, activation))


run_linear = record(linear, _record_linear)
record(linear_aux, _record_linear_aux)
