# SPDX-License-Identifier: MIT
"""An expression as Python would be written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rocpy.epilogues.expressions.operations import OPERATIONS

__all__ = ["text_of"]

_BINDING = {"*": 5, "/": 5, "+": 4, "-": 4, "&": 3, "|": 2}
_COMPARISON = 1


def text_of(expression: Any) -> str:
    """Return an expression's text; what is used more than once has a line of its own."""
    shown: dict[int, str] = {}
    lines: list[str] = []
    times: dict[int, int] = {}
    for node in expression.nodes:
        for arg in node.args:
            times[arg] = times.get(arg, 0) + 1
    for position in expression.outputs:
        times[position] = times.get(position, 0) + 1
    strength: dict[int, int] = {}
    for position, node in enumerate(expression.nodes):
        text, strength[position] = _node_text(node, expression.product, shown, strength)
        if node.args and times.get(position, 0) > 1:
            name = f"t{len(lines) + 1}"
            lines.append(f"{name} = {text}")
            text, strength[position] = name, 9
        shown[position] = text
    results = ", ".join(shown[position] for position in expression.outputs)
    if not expression.single:
        results = f"({results}{',' if len(expression.outputs) == 1 else ''})"
    head = f"{expression.name}({', '.join([expression.product, *expression.inputs])}) = {results}"
    return f"{head} where {'; '.join(lines)}" if lines else head


def _node_text(node: Any, product: str, shown: Mapping[int, str], strength: Mapping[int, int]) -> tuple[str, int]:
    operation = OPERATIONS[node.op]
    if node.op == "x":
        return product, 9
    if node.op == "input":
        return str(node.value), 9
    if node.dtype:
        return f"{node.dtype}({node.value!r})", 9
    if node.op == "const":
        return repr(node.value), 9 if not isinstance(node.value, (int, float)) or node.value >= 0 else 6
    if node.op == "cast":
        return f"{_wrapped(node.args[0], 9, shown, strength)}.to({node.value})", 9
    if node.op == "pick":
        return f"{_wrapped(node.args[0], 9, shown, strength)}[..., {node.value}::2]", 9
    if node.op == "power":
        return f"{_wrapped(node.args[0], 9, shown, strength)} ** {node.value}", 8
    if operation.symbol and operation.arity == 1:
        return f"{operation.symbol}{_wrapped(node.args[0], 7, shown, strength)}", 6
    if operation.symbol:
        own = _BINDING.get(operation.symbol, _COMPARISON)
        left = _wrapped(node.args[0], own if own > _COMPARISON else own + 1, shown, strength)
        return f"{left} {operation.symbol} {_wrapped(node.args[1], own + 1, shown, strength)}", own
    return f"{node.op}({', '.join(shown[arg] for arg in node.args)})", 9


def _wrapped(position: int, least: int, shown: Mapping[int, str], strength: Mapping[int, int]) -> str:
    return shown[position] if strength[position] >= least else f"({shown[position]})"
