# SPDX-License-Identifier: MIT
"""How a fused block runs: layers and activations as one call each, as long as nobody could tell the difference.

A block keeps its submodules; what is fused is decided at each call. Where a hook, a parametrization, another module in
a layer's place or a changed attribute makes the proof void, the block's own ``forward`` runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as _torch_module

from rocpy.torch._blocks import run_mlp
from rocpy.torch._lowering import ACTIVATIONS
from rocpy.torch._modules import Linear, is_bare, run_layer

__all__ = ["ATTRIBUTE", "Recipe", "Step", "fused_class", "is_fused_class", "original_class"]

ATTRIBUTE = "_rocpy_recipe"
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a block does with a value.

    Parameters
    ----------
    child
        Name of the submodule that does it; empty for a function in the block's own code.
    row
        The activation that it computes; empty where that is not known.
    linear
        Whether it is a linear layer.
    composite
        As for `Known`.
    cls
        For an activation, the class that the proof holds for.
    reads
        For an activation, the attributes that the proof rests on.
    """

    child: str
    row: str = ""
    linear: bool = False
    composite: bool = False
    cls: type | None = None
    reads: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a block's ``forward`` computes: ``after(activation(gate(x)) * up(x))``, or ``after(x)`` without a gate.

    Parameters
    ----------
    after
        The chain behind the gate, or the whole of it.
    gate
        The gate's layer and activation; empty where there is none.
    up
        The layer beside it.
    reads
        Attributes of the block that the proof rests on.
    argument
        Name of its only argument.
    by_order
        Whether ``after`` is checked against the order of the submodules, which is what ``nn.Sequential`` runs by.
    pairs
        Each layer with the activation behind it; made of the others.
    """

    after: tuple[Step, ...]
    gate: tuple[Step, ...] = ()
    up: Step | None = None
    reads: tuple[tuple[str, Any], ...] = ()
    argument: str = "input"
    by_order: bool = False
    pairs: tuple[tuple[Step, Step], ...] = field(init=False)

    def __post_init__(self) -> None:
        found = [
            pair for steps in (self.gate, self.after) for pair in pairwise(steps) if pair[0].linear and pair[1].row
        ]
        object.__setattr__(self, "pairs", tuple(found))


# ---- whether a proof still holds ----


def _same(table: dict[str, Any], reads: tuple[tuple[str, Any], ...]) -> bool:
    return all(table.get(name, _MISSING) is value for name, value in reads)


def _layer_holds(module: Any) -> bool:
    return type(module) is Linear and is_bare(module) and module.activation is None


def _activation_holds(module: Any, step: Step) -> bool:
    return type(module) is step.cls and is_bare(module) and _same(module.__dict__, step.reads)


def _pair_holds(children: dict[str, Any], layer: Step, activation: Step) -> bool:
    if not _layer_holds(children.get(layer.child)):
        return False
    if activation.composite and torch._C._is_any_autocast_enabled():
        return False
    return not activation.child or _activation_holds(children.get(activation.child), activation)


def _holds(block: nn.Module, recipe: Recipe) -> bool:
    children = block._modules
    if recipe.reads and not _same(block.__dict__, recipe.reads):
        return False
    return all(_pair_holds(children, *pair) for pair in recipe.pairs)


def _no_global_hooks() -> bool:
    return not (
        _torch_module._global_forward_hooks
        or _torch_module._global_forward_pre_hooks
        or _torch_module._global_backward_hooks
        or _torch_module._global_backward_pre_hooks
    )


# ---- running ----


def _chain(children: dict[str, Any], steps: tuple[Step, ...], x: Tensor) -> Tensor:
    """Run a chain whose proof holds."""
    at, end = 0, len(steps)
    while at < end:
        step = steps[at]
        if step.linear and at + 1 < end and steps[at + 1].row:
            row = ACTIVATIONS[steps[at + 1].row]
            first = children[step.child]
            second = children[steps[at + 2].child] if at + 2 < end and steps[at + 2].linear else None
            # Two layers at once: the activation's derivative is part of the second one's gradient product.
            alone = at + 3 >= end or not steps[at + 3].row
            if second is not None and alone and torch.is_grad_enabled() and _layer_holds(second):
                x = run_mlp(x, first.weight, first.bias, second.weight, second.bias, row)
                at += 3
            else:
                x = run_layer(first, x, row)
                at += 2
        else:
            x = children[step.child](x) if step.child else ACTIVATIONS[step.row].function(x)
            at += 1
    return x


def _run(block: nn.Module, recipe: Recipe, x: Tensor) -> Tensor:
    children = block._modules
    if recipe.up is not None:
        layer, activation = recipe.gate
        gate = run_layer(children[layer.child], x, ACTIVATIONS[activation.row])
        x = gate * children[recipe.up.child](x)
    return _chain(children, recipe.after, x)


def _sequence(block: nn.Module, recipe: Recipe, x: Any) -> Any:
    """Run an ``nn.Sequential``, whose members may have changed since the proof."""
    children = block._modules
    names = list(children)
    if names == [step.child for step in recipe.after] and _holds(block, recipe):
        return _chain(children, recipe.after, x)
    known = {layer.child: (layer, activation) for layer, activation in recipe.pairs}
    steps: list[Step] = []
    at = 0
    while at < len(names):
        pair = known.get(names[at])
        if pair is not None and at + 1 < len(names) and names[at + 1] == pair[1].child and _pair_holds(children, *pair):
            steps += pair
            at += 2
        else:
            steps.append(Step(names[at], linear=_layer_holds(children[names[at]])))
            at += 1
    return _chain(children, tuple(steps), x)


def _make(base: type, method: str) -> Callable[..., Any]:
    original = getattr(base, method)

    @functools.wraps(original)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        recipe = self.__dict__.get(ATTRIBUTE)
        if recipe is not None and len(args) + len(kwargs) == 1 and _no_global_hooks():
            if args:
                x = args[0]
            elif recipe.argument in kwargs:
                x = kwargs[recipe.argument]
            else:
                return original(self, **kwargs)
            if recipe.by_order:
                return _sequence(self, recipe, x)
            if _holds(self, recipe):
                return _run(self, recipe, x)
        return original(self, *args, **kwargs)

    return run


# ---- classes ----

# How a block's copies find its class again: by the original one, which can be imported.
_ORIGINAL = "_rocpy_original_class"


def is_fused_class(cls: type) -> bool:
    """Whether a class was made here."""
    return _ORIGINAL in cls.__dict__


def original_class(cls: type) -> type:
    """Return the class that a fused one was made of."""
    original: type = cls.__dict__[_ORIGINAL]
    return original


def _rebuild(base: type, method: str) -> nn.Module:
    made: nn.Module = object.__new__(fused_class(base, method))
    return made


@functools.cache
def fused_class(base: type, method: str) -> type:
    """Return the subclass of a block's class whose ``method`` runs the block's recipe; it has the same name.

    The name is kept because programs choose modules by it: what to wrap, what to keep in one piece.
    """
    plain: Callable[[Any], str] = base.extra_repr  # type: ignore[attr-defined]

    def reduce(self: Any, protocol: Any) -> Any:  # noqa: ARG001
        return _rebuild, (base, method), self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__

    def extra_repr(self: Any) -> str:
        text = plain(self)
        recipe = self.__dict__.get(ATTRIBUTE)
        pairs = [] if recipe is None else [f"{layer.child} + {activation.row}" for layer, activation in recipe.pairs]
        return ", ".join(part for part in (text, f"fused: {', '.join(pairs)}" if pairs else "") if part)

    body = {
        _ORIGINAL: base,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__reduce_ex__": reduce,
        "extra_repr": extra_repr,
        method: _make(base, method),
    }
    return type(base.__name__, (base,), body)
