# SPDX-License-Identifier: MIT
"""Products in the graphs of torch's compilers: linear layers, and the activations behind them, by rocpy's operators."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn
from torch._subclasses import FakeTensor

from rocpy.torch.analysis.catalog import ARITHMETIC, FORMULAS, METHODS, Operation, X, equal, row_of_call
from rocpy.torch.analysis.catalog import operation as operation_of
from rocpy.torch.operators import blocks, linear_layer

__all__ = ["fuse_graph"]

_aten = torch.ops.aten
_LINEAR = (nn.functional.linear, _aten.linear.default)
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_PLAIN = (torch.Tensor, nn.Parameter, FakeTensor)
_AUTOCAST = (torch.amp.autocast_mode._enter_autocast, torch.amp.autocast_mode._exit_autocast)

# Python's operators, and torch's as exported programs have them.
_OTHERS: Mapping[Any, Operation] = {
    operator.mul: Operation(formula=ARITHMETIC["Mult"]),
    operator.add: Operation(formula=ARITHMETIC["Add"]),
    operator.truediv: Operation(formula=ARITHMETIC["Div"]),
    operator.pow: Operation(formula=ARITHMETIC["Pow"]),
    _aten.mul.Tensor: Operation(formula=ARITHMETIC["Mult"]),
    _aten.add.Tensor: Operation(formula=ARITHMETIC["Add"]),
    _aten.div.Tensor: Operation(formula=ARITHMETIC["Div"]),
    _aten.pow.Tensor_Scalar: Operation(formula=ARITHMETIC["Pow"]),
    _aten.tanh.default: Operation(formula=METHODS["tanh"].formula),
    _aten.erf.default: Operation(formula=METHODS["erf"].formula),
    _aten.gelu.default: Operation("gelu"),
    _aten.relu.default: Operation("relu"),
    _aten.silu.default: Operation("silu"),
    _aten.sigmoid.default: Operation("sigmoid", METHODS["sigmoid"].formula),
}


def fuse_graph(graph: fx.Graph, *, every_layer: bool) -> int:
    """Have rocpy compute linear layers with the activations behind them; return how many pairs there were.

    What a graph computes, and in which order others see it, stays: a pair stands where its layer stood.

    Parameters
    ----------
    graph
        As Dynamo makes it, or of an exported program; changed in place.
    every_layer
        Whether to replace layers too that no activation follows.
    """
    casts = torch._C._is_any_autocast_enabled() or any(node.target in _AUTOCAST for node in graph.nodes)
    pairs = 0
    for node in list(graph.nodes):
        operands = _linear_operands(node)
        if operands is None:
            continue
        activation = _activation_behind(node, composite=not casts)
        if activation is not None:
            row, steps = activation
            _replace(graph, node, steps, linear_layer.linear, (*operands, row))
            pairs += 1
        elif every_layer and node.target is not linear_layer.linear:
            _replace(graph, node, [], linear_layer.linear, (*operands, "none"))
    for node in list(graph.nodes):
        _join_layers(graph, node)
    return pairs


# ---- layers ----


def _value(node: Any) -> Any:
    """Return what stands for a node's value: its shape, type and device."""
    if not isinstance(node, fx.Node):
        return None
    if node.op == "get_attr":
        owner: Any = node.graph.owning_module
        for name in str(node.target).split("."):
            owner = getattr(owner, name, None)
        return owner
    return node.meta.get("example_value", node.meta.get("val"))


def _linear_operands(node: fx.Node) -> tuple[Any, Any, Any] | None:
    """Return input, weight and bias of a layer that rocpy can compute and that has no activation yet."""
    if node.op != "call_function":
        return None
    if node.target is linear_layer.linear:
        return node.args[:3] if node.args[3] == "none" else None
    if node.target not in _LINEAR or not node.kwargs.keys() <= {"input", "weight", "bias"}:
        return None
    named = dict(zip(("input", "weight", "bias"), node.args, strict=False)) | node.kwargs
    x, weight, bias = named.get("input"), named.get("weight"), named.get("bias")
    values = [_value(x), _value(weight), *([] if bias is None else [_value(bias)])]
    if not all(type(value) in _PLAIN and _is_served(value) for value in values):
        return None
    if values[0].dim() < 1 or values[1].dim() != 2:
        return None
    if bias is not None and (values[2].dim() != 1 or values[2].shape[0] != values[1].shape[0]):
        return None
    return x, weight, bias


def _is_served(value: torch.Tensor) -> bool:
    on_device = value.device.type == "cpu" or (value.device.type == "cuda" and torch.version.hip is not None)
    return on_device and value.dtype in _DTYPES and value.layout is torch.strided


# ---- activations ----


def _operation(node: fx.Node) -> Operation | None:
    if node.op == "call_method":
        return METHODS.get(str(node.target))
    if node.op != "call_function":
        return None
    return _OTHERS.get(node.target) or operation_of(node.target)


