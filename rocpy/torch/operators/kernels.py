# SPDX-License-Identifier: MIT
"""What the operators compute on memory: rocpy's product, and torch's activation where none is fused."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.fx import Proxy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass_type

from rocpy.blaslt.front.call import compute_product
from rocpy.blaslt.front.function import matmul
from rocpy.blaslt.grouped._packed import compute_packed
from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.blaslt.model.options import forbids_composing
from rocpy.epilogues import CustomEpilogue
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError
from rocpy.torch.operators.activations import Activation
from rocpy.torch.operators.arithmetic import in_default_environment
from rocpy.torch.operators.counters import count, watched
from rocpy.torch.operators.shapes import ProductSettings, check_layer_input

__all__ = [
    "computes_products_itself",
    "custom_kernel",
    "grouped_kernel",
    "has_layer_shapes",
    "is_distributed",
    "layer_epilogue",
    "linear_forward",
    "product_kernel",
    "split_names",
]


def has_layer_shapes(weight: Tensor, bias: Tensor | None) -> bool:
    """Whether a weight has shape (N, K) and its bias length N: what products take without further ado."""
    if type(weight) is Proxy:  # of torch.fx: its shape is not known
        return True
    if weight.dim() != 2 or bias is None:
        return weight.dim() == 2
    length = bias.size(0) if bias.dim() == 1 else 0
    # In torch.jit.trace extents are tensors, whose comparison would become part of the graph.
    return bias.dim() == 1 and (type(length) is not int or length == weight.size(0))


def computes_products_itself(weight: Any) -> bool:
    """Whether a weight is a tensor class of another package with products of its own, such as a quantized one."""
    # Of the class: Dynamo does not see the methods of a traced tensor.
    if type(weight) in (Tensor, torch.nn.Parameter) or not is_traceable_wrapper_subclass_type(type(weight)):
        return False
    return not is_distributed(weight)


def is_distributed(x: Any) -> bool:
    """Whether a tensor is a DTensor."""
    if type(x) in (Tensor, torch.nn.Parameter):
        return False
    distributed = sys.modules.get("torch.distributed.tensor")
    return distributed is not None and isinstance(x, distributed.DTensor)


def product_kernel(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    bias: Tensor | None,
    aux: Tensor | None,
    epilogue: str,
    *settings: Any,
) -> Any:
    """Return a product, or a pair of it and what goes with it."""
    alpha, beta, clamp, dtype, compute = ProductSettings(*settings)
    if watched:
        count(matmuls=1)
    row = EPILOGUES[epilogue]
    arguments: dict[str, Any] = {
        "epilogue": epilogue,
        "alpha": alpha,
        "beta": None if c is None else beta,
        "dtype": dtype,
        "compute": compute,
    }
    result = compute_product(a, b, c, bias=bias, aux=aux, clamp=None if clamp is None else tuple(clamp), **arguments)
    return (result[0], next(iter(result[1].values()))) if row.outputs else result


def split_names(names: str) -> list[str]:
    """Return the names of an epilogue's inputs: one text, since torch.jit.trace takes no list of them."""
    return names.split(",") if names else []


@functools.lru_cache(maxsize=256)
def _epilogue_of(text: str) -> CustomEpilogue:
    return CustomEpilogue.from_json(text)


def custom_kernel(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    inputs: Sequence[Tensor],
    names: str,
    expression: str,
    *settings: Any,
) -> list[Tensor]:
    """Return the results of a product with an epilogue of the user's."""
    alpha, beta, dtype, compute = settings
    result = compute_product(
        a,
        b,
        c,
        alpha=alpha,
        beta=None if c is None else beta,
        epilogue=_epilogue_of(expression),
        epilogue_inputs=dict(zip(split_names(names), inputs, strict=True)),
        dtype=dtype,
        compute=compute,
    )
    return list(result) if isinstance(result, tuple) else [result]


def grouped_kernel(
    a: Tensor, b: Tensor, boundaries: Tensor, bias: Tensor | None, alpha: float, dtype: torch.dtype | None
) -> Tensor:
    """Return the products of groups in one operand."""
    if watched:
        count(grouped=1)
    epilogue: Literal["default", "bias"] = "default" if bias is None else "bias"
    result: Tensor = compute_packed(a, b, offsets=boundaries, epilogue=epilogue, bias=bias, alpha=alpha, dtype=dtype)
    return result


def layer_epilogue(x: Tensor, bias: Tensor | None, activation: Activation, keep: bool) -> Any:
    """Return the epilogue that computes a layer's activation, ``None`` where torch's function does.

    Where the options forbid that, the product refuses what it cannot fuse.
    """
    epilogues = activation.fused_for(x)
    if keep:
        return epilogues.aux if bias is None else epilogues.aux_bias
    name = epilogues.plain if bias is None else epilogues.bias
    return activation.epilogue(bias is not None) if name is None and forbids_composing() else name


def linear_forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation, keep: bool
) -> tuple[Tensor, Tensor | None]:
    """Return ``activation(x @ weight.T + bias)`` and, if ``keep``, the pre-activation where the gradient reads it."""
    keep = keep and activation.saves == "input"
    name = layer_epilogue(x, bias, activation, keep)
    if watched:
        count(layers=1, activations=activation.saves != "", fused=activation.saves != "" and name is not None)
    try:
        if name is not None:
            d = matmul(x, weight.mT, epilogue=name, bias=bias)
            return (d[0], next(iter(d[1].values()))) if keep else (d, None)
        d = matmul(x, weight.mT, epilogue="default" if bias is None else "bias", bias=bias)
        if keep and forbids_composing():
            return matmul(x, weight.mT, epilogue=activation.epilogue(bias is not None), bias=bias), d
    except (InvalidOperandError, InvalidProblemError, UnsupportedError) as error:
        check_layer_input(x, weight, activation.name if isinstance(error, UnsupportedError) else "", bias=bias)
        raise
    return _activated(d, activation, keep)


@in_default_environment
def _activated(d: Tensor, activation: Activation, keep: bool) -> tuple[Tensor, Tensor | None]:
    if keep:
        return activation.function(d), d
    return activation.in_place(d), None
