# SPDX-License-Identifier: MIT
"""Values of a function that is traced, and what the vocabulary writes their operations with."""

from __future__ import annotations

from typing import Any

import numpy as np

from rocpy.epilogues.expressions.expression import Builder
from rocpy.epilogues.expressions.operations import OPERATIONS
from rocpy.epilogues.expressions.types import name_of, plain_number
from rocpy.errors import InvalidOperandError, InvalidProblemError

__all__ = ["TypeOf", "Value", "Writer", "type_of_constant"]


class Value:
    """The product, an input, or what was computed of them, by its index among the nodes of an expression."""

    # No name of theirs is that of a method of an array.
    __slots__ = ("builder", "is_half", "node")

    def __init__(self, builder: Builder, node: int, is_half: bool | None = None) -> None:
        self.builder = builder
        self.node = node
        self.is_half = is_half  # whether it has half the product's columns; None: it goes with either


class TypeOf:
    """The type of a value."""

    __slots__ = ("of",)

    def __init__(self, of: Value) -> None:
        self.of = of


class Writer:
    """What the vocabulary writes with: operations on traced values and constants."""

    def __init__(self, builder: Builder, kind: type[Value]) -> None:
        self.builder, self.kind = builder, kind

    def op(self, name: str, *args: Any, value: Any = None) -> Value:
        """Return a new value, an operation on others."""
        halves = {arg.is_half for arg in args if isinstance(arg, Value)} - {None}
        if len(halves) > 1:
            raise InvalidProblemError(
                "one operand has all of the product's columns and another has half of them; take [..., 0::2] or "
                "[..., 1::2] of both"
            )
        indices = [self.node_of(arg) for arg in args]
        return self.kind(self.builder, self.builder.op(name, *indices, value=value), halves.pop() if halves else None)

    def node_of(self, value: Any) -> int:
        """Return the node of an operand, a constant or a traced value."""
        if isinstance(value, Value):
            if value.builder is not self.builder:
                raise InvalidOperandError("a value of another function's trace; pass what it needs as a named input")
            return value.node
        return self.builder.const(self.number(value), type_of_constant(value))

    def lifted(self, value: Any) -> Any:
        """Return a constant as a value."""
        return value if isinstance(value, Value) else self.kind(self.builder, self.node_of(value))

    def number(self, value: Any) -> bool | int | float:
        """Return a constant as a Python number."""
        number = self.constant(value)
        if number is not None:
            return number
        shape = getattr(value, "shape", None)
        if shape:
            raise InvalidOperandError(
                f"an array of shape {tuple(shape)} from outside the function; give the function a parameter for it, "
                "and pass it in epilogue_inputs"
            )
        raise InvalidOperandError(f"a {type(value).__name__} is not an operand of an epilogue; pass a number")

    def constant(self, value: Any) -> bool | int | float | None:
        """Return a number, or the one of an array without axes, as a Python number; ``None`` for anything else."""
        if isinstance(value, Value):
            return None
        if getattr(value, "requires_grad", False):
            raise InvalidOperandError(
                "a tensor from outside the function that requires a gradient, which it would not get as a constant; "
                "give the function a parameter for it, and pass it in epilogue_inputs"
            )
        shape = getattr(value, "shape", None)
        if not isinstance(value, np.generic) and shape is not None and not len(shape) and hasattr(value, "item"):
            value = value.item()
        return plain_number(value)

    def truth(self, value: Any) -> Any:
        """Return whether a value is not 0."""
        if not isinstance(value, Value):
            return bool(self.number(value))
        node = self.builder.nodes[value.node]
        if OPERATIONS[node.op].kind == "bool":
            return value
        return self.op("cast", value, value="bool")

    def cast_like(self, value: Any, other: Any) -> Value:
        """Return a value or a constant in another one's type."""
        return self.op("cast_like", value, other)

    def cast(self, value: Any, target: Any) -> Value:
        """Return a value in another type: a named one, or that of a traced value or of an array."""
        if isinstance(target, TypeOf):
            target = target.of
        if isinstance(target, Value):
            return self.cast_like(value, target)
        is_array = hasattr(target, "shape") and not isinstance(target, (type, np.dtype))
        return self.op("cast", value, value=name_of(target.dtype if is_array else target))

    def one_like(self, number: bool | float, value: Any) -> Any:
        """Return a 1 that gives what it multiplies the type of a constant; ``number`` is its Python number."""
        one = type(number)(1)
        dtype = type_of_constant(value)
        return self.kind(self.builder, self.builder.const(one, dtype)) if dtype else one


def type_of_constant(value: Any) -> str:
    """Return the type of an array without axes, an empty name for a number."""
    dtype = getattr(value, "dtype", None)
    if isinstance(value, np.generic) or dtype is None:
        return ""
    return name_of(dtype, "an array without axes from outside the function")
