# SPDX-License-Identifier: MIT
"""Proofs, by tracing, that a block's forward is a chain or a gate of layers and activations."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx, nn

from rocpy.torch._fusing import Recipe, Step
from rocpy.torch._known import Changeable, identify, identify_call, looks_like_activation, trace

__all__ = ["Unproven", "block_method", "prove_block", "prove_sequence"]


class Unproven(Exception):  # noqa: N818  (an answer, not an error)
    """Why nothing can be fused."""


def block_method(module: nn.Module) -> str | None:
    """Return the method of a block that may hold a feed-forward part, one that takes one tensor; ``None`` for none."""
    cls = type(module)
    for base in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer):
        if isinstance(module, base):
            return "_ff_block" if cls._ff_block is base._ff_block else None
    # A forward of many arguments is no feed-forward block, and tracing it might do more than compute.
    return "forward" if _argument(getattr(cls, "forward", None)) is not None else None


def _argument(function: Any) -> str | None:
    try:
        names = list(inspect.signature(function).parameters.values())[1:]
    except (TypeError, ValueError):
        return None
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return names[0].name if len(names) == 1 and names[0].kind in plain else None


# ---- blocks ----


def prove_block(block: nn.Module, method: str) -> Recipe:
    """Return what a block's method computes, or raise `Unproven` with the reason."""
    try:
        graph, reads = trace(block, method)
    except Changeable as why:
        raise Unproven(f"its {method} is not proven: {why}") from None
    except Exception as error:  # noqa: BLE001  (a block may do anything with what is no tensor)
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Unproven(f"its {method} cannot be traced: {first}") from None
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    result = next(node for node in graph.nodes if node.op == "output").args[0]
    if len(inputs) != 1 or not isinstance(result, fx.Node):
        raise Unproven(f"its {method} does not take one tensor and return one")
    argument = _argument(getattr(type(block), method)) or "input"
    children = block._modules
    try:
        recipe = _read(inputs[0], result, children, reads, argument)
    except Unproven as why:
        raise Unproven(_reason(graph, children) or str(why)) from None
    if not recipe.pairs:
        raise Unproven(_reason(graph, children) or f"no activation follows a linear layer in its {method}")
    return recipe


def _read(x: fx.Node, result: fx.Node, children: dict[str, Any], reads: Any, argument: str) -> Recipe:
    gate: tuple[Step, ...] = ()
    up = None
    if len(x.users) == 2:
        gate, up, x = _gate(x, children)
    return Recipe(tuple(_follow(x, result, children)), gate, up, reads, argument)


def _step(node: fx.Node, value: fx.Node, children: dict[str, Any]) -> Step:
    """Return what a node does with a value, or raise."""
    if node.op == "call_module":
        name = str(node.target)
        if tuple(node.args) != (value,) or node.kwargs or name not in children:
            raise Unproven(f"{name} is not a submodule called with one tensor")
        return _module_step(name, children[name])
    row = identify_call(node)
    if row is not None and node.args[0] is value:
        return Step("", row)
    raise Unproven(f"it computes {_name(node)}, which is no layer and no activation of rocpy's")


def _module_step(name: str, module: Any) -> Step:
    if isinstance(module, nn.Linear):
        return Step(name, linear=True)
    known = identify(module)
    if known is None:
        return Step(name)
    return Step(name, known.row, composite=known.composite, cls=type(module), reads=known.reads)


def _name(node: fx.Node) -> str:
    return getattr(node.target, "__name__", None) or str(node.target)


def _follow(x: fx.Node, end: fx.Node, children: dict[str, Any]) -> Iterator[Step]:
    """Yield the steps from one value to the result; each value must have one reader."""
    while x is not end:
        if len(x.users) != 1:
            raise Unproven(f"the result of {_name(x)} is read {len(x.users)} times")
        (node,) = x.users
        yield _step(node, x, children)
        x = node


def _gate(x: fx.Node, children: dict[str, Any]) -> tuple[tuple[Step, ...], Step, fx.Node]:
    """Return gate, up and the product of both, where x is read by two layers whose results are multiplied."""
    branches = []
    for first in x.users:
        steps, node = [_step(first, x, children)], first
        while len(node.users) == 1:
            (following,) = node.users
            if following.op == "call_function" and following.target in (operator.mul, torch.mul):
                break
            steps.append(_step(following, node, children))
            node = following
        branches.append((tuple(steps), node))
    branches.sort(key=lambda branch: len(branch[0]), reverse=True)
    (gate, one), (up, other) = branches
    ends = {node for _, last in branches for node in last.users}
    if len(gate) == 2 and gate[0].linear and gate[1].row and len(up) == 1 and up[0].linear and len(ends) == 1:
        (product,) = ends
        if {*product.args} == {one, other} and not product.kwargs:
            return gate, up[0], product
    raise Unproven("its input is read twice, and not by a gate and a linear layer beside it")


def _reason(graph: fx.Graph, children: dict[str, Any]) -> str | None:
    """Return what stands behind a linear layer in place of a known activation."""
    for node in graph.nodes:
        if node.op == "call_module" and isinstance(children.get(str(node.target)), nn.Linear):
            for user in node.users:
                following = children.get(str(user.target)) if user.op == "call_module" else None
                if looks_like_activation(following):
                    return unknown_activation(str(node.target), str(user.target), following)
    return None


def unknown_activation(layer: str, name: str, activation: Any) -> str:
    """Return the words for an activation that is not one of rocpy's."""
    return f"{layer} is followed by {name}, a {type(activation).__name__}: none of relu, gelu, silu and sigmoid"


# ---- nn.Sequential ----


def prove_sequence(block: nn.Module) -> tuple[Recipe | None, list[tuple[str, str]]]:
    """Return the pairs of an ``nn.Sequential``, and of those that are not fused the first's name and why."""
    steps, reasons = [], []
    names = list(block._modules)
    for name, following in zip(names, [*names[1:], None], strict=True):
        module = block._modules[name]
        steps.append(_module_step(name, module))
        behind = block._modules.get(following) if following is not None else None
        if isinstance(module, nn.Linear) and looks_like_activation(behind) and identify(behind) is None:
            reasons.append((name, unknown_activation(name, str(following), behind)))
    recipe = Recipe(tuple(steps), by_order=True)
    return (recipe if recipe.pairs else None), reasons
