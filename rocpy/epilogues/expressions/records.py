# SPDX-License-Identifier: MIT
"""An expression's record: plain values for JSON, which are checked when they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rocpy.epilogues.expressions.nodes import Node, halves_of
from rocpy.epilogues.expressions.operations import OPERATIONS
from rocpy.epilogues.expressions.types import NAMES, category, whole_limits
from rocpy.errors import InvalidProblemError

__all__ = ["FORMAT", "read", "row_of"]

FORMAT = 1
_WITH_VALUE = ("input", "const", "cast", "pick", "power")
# Exponents of gradients go beyond those of functions, by one for each time that one is taken.
_LOWEST_POWER = -64


def row_of(node: Node) -> list[Any]:
    """Return a node as plain values."""
    row: list[Any] = [node.op, *node.args]
    if node.op in _WITH_VALUE:
        infinite = isinstance(node.value, float) and not math.isfinite(node.value)
        row.append(repr(node.value) if infinite else node.value)
    return [*row, node.dtype] if node.dtype else row


def read(data: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the parts of a record: inputs, nodes, outputs, whether there is one result, defaults, name.

    Raises
    ------
    InvalidProblemError
        If it is no such record.
    """
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        version = data.get("format") if isinstance(data, Mapping) else type(data).__name__
        raise InvalidProblemError(f"an expression's record has format {version!r}; this rocpy reads format {FORMAT}")
    try:
        inputs, defaults = tuple(data["inputs"]), tuple(sorted(data.get("defaults", {}).items()))
        nodes = tuple(_node_from(row, position, inputs) for position, row in enumerate(data["nodes"]))
        outputs = tuple(data["outputs"])
        single, name = data["single"], data.get("name", "epilogue")
        _check_widths(nodes)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise InvalidProblemError(f"this is not an expression's record: {error}") from None
    if not all(isinstance(one, str) for one in inputs) or len(set(inputs)) < len(inputs):
        raise InvalidProblemError(f"an expression's record has inputs {list(inputs)!r:.80}; they are names")
    for default, value in defaults:
        if default not in inputs or not _is_number(value):
            raise InvalidProblemError(
                f"an expression's record has a default {default!r:.80}: {value!r:.80}; expected a number"
            )
    right = all(type(one) is int and 0 <= one < len(nodes) for one in outputs) and outputs
    if not right or not isinstance(single, bool) or (single and len(outputs) != 1):
        raise InvalidProblemError(f"an expression's record has outputs {list(outputs)} of {len(nodes)} nodes")
    return inputs, nodes, outputs, single, defaults, str(name)


def _node_from(row: Sequence[Any], position: int, inputs: tuple[str, ...]) -> Node:
    if not isinstance(row, (list, tuple)) or not row or row[0] not in OPERATIONS:
        raise ValueError(f"node {position} is {row!r:.80}, which is no operation")
    operation = OPERATIONS[row[0]]
    args, rest = tuple(row[1 : 1 + operation.arity]), tuple(row[1 + operation.arity :])
    if any(type(arg) is not int or not 0 <= arg < position for arg in args) or len(args) != operation.arity:
        raise ValueError(f"node {position}, {operation.name}, has operands {list(args)}")
    if not _are_attributes(operation.name, rest, inputs):
        raise ValueError(f"node {position}, {operation.name}, has {', '.join(map(repr, rest)) or 'no attribute':.80}")
    if operation.name == "const" and isinstance(rest[0], str):
        rest = (float(rest[0]), *rest[1:])
    return Node(operation.name, args, *rest)


def _are_attributes(op: str, rest: tuple[Any, ...], inputs: tuple[str, ...]) -> bool:
    """Whether they are what an operation has beside its operands."""
    if len(rest) == 2 and op == "const":
        return rest[1] in NAMES and _fits(float(rest[0]) if rest[0] in _NOT_FINITE else rest[0], rest[1])
    if len(rest) != (op in _WITH_VALUE):
        return False
    allowed = {
        "input": lambda value: value in inputs,
        "const": lambda value: value in _NOT_FINITE if isinstance(value, str) else _is_number(value),
        "cast": lambda value: value in NAMES,
        "pick": lambda value: type(value) is int and value in (0, 1),
        "power": lambda value: type(value) is int and _LOWEST_POWER <= value < 0,
    }
    return not rest or bool(allowed[op](*rest))


_NOT_FINITE = ("inf", "-inf", "nan")


def _fits(value: Any, dtype: str) -> bool:
    """Whether a number is one of a type."""
    if category(dtype) == 1:
        low, high = whole_limits(dtype)
        return type(value) is int and low <= value <= high
    return type(value) is (float if category(dtype) == 2 else bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**63)


def _check_widths(nodes: tuple[Node, ...]) -> None:
    """Refuse operations on values of which one has all of the product's columns and another has half of them."""
    halves = halves_of(nodes)
    for position, node in enumerate(nodes):
        kinds = {halves[arg] for arg in node.args} - {None}
        if len(kinds) > 1:
            why = "has an operand with all of the product's columns and one with half of them"
        elif node.op == "pick" and True in kinds:
            why = "halves what has half of the product's columns already"
        elif node.op == "interleave" and False in kinds:
            why = "doubles what has all of the product's columns already"
        else:
            continue
        raise ValueError(f"node {position}, {node.op}, {why}")
