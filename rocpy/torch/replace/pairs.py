# SPDX-License-Identifier: MIT
"""Which layers of a block are followed by an activation, by the code of its methods; and why others are not fused."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from types import FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from rocpy.torch.analysis.catalog import METHODS
from rocpy.torch.analysis.formulas import looks_like_activation, own_method, resolve
from rocpy.torch.analysis.source import Unread, describe
from rocpy.torch.analysis.straight_line import Chain, check_straight, find_calls, rewrite
from rocpy.torch.replace.calls import row_of
from rocpy.torch.replace.fusion import Method

__all__ = ["FusedMethod", "Pair", "read_block"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A layer and the activation behind it.

    Parameters
    ----------
    layer
        Name of the submodule.
    child
        Name of the submodule that is the activation; empty for a function.
    row
        What it computes.
    """

    layer: str
    child: str
    row: str


@dataclass(frozen=True, slots=True)
class FusedMethod:
    """A method of a block and the pairs in it.

    Parameters
    ----------
    name
        Its name.
    pairs
        The pairs.
    key
        What its code is made of.
    """

    name: str
    pairs: tuple[Pair, ...]
    key: Method


Reasons = list[tuple[str, str]]


def read_block(block: nn.Module) -> tuple[list[FusedMethod], Reasons]:
    """Return a block's methods with pairs, and of what is not fused the layer's name (empty: the block's) and why."""
    if type(block).forward is nn.Sequential.forward and isinstance(block, nn.Sequential):
        return _read_sequence(block)
    linear = frozenset(name for name, child in block._modules.items() if isinstance(child, nn.Linear))
    methods: list[FusedMethod] = []
    reasons: list[str] = []
    for name, function in _methods(block, linear):
        try:
            method, obstacles = _read_method(block, name, function, linear)
        except Unread as why:
            reasons.append(f"its {name} is not fused: {why}")
            continue
        if method is not None:
            methods.append(method)
        reasons += obstacles
    if methods or not _promises_activation(block):
        return methods, []
    if not reasons:
        reasons = ["none of its methods passes the result of a layer to an activation"]
    return [], [("", reasons[0])]


def _methods(block: nn.Module, linear: frozenset[str]) -> Iterator[tuple[str, FunctionType]]:
    """Yield the methods that call a layer of the block's, those with its activations first."""
    cls, methods = type(block), []
    acts = {name for name, child in _children(block) if looks_like_activation(child) or row_of(child) is not None}
    for name in dict.fromkeys(name for base in cls.__mro__ if base not in (nn.Module, object) for name in vars(base)):
        function = own_method(block, name)
        if function is None or name.startswith("__") or name in block.__dict__:
            continue
        names = frozenset(function.__code__.co_names)
        if names & linear:
            methods.append((not names & acts, name != "forward", name, function))
    for *_, name, function in sorted(methods, key=lambda entry: entry[:3]):
        yield name, function


def _children(block: nn.Module) -> Iterator[tuple[str, Any]]:
    yield from block._modules.items()
    yield from ((name, x) for name, x in block.__dict__.items() if callable(x))


def _promises_activation(block: nn.Module) -> bool:
    """Whether one would expect a block to be fused: it has an activation among its children."""
    return any(looks_like_activation(x) or row_of(x) is not None for _, x in _children(block))


# ---- one method ----


def _read_method(
    block: nn.Module, name: str, function: FunctionType, linear: frozenset[str]
) -> tuple[FusedMethod | None, list[str]]:
    tree = check_straight(block, function)
    pairs: dict[Chain, Pair] = {}
    for chain in find_calls(tree):
        if chain.layer in linear and chain not in pairs:
            pair = _pair_of(block, function, chain)
            if pair is not None:
                pairs[chain] = pair
    firsts = {chain.layer for chain in pairs}
    _, done = rewrite(tree, pairs.__contains__, linear - firsts)
    if not done:
        return None, list(_obstacles(block, function, tree, linear))
    chains = tuple(dict.fromkeys(done))
    key = (name, chains, tuple(sorted(linear - firsts)))
    return FusedMethod(name, tuple(pairs[chain] for chain in chains), key), []


