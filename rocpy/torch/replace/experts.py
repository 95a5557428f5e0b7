# SPDX-License-Identifier: MIT
"""Experts of transformers' models, computed by grouped products: all tokens of an expert in one product.

transformers decorates classes of experts by ``use_experts_implementation``, which says how their parameters lie and
chooses at each call what computes them. What replaces one of its own implementations here has the same contract, and
runs as long as the model still chooses one of those.
"""

from __future__ import annotations

import functools
import inspect
import sys
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from rocpy._messages.modules import imported
from rocpy.torch.operators.grouped import grouped
from rocpy.torch.operators.kernels import computes_products_itself, is_distributed
from rocpy.torch.replace.fusion import refusal, subclass_of

__all__ = ["CHOSEN", "compute_experts", "describe_experts", "experts_class", "judge_experts"]

_MODULE = "transformers.integrations.moe"
# What the decorator may say of a class; another release may say more, which would be another computation.
_KNOWN = {
    "experts_class",
    "experts_interface",
    "is_concatenated",
    "is_transposed",
    "has_bias",
    "has_gate",
    "has_post_expert_norm",
}
# Implementations that compute what a class' own code does, in its parameters' types.
_SERVED = (None, "eager", "grouped_mm", "batched_mm")
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

#: The attribute that holds which implementation the model had chosen.
CHOSEN = "_rocpy_experts_implementation"


# ---- recognition ----


@functools.cache
def _dispatching_code(module: Any) -> frozenset[CodeType]:
    """Return the code of the function that transformers puts in place of a class' forward."""
    codes: set[CodeType] = set()
    pending = [module.use_experts_implementation.__code__]
    while pending:
        inner = [x for x in pending.pop().co_consts if isinstance(x, CodeType)]
        codes.update(x for x in inner if x.co_name == "forward")
        pending += inner
    return frozenset(codes)


def judge_experts(module: nn.Module) -> str | None:
    """Return why experts cannot be computed by rocpy, ``""`` if they can, ``None`` if they are not transformers'."""
    moe = imported(_MODULE)
    forward: Any = getattr(type(module), "forward", None)
    if moe is None or getattr(forward, "__code__", None) not in _dispatching_code(moe):
        return None
    if set(inspect.signature(moe.use_experts_implementation).parameters) - _KNOWN:
        return "this release of transformers describes experts in a way that rocpy does not support"
    if inspect.getclosurevars(forward).nonlocals.get("experts_interface") is not moe.ALL_EXPERTS_FUNCTIONS:
        return "its class chooses its implementation among others than transformers' own"
    chosen = getattr(getattr(module, "config", None), "_experts_implementation", None)
    if chosen not in _SERVED:
        return f"the model chose experts_implementation={chosen!r}"
    own = inspect.unwrap(forward).__code__.co_names
    if chosen == "eager" and not {"float", "float32"}.isdisjoint(own):
        return "the model chose experts_implementation='eager', whose code computes in float32"
    if "forward" in module.__dict__:
        return "its forward was set on the object, by accelerate or another package"
    if parametrize.is_parametrized(module):
        return "its parameters are computed, by torch.nn.utils.parametrize"
    return refusal(type(module)) or _judge_weights(module)


def _judge_weights(module: nn.Module) -> str:
    names = _names(module)
    for name in names:
        x = getattr(module, name, None)
        if not isinstance(x, Tensor) or is_lazy(x):
            return f"it has no parameter {name}"
        if type(x) not in (nn.Parameter, Tensor):
            return f"its {name} is a {type(x).__name__}, a tensor class of another package"
        if x.dtype not in _DTYPES:
            return f"its {name} is {str(x.dtype).removeprefix('torch.')}"
        if x.layout is not torch.strided:
            return f"its {name} has no dense memory ({str(x.layout).removeprefix('torch.')})"
    count = getattr(module, "num_experts", None)
    for name in names:
        x, axes = getattr(module, name), 2 if name.endswith("_bias") else 3
        if x.dim() != axes or x.shape[0] != count:
            return f"its {name} has shape {tuple(x.shape)}, which is not {axes} axes of which the first is its experts'"
    return ""


def _names(module: Any) -> list[str]:
    first = "gate_up_proj" if getattr(module, "has_gate", True) else "up_proj"
    weights = [first, "down_proj"]
    return [*weights, *(f"{name}_bias" for name in weights)] if _has_bias(module) else weights


def _has_bias(module: Any) -> bool:
    return bool(getattr(module, "has_bias", False))


