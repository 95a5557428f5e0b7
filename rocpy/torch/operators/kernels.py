# SPDX-License-Identifier: MIT
"""What the operators compute on memory: rocpy's product, and torch's activation where none is fused."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Proxy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from rocpy._fp_environment import default_arithmetic
from rocpy.blaslt.front.call import matmul
from rocpy.errors import InvalidProblemError
from rocpy.torch.operators.activations import Activation
from rocpy.torch.operators.arithmetic import in_default_environment
from rocpy.torch.operators.counters import count, watched
from rocpy.torch.operators.shapes import check_layer_input

__all__ = ["below_torch", "computes_products_itself", "has_layer_shapes", "inside", "is_distributed", "linear_forward"]

_local = threading.local()


def inside() -> bool:
    """Whether this thread is in an operator's kernel, from where there is no way back to the dispatcher."""
    return getattr(_local, "depth", 0) > 0


def _plain(value: Any) -> Any:
    # A subclass without a dispatch of its own arrives here as it is; its memory is a tensor's.
    if isinstance(value, Tensor) and type(value) is not Tensor and type(value) is not torch.nn.Parameter:
        return value.as_subclass(Tensor)
    return value


def below_torch(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that runs with everything of torch's already done: no grad mode, no subclasses, no way back."""

    @default_arithmetic
    def run(*args: Any, **kwargs: Any) -> Any:
        _local.depth = getattr(_local, "depth", 0) + 1
        try:
            with torch.no_grad():
                return kernel(*map(_plain, args), **{name: _plain(value) for name, value in kwargs.items()})
        finally:
            _local.depth -= 1

    return run


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
    if type(weight) in (Tensor, torch.nn.Parameter) or not is_traceable_wrapper_subclass(weight):
        return False
    return not is_distributed(weight)


def is_distributed(x: Any) -> bool:
    """Whether a tensor is a DTensor."""
    if type(x) in (Tensor, torch.nn.Parameter):
        return False
    distributed = sys.modules.get("torch.distributed.tensor")
    return distributed is not None and isinstance(x, distributed.DTensor)


def linear_forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation, keep: bool
) -> tuple[Tensor, Tensor | None]:
    """Return ``activation(x @ weight.T + bias)`` and, if ``keep``, the pre-activation where the gradient reads it."""
    epilogues = activation.fused_for(x)
    keep = keep and activation.saves == "input"
    name: Any = (
        (epilogues.aux if bias is None else epilogues.aux_bias)
        if keep
        else (epilogues.plain if bias is None else epilogues.bias)
    )
    if watched:
        count(layers=1, activations=activation.saves != "", fused=activation.saves != "" and name is not None)
    try:
        if name is not None:
            d = matmul(x, weight.mT, epilogue=name, bias=bias)
            return (d[0], next(iter(d[1].values()))) if keep else (d, None)
        d = matmul(x, weight.mT, epilogue="default" if bias is None else "bias", bias=bias)
    except InvalidProblemError:
        check_layer_input(x, weight)
        raise
    return _activated(d, activation, keep)


@in_default_environment
def _activated(d: Tensor, activation: Activation, keep: bool) -> tuple[Tensor, Tensor | None]:
    if keep:
        return activation.function(d), d
    return activation.in_place(d), None
