# SPDX-License-Identifier: MIT
"""Weights packed for inference: kept beside the layer, dropped when the parameter is another one or trains."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from rocpy._producers.torch_tensors import route
from rocpy.blaslt.front.function import matmul
from rocpy.blaslt.operands.weight import Weight
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError
from rocpy.torch.operators.activations import Activation
from rocpy.torch.operators.counters import count, watched
from rocpy.torch.operators.kernels import has_layer_shapes, layer_epilogue
from rocpy.torch.operators.shapes import check_layer_input

__all__ = ["ATTRIBUTE", "PACK_BEFORE", "forget", "is_sharded", "pack", "product", "unfreeze", "weight_of"]

ATTRIBUTE = "_rocpy_packed"
# What ``pack`` was before the layer was frozen; a layer that is not frozen has no such attribute.
PACK_BEFORE = "_rocpy_pack_before_freeze"


def forget(module: torch.nn.Module) -> None:
    """Drop a layer's packed weight."""
    module.__dict__.pop(ATTRIBUTE, None)


def unfreeze(module: torch.nn.Module) -> None:
    """Drop a layer's packed weight, and let it pack only if it did before it was frozen."""
    table = module.__dict__
    table.pop(ATTRIBUTE, None)
    if PACK_BEFORE in table:
        table["pack"] = table.pop(PACK_BEFORE)


def pack(module: torch.nn.Module, weight: Tensor) -> Weight | None:
    """Return a layer's weight packed, now or before; ``None`` for one that cannot be kept."""
    if weight.dim() != 2 or weight.is_inference():
        forget(module)
        return None
    cached = module.__dict__.get(ATTRIBUTE)
    # Writes, other memory, another shape or layout, and steps of optimizers are noticed by the Weight itself.
    if cached is None or cached[0] is not weight:
        if is_sharded(module):
            forget(module)
            return None
        # A new one each time: another thread may still compute with the old. Without the bias, which each call passes.
        cached = (weight, Weight.from_linear(SimpleNamespace(weight=weight, bias=None)))
        module.__dict__[ATTRIBUTE] = cached
    packed: Weight = cached[1]
    return packed


def is_sharded(module: torch.nn.Module) -> bool:
    """Whether ``fully_shard`` gathers a layer's weight for each call: into the same tensor, with the same version."""
    states = sys.modules.get("torch.distributed._composable_state")
    if states is None:
        return False
    # Modules that fully_shard or another function of its kind was called with; asked only when a layer packs.
    roots = getattr(states, "_module_state_mapping", None)
    if roots is None:  # another torch
        return "torch.distributed.fsdp" in sys.modules
    return any(module is child for root in list(roots) for child in root.modules())


def weight_of(module: torch.nn.Module, x: Tensor, weight: Tensor, bias: Tensor | None) -> Weight | None:
    """Return a layer's weight packed for a product that nothing records; ``None`` where that is no use."""
    if torch.compiler.is_compiling() or type(weight) is not torch.nn.Parameter or route(x, weight, bias) != 1:
        return None
    return pack(module, weight)


def product(module: torch.nn.Module, x: Tensor, weight: Tensor, bias: Tensor | None, activation: Activation) -> Any:
    """Return the layer's result by its packed weight; ``None`` where that is no use."""
    if not has_layer_shapes(weight, bias):
        return None
    packed = weight_of(module, x, weight, bias)
    if packed is None:
        return None
    name = layer_epilogue(x, bias, activation, False)
    if watched:
        active = activation.saves != ""
        count(layers=1, packed=1, activations=active, fused=active and name is not None)
    try:
        if name is not None:
            return matmul(x, packed, epilogue=name, bias=bias)
        return activation.in_place(matmul(x, packed, epilogue="default" if bias is None else "bias", bias=bias))
    except (InvalidOperandError, InvalidProblemError, UnsupportedError) as error:
        check_layer_input(x, weight, activation.name if isinstance(error, UnsupportedError) else "", bias=bias)
        raise