def _activation_behind(node: fx.Node, *, composite: bool) -> tuple[str, list[fx.Node]] | None:
    """Return the activation of a node's result that is its only use, and the nodes that compute it."""
    users = list(node.users)
    if len(users) == 1:
        (user,) = users
        known = _operation(user)
        first = user.args[0] if user.args else user.kwargs.get("input")
        if known is not None and known.row and first is node and not _is_apart(node, user):
            options = {name: value for name, value in user.kwargs.items() if name != "input"}
            row = row_of_call(known, tuple(user.args[1:]), options)
            if row is not None:
                return row, [user]
    return _formula_behind(node) if composite and len(users) > 1 else None


def _formula_behind(node: fx.Node) -> tuple[str, list[fx.Node]] | None:
    """Return the activation that several nodes spell out."""
    formulas: dict[fx.Node, Any] = {node: X}
    following, waiting = node.next, set(node.users)
    while waiting:
        if following.op == "output" or len(formulas) > 16:
            return None
        if following in waiting:
            waiting.discard(following)
            applied = _applied(following, formulas)
            if applied is None:
                return None
            formulas[following] = applied
            row = next((row for row, formula in FORMULAS.items() if equal(applied, formula)), None)
            inner = [one for one in formulas if one is not following]
            if row is not None and all(user in formulas for one in inner for user in one.users):
                return None if _is_apart(node, following) else (row, list(formulas)[1:])
            waiting |= set(following.users)
        following = following.next
    return None


def _applied(node: fx.Node, formulas: Mapping[fx.Node, Any]) -> Any:
    known = _operation(node)
    if known is None or known.formula is None or node.kwargs:
        return None
    values = []
    for argument in node.args:
        if isinstance(argument, fx.Node):
            if argument not in formulas:
                return None
            values.append(formulas[argument])
        elif type(argument) in (int, float):
            values.append(float(argument))
        else:
            return None
    try:
        return known.formula(*values)
    except TypeError:  # of another number of arguments
        return None


def _is_apart(first: fx.Node, last: fx.Node) -> bool:
    """Whether something between two nodes may change how torch computes or records: it has no value."""
    node = first.next
    while node is not last:
        if node.op not in ("placeholder", "get_attr") and _value(node) is None:
            return True
        node = node.next
    return False


def _may_write(first: fx.Node, last: fx.Node) -> bool:
    """Whether something between two nodes may change a tensor in place: any, since arguments may share memory."""
    node = first.next
    while node is not last:
        if node.op not in ("placeholder", "get_attr") and not _is_pure(node):
            return True
        node = node.next
    return False


def _is_pure(node: fx.Node) -> bool:
    """Whether a node is known to write nothing: an activation, arithmetic, a layer, or what its schema says."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        # Batch norm's schemas do not say that it writes its statistics.
        return not target._schema.is_mutable and "_norm" not in target._schema.name
    if target not in _LINEAR and _operation(node) is None:
        return False
    is_inplace = any(value is True for value in (*node.args, *node.kwargs.values()))
    name = target if isinstance(target, str) else target.__name__
    return not is_inplace and "out" not in node.kwargs and not name.endswith("_")


# ---- changes ----


def _replace(graph: fx.Graph, first: fx.Node, steps: list[fx.Node], target: Any, arguments: tuple[Any, ...]) -> fx.Node:
    """Put one node in place of a first one and those that follow from it."""
    last = steps[-1] if steps else first
    with graph.inserting_before(first):
        call = graph.call_function(target, arguments)
    call.meta = dict(last.meta)
    last.replace_all_uses_with(call)
    for node in reversed([first, *steps]):
        graph.erase_node(node)
    return call


def _join_layers(graph: fx.Graph, node: fx.Node) -> None:
    """Join a layer with an activation and the layer behind it, if that is its only use: their gradients are fused."""
    if (
        node.op != "call_function"
        or node.target is not linear_layer.linear
        or node.args[3] == "none"
        or len(node.users) != 1
    ):
        return
    (second,) = node.users
    if second.target is not linear_layer.linear or second.args[0] is not node or second.args[3] != "none":
        return
    # They move to the first one's place, so that they must be there.
    if any(isinstance(x, fx.Node) and x.op not in ("placeholder", "get_attr") for x in second.args[1:3]):
        return
    if any(isinstance(x, fx.Node) and x.op == "get_attr" and not _is_before(x, node) for x in second.args[1:3]):
        return
    if not _is_apart(node, second) and not _may_write(node, second):
        arguments = (*node.args[:3], *second.args[1:3], node.args[3])
        _replace(graph, node, [second], blocks.mlp, arguments)


def _is_before(first: fx.Node, last: fx.Node) -> bool:
    return first < last
