# SPDX-License-Identifier: MIT
"""Layers whose activation is an epilogue of the user's: forward by one product, trained by the operator behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rocpy.blaslt.front.function import matmul
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError
from rocpy.torch.layers import packing
from rocpy.torch.operators.dispatch import dispatched_matmul
from rocpy.torch.operators.kernels import computes_products_itself
from rocpy.torch.operators.shapes import check_layer_bias, check_layer_input, check_layer_tensors
from rocpy.torch.operators.tangents import refuse_tangents

__all__ = ["check_epilogue", "check_layer_epilogue", "custom_layer", "custom_linear", "overridden_layer"]


def check_epilogue(epilogue: Any, approximate: str) -> None:
    """Refuse what an epilogue of the user's does not go with in a layer."""
    if approximate != "none":
        raise InvalidProblemError(f"approximate={approximate!r}: the activation is epilogue {epilogue.name!r}")
    if epilogue.outputs != 1:
        raise InvalidProblemError(
            f"activation: epilogue {epilogue.name!r} has {epilogue.outputs} results, and a layer has one; call "
            "rocpy.torch.matmul with it"
        )


def check_layer_epilogue(epilogue: Any, approximate: str) -> None:
    """Refuse what an epilogue of the user's does not go with in a module, whose calls have arguments of their own."""
    check_epilogue(epilogue, approximate)
    for name in ("input", "self"):
        if name in epilogue.inputs:
            raise InvalidProblemError(
                f"activation: epilogue {epilogue.name!r} has an input {name!r}, an argument of the layer's own call; "
                "give the parameter another name"
            )


def _arguments(epilogue: Any, bias: Tensor | None, inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the epilogue and its inputs; a bias that the function does not take is added before it."""
    if bias is None:
        return {"epilogue": epilogue, "epilogue_inputs": inputs}
    values = dict(inputs or {})
    if "bias" in values:
        raise InvalidProblemError(f"epilogue_inputs: 'bias' is the layer's own, and epilogue {epilogue.name!r} gets it")
    return {"epilogue": epilogue.biased, "epilogue_inputs": {**values, "bias": bias}}


def custom_linear(
    x: Tensor, weight: Tensor, bias: Tensor | None, epilogue: Any, inputs: Mapping[str, Any] | None
) -> Any:
    """Return ``epilogue(x @ weight.T + bias, **inputs)``."""
    check_layer_tensors(input=x, weight=weight, bias=bias)
    arguments = _arguments(epilogue, bias, inputs)
    if computes_products_itself(weight):
        y = torch.nn.functional.linear(x, weight)
        return arguments["epilogue"].evaluate(y, **(arguments["epilogue_inputs"] or {}))
    if isinstance(weight, Tensor) and weight.dim() != 2:  # no proxy of torch.fx
        raise InvalidProblemError(f"weight: got shape {tuple(weight.shape)}, expected (N, K)")
    if torch.compiler.is_compiling():
        check_layer_input(x, weight, bias=bias)  # of a graph the product's own errors come later
        return dispatched_matmul(x, weight.mT, **arguments)
    return _product(x, weight, bias, weight.mT, arguments)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, right: Any, arguments: Mapping[str, Any]) -> Any:
    """Return a layer's product with its weight, or with the same weight packed."""
    try:
        return matmul(x, right, **arguments)
    except (InvalidOperandError, InvalidProblemError, UnsupportedError):
        _check_operands(x, weight, bias, arguments)
        raise


def _check_operands(x: Tensor, weight: Tensor, bias: Tensor | None, arguments: Mapping[str, Any]) -> None:
    """Refuse the operands of a layer's product by the names of the layer's parameters, after it was refused."""
    inputs = {
        f"epilogue_inputs[{name!r}]": value
        for name, value in (arguments["epilogue_inputs"] or {}).items()
        if isinstance(value, Tensor) and value is not bias
    }
    refuse_tangents(input=x, weight=weight, bias=bias)
    check_layer_input(x, weight, bias=bias, **inputs)
    if bias is not None:
        check_layer_bias(bias, (*x.shape[:-1], weight.shape[0]))


def overridden_layer(layer: Any, x: Tensor, inputs: Mapping[str, Any]) -> Any:
    """Compute a layer whose product is somebody else's, and its epilogue after that."""
    epilogue, bias = layer.activation, layer.bias
    if bias is None or "bias" not in epilogue.inputs:
        return epilogue.evaluate(torch.nn.Linear.forward(layer, x), **inputs)
    y = torch.nn.functional.linear(x, layer.weight)
    return epilogue.evaluate(y, **_arguments(epilogue, bias, inputs)["epilogue_inputs"])


def custom_layer(layer: Any, x: Tensor, inputs: Mapping[str, Any]) -> Any:
    """Compute a layer with an epilogue of the user's, by its packed weight where it keeps one."""
    weight, bias = layer.weight, layer.bias
    if layer.pack and not layer.training:
        packed = packing.weight_of(layer, x, weight, bias)
        if packed is not None:
            return _product(x, weight, bias, packed, _arguments(layer.activation, bias, inputs))
    return custom_linear(x, weight, bias, layer.activation, inputs)