def _pair_of(block: nn.Module, function: FunctionType, chain: Chain) -> Pair | None:
    if chain.activation.startswith("."):
        row: str | None = METHODS[chain.activation[1:]].row
        return Pair(chain.layer, "", row) if row else None
    child, value = _value_of(block, function, ast.parse(chain.activation, mode="eval").body)
    call: Any = ast.parse(f"_({chain.arguments})", mode="eval").body
    options = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    row = row_of(value, tuple(ast.literal_eval(x) for x in call.args), options)
    return None if row is None else Pair(chain.layer, child, row)


def _value_of(block: nn.Module, function: FunctionType, node: ast.expr) -> tuple[str, Any]:
    """Return what a method calls and, where it is a submodule, its name."""
    this = function.__code__.co_varnames[0]
    match node:
        case ast.Attribute(ast.Name(name), attribute) if name == this:
            child = block._modules.get(attribute)
            return (attribute, child) if child is not None else ("", block.__dict__.get(attribute))
    try:
        return "", resolve(node, function)[0]
    except LookupError:
        return "", None


def _obstacles(
    block: nn.Module, function: FunctionType, tree: ast.FunctionDef, linear: frozenset[str]
) -> Iterator[str]:
    """Yield what stands behind the layers of a method in place of an activation of rocpy's."""
    for chain in find_calls(tree):
        if chain.layer not in linear:
            continue
        if chain.activation.startswith("."):
            yield f"{chain.layer} is followed by {chain.activation}()"
            continue
        node = ast.parse(chain.activation, mode="eval").body
        name, value = _value_of(block, function, node)
        yield followed(chain.layer, name or chain.activation, value, chain.arguments)
    around = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    # Inner calls come first, as they run first.
    for call in reversed(list(ast.walk(tree))):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in linear):
            continue
        layer, user = call.func.attr, around[call]
        match user:
            case ast.Return():
                continue  # the block's result
            case ast.Call(func=called, args=[first, *_]) if first is call:
                name, value = _value_of(block, function, called)
                yield followed(layer, name or ast.unparse(called), value)
            case _:
                read = user if isinstance(user, ast.expr) else call
                yield f"the result of {layer} is read by more than an activation: {describe(read, function)}"


_DROPOUTS = (nn.functional.dropout, nn.functional.alpha_dropout, nn.functional.feature_alpha_dropout, torch.dropout)
_KNOWN = "relu, gelu, silu and sigmoid"


def followed(layer: str, name: str, value: Any, arguments: str = "") -> str:
    """Return the words for what follows a layer and is not one of rocpy's activations."""
    if isinstance(value, _DropoutNd):
        return f"{layer} is followed by {name}, a {type(value).__name__}, before any activation"
    if any(value is dropout for dropout in _DROPOUTS):
        return f"{layer} is followed by {name}, a dropout, before any activation"
    if isinstance(value, nn.Module):
        kind = type(value).__name__
        if looks_like_activation(value):
            return f"{layer} is followed by {name}, a {kind}: none of {_KNOWN}"
        return f"{layer} is followed by {name}, a {kind}, which is not one of rocpy's activations"
    options = f" with {arguments}" if arguments else ""
    return f"{layer} is followed by {name}{options}, which is not one of rocpy's activations"


# ---- nn.Sequential ----


def _read_sequence(block: nn.Module) -> tuple[list[FusedMethod], Reasons]:
    """Return the pairs of an ``nn.Sequential``, and of those that are not fused the layer's name and why."""
    pairs: list[Pair] = []
    reasons: Reasons = []
    for (name, module), (following, behind) in pairwise([*block._modules.items(), ("", None)]):
        if not isinstance(module, nn.Linear) or behind is None:
            continue
        row = row_of(behind)
        if row is not None:
            pairs.append(Pair(name, following, row))
        elif looks_like_activation(behind) or _is_before_activation(block, following):
            reasons.append((name, followed(name, following, behind)))
    methods = [FusedMethod("forward", tuple(pairs), ("forward", (), ()))] if pairs else []
    return methods, reasons


def _is_before_activation(block: nn.Module, name: str) -> bool:
    """Whether an activation of rocpy's follows a module that stands behind a layer."""
    names = list(block._modules)
    at = names.index(name)
    behind = block._modules[names[at + 1]] if at + 1 < len(names) else None
    return not isinstance(block._modules[name], nn.Linear) and behind is not None and row_of(behind) is not None