def describe_experts(module: Any) -> tuple[int, int, int, bool, str, int]:
    """Return experts' number, extents (outside and inside), whether there is a bias, element type, and elements."""
    weights = [getattr(module, name) for name in _names(module)]
    down = weights[1]
    outside, inside = down.shape[1:] if not module.is_transposed else reversed(down.shape[1:])
    dtype = str(down.dtype).removeprefix("torch.")
    return down.shape[0], outside, inside, _has_bias(module), dtype, sum(x.numel() for x in weights)


# ---- the class ----


def experts_class(base: type) -> type:
    """Return the subclass of a class of experts that rocpy computes; it has the same name."""
    return _subclass(base, base.forward)  # type: ignore[attr-defined]


def _rebuild(base: type) -> nn.Module:
    result: nn.Module = object.__new__(experts_class(base))
    return result


@functools.cache
def _subclass(base: type, original: Any) -> type:
    moe = sys.modules[_MODULE]
    interface = moe.ALL_EXPERTS_FUNCTIONS
    own = {name: interface.get(name) for name in _SERVED if name is not None and name != "eager"}

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = self.config._experts_implementation
        if (
            base.forward is original  # type: ignore[attr-defined]
            and chosen == self.__dict__[CHOSEN]
            and (chosen not in own or interface.get(chosen) is own[chosen])
            and not kwargs
            and _are_served(self, args)
        ):
            return compute_experts(self, *args)
        return super(created[0], self).forward(*args, **kwargs)

    created: list[Any] = [subclass_of(base, (_rebuild, (base,)), {"forward": forward})]
    result: type = created[0]
    return result


def _are_served(module: Any, args: tuple[Any, ...]) -> bool:
    """Whether a call is what transformers' own implementations take, on memory that rocpy's products take."""
    if len(args) != 3 or not all(isinstance(x, Tensor) for x in args):
        return False
    states, index, weights = args
    if states.dim() != 2 or index.dim() != 2 or index.shape != weights.shape or states.shape[0] != index.shape[0]:
        return False
    if index.is_floating_point():
        return False
    for name in _names(module):
        x = getattr(module, name)
        if computes_products_itself(x) or is_distributed(x) or x.dtype not in _DTYPES:
            return False
        # Under autocast the products cast; elsewhere the block's own code says what another type means.
        if x.dtype != states.dtype and not torch.is_autocast_enabled(states.device.type):
            return False
    return not is_distributed(states)


def compute_experts(module: Any, states: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Return what experts make of their tokens, as transformers' implementations do.

    Parameters
    ----------
    module
        Experts in transformers' form: ``gate_up_proj`` or ``up_proj``, and ``down_proj``, of shape (E, N, K) or, where
        ``is_transposed``, (E, K, N), perhaps with ``_bias`` of (E, N).
    states
        Tokens, (T, H).
    index, weights
        Each token's experts and their weights, (T, k). Indices of E and more are no expert's and add nothing.
    """
    tokens, top = index.shape
    ids = index.reshape(-1)
    order = torch.argsort(ids, stable=True)
    experts = torch.arange(module.num_experts + 1, device=ids.device, dtype=ids.dtype)
    # Expert e has the rows from boundaries[e] to boundaries[e + 1]; what is no expert's lies before or behind them.
    boundaries = torch.searchsorted(ids[order], experts)
    first, last, *biases = (getattr(module, name) for name in _names(module))
    first_bias, last_bias = biases or (None, None)
    hidden = _product(states[order // top], first, boundaries, first_bias, module.is_transposed)
    hidden = module._apply_gate(hidden) if getattr(module, "has_gate", True) else module.act_fn(hidden)
    rows = _product(hidden, last, boundaries, last_bias, module.is_transposed)
    if getattr(module, "has_post_expert_norm", False):
        rows = module.post_expert_norm(rows)
        at = torch.arange(rows.shape[0], device=rows.device)
        rows = rows.masked_fill(((at < boundaries[0]) | (at >= boundaries[-1])).unsqueeze(-1), 0.0)
    rows = rows * weights.reshape(-1)[order].unsqueeze(-1)
    # Back in the tokens' order, where the sum of a token's experts is one sum, whatever their order was.
    back = torch.argsort(order)
    return rows[back].view(tokens, top, rows.shape[-1]).sum(dim=1).to(states.dtype)


def _product(rows: Tensor, weight: Tensor, boundaries: Tensor, bias: Tensor | None, transposed: bool) -> Tensor:
    result: Tensor = grouped(rows, weight if transposed else weight.mT, boundaries, bias, 1.0, None)
    return result
