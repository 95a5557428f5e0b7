# SPDX-License-Identifier: MIT
"""The type of each operation of an expression for the types of its operands, and which of them have a meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rocpy.epilogues.expressions.operations import OPERATIONS
from rocpy.epilogues.expressions.types import (
    ARRAY,
    COMPARISONS,
    NUMBER,
    ZERO_DIM,
    category,
    number_type,
    result_type,
    whole_limits,
)
from rocpy.errors import InvalidProblemError

__all__ = ["check_numbers", "node_type"]


def node_type(node: Any, args: list[tuple[str, int]], x: str, inputs: Mapping[str, tuple[str, int]]) -> tuple[str, int]:
    """Return the type and the rank class of a node of operands of types and rank classes.

    Raises
    ------
    InvalidProblemError
        If the operation has no meaning for them.
    """
    kind = OPERATIONS[node.op].kind
    if kind == "leaf":
        if node.op == "const":
            return (node.dtype, ZERO_DIM) if node.dtype else (number_type(node.value), NUMBER)
        return (x, ARRAY) if node.op == "x" else inputs[node.value]
    rank = max(own for _, own in args)
    if kind == "cast":
        return node.value, max(rank, ZERO_DIM)  # a number that is cast has that type, whatever it is combined with
    if kind == "bool":
        if node.op not in COMPARISONS:
            _check_truth_values(node.op, args)
        return "bool", rank
    if kind == "like":
        return args[1][0], max(args[0][1], ZERO_DIM)
    type_, _ = result_type(args[1:] if kind == "where" else args)
    if kind == "float" and category(type_) < 2:
        return "float32", rank
    if kind == "promote" and type_ == "bool" and node.op not in ("pick", "interleave"):
        raise InvalidProblemError(f"{node.op}: its operands are truth values; cast them, or use &, | and where")
    return type_, rank


def _check_truth_values(op: str, args: list[tuple[str, int]]) -> None:
    for dtype, _ in args:
        if dtype != "bool":
            raise InvalidProblemError(
                f"{OPERATIONS[op].symbol}: an operand is {dtype}; in an epilogue & | ~ combine truth values and there "
                f"are no operations on bits: compare it (x != 0), or use logical_{op}"
            )


# Bounds beyond all values of a type are none, on the one side.
_BOUNDS = {
    "minimum": ("", "low"),
    "maximum": ("", "high"),
    "clamp": ("", "high", "low"),
    "clamp_min": ("", "high"),
    "clamp_max": ("", "low"),
}


def check_numbers(op: str, dtype: str, values: Sequence[bool | int | float | None]) -> None:
    """Refuse numbers that the type of an operation on whole numbers does not hold."""
    low, high = whole_limits(dtype)
    if op not in ("add", "sub", "mul", "where", *_BOUNDS):
        return
    for index, value in enumerate(values):
        if isinstance(value, float) or value is None or (op == "where" and index == 0):
            continue
        wrong = {"low": value < low, "high": value > high}.get(_BOUNDS.get(op, ("",) * 3)[index])
        if wrong is None:
            wrong = not low <= value <= high
        if wrong:
            raise InvalidProblemError(
                f"{op}: the number {value} beside {dtype}, which does not hold it; cast the other operand to a wider "
                "type"
            )
