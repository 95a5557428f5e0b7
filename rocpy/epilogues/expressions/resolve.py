# SPDX-License-Identifier: MIT
"""An expression for operands of known types: what is left to compute, in which type, and what the results are."""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from rocpy.epilogues.expressions.expression import Builder, Expression
from rocpy.epilogues.expressions.powers import expanded
from rocpy.epilogues.expressions.types import category, compute_type

__all__ = ["Pending", "Resolved", "is_exact", "resolve"]

_Key = TypeVar("_Key")

# float32 has all whole numbers up to this one, to which no larger one is rounded but from just above it.
_EXACT = 2**24
_INEXACT = ("exp", "log", "rsqrt", "tanh", "erf", "sigmoid", "silu", "gelu", "gelu_tanh")


@dataclass(frozen=True, slots=True)
class Resolved:
    """An expression without the casts that change no value, and its types.

    Parameters
    ----------
    expression
        What is computed. A cast that is left rounds.
    types
        Type of each node.
    compared
        Type in which each comparison's operands are compared; empty for other nodes.
    out_types
        Types of the results.
    x_type
        Type that the product counts as.
    inputs
        Types of the inputs that are read.
    """

    expression: Expression
    types: tuple[str, ...]
    compared: tuple[str, ...]
    out_types: tuple[str, ...]
    x_type: str
    inputs: tuple[tuple[str, tuple[str, int]], ...]

    @property
    def compute(self) -> str:
        """The one floating-point type that everything is computed in; empty where there are several, or none."""
        types_computed = set()
        for node, dtype in zip(self.expression.nodes, self.types, strict=True):
            if node.args and dtype != "bool" and node.op != "cast":
                types_computed.add(compute_type(dtype))
        types_computed |= {
            compute_type(dtype)
            for node, dtype in zip(self.expression.nodes, self.compared, strict=True)
            if dtype and not (category(dtype) < 2 and any(self._is_small(arg) for arg in node.args))
        }
        types_computed = types_computed or {compute_type(self.x_type)}
        return types_computed.pop() if len(types_computed) == 1 and types_computed <= {"float32", "float64"} else ""

    @property
    def computes_as_product(self) -> bool:
        """Whether everything is computed in the product's own type; a cast of the result does not show in its type."""
        return self.compute == ("float64" if self.x_type == "float64" else "float32")

    def _is_small(self, index: int) -> bool:
        """Whether a whole number is small: one of any size that is rounded to float32 compares with it as before."""
        node, dtype = self.expression.nodes[index], self.types[index]
        if node.op == "const":
            return bool(abs(node.value) < _EXACT)
        return dtype in ("bool", "uint8", "int8", "int16")

    @property
    def exact_functions(self) -> bool:
        """Whether each operation has one value, whoever computes it and wherever an element lies."""
        return is_exact(self.expression)


def is_exact(expression: Expression) -> bool:
    """Whether each operation has one value, whoever computes it and wherever an element lies."""
    return all(node.op not in _INEXACT for node in expression.nodes)


@functools.lru_cache(maxsize=512)
def _resolve(expression: Expression, x_type: str, inputs: tuple[tuple[str, tuple[str, int]], ...]) -> Resolved:
    named = dict(inputs)
    expression = expanded(expression)
    types = expression.types(x_type, named)
    builder = Builder(expression.inputs)
    copies: list[int] = []
    results = set(expression.outputs)
    used = {arg for node in expression.nodes for arg in node.args}
    for index, node in enumerate(expression.nodes):
        args = [copies[arg] for arg in node.args]
        if node.op in ("cast", "cast_like"):
            source, target = types[node.args[0]], types[index]
            last = index in results and index not in used and category(target) == 2 and category(source) == 2
            if last or _changes_nothing(source, target):
                here = args[0]
            else:
                here = builder.op("cast", args[0], value=target)
        elif node.op == "mul" and _is_one(expression, node.args[1]) and types[index] == types[node.args[0]]:
            here = args[0]
        elif args:
            here = builder.op(node.op, *args, value=node.value)
        else:
            here = builder.leaf(replace(node, dtype=compute_type(node.dtype)) if node.dtype else node)
        copies.append(here)
    explicit = builder.finish(
        [copies[index] for index in expression.outputs], expression.single, expression.defaults, expression.name
    )
    return Resolved(
        explicit,
        *_retyped(explicit, x_type, named),
        tuple(types[index] for index in expression.outputs),
        x_type,
        inputs,
    )


def _is_one(expression: Expression, index: int) -> bool:
    node = expression.nodes[index]
    return node.op == "const" and not isinstance(node.value, bool) and bool(node.value == 1)


def _retyped(
    explicit: Expression, x_type: str, named: Mapping[str, tuple[str, int]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the types of a resolved expression and those in which it compares.

    They are of values as they are computed, since nothing narrower is kept.
    """
    wide = {name: (compute_type(dtype), rank) for name, (dtype, rank) in named.items()}
    types = list(explicit.types(compute_type(x_type), wide))
    for index, node in enumerate(explicit.nodes):
        if node.op == "cast":
            types[index] = node.value
    return tuple(types), explicit.compared_types(compute_type(x_type), wide)


def _changes_nothing(source: str, target: str) -> bool:
    """Whether a cast gives the value that is computed anyway: to a type as wide as that of computing."""
    if source == target:
        return True
    return category(source) == category(target) == 2 and target == "float32" and compute_type(source) == "float32"


def resolve(expression: Expression, x_type: str, inputs: Mapping[str, tuple[str, int]]) -> Resolved:
    """Return an expression for a product and inputs of given types and rank classes.

    Raises
    ------
    InvalidProblemError
        If an operation has no meaning for its operands.
    """
    read = expression.used_inputs
    return _resolve(expression, x_type, tuple((name, inputs[name]) for name in read))


class Pending(Generic[_Key]):
    """The values that one is computed from, operands before their users.

    Nothing recurses: an epilogue may have thousands of steps.

    Parameters
    ----------
    wanted
        The value.
    done
        The values that were computed; the caller adds each.
    """

    def __init__(self, wanted: _Key, done: Container[_Key]) -> None:
        self._stack, self._done = [wanted], done

    def next(self) -> _Key | None:
        """Return what is computed next once its operands are, ``None`` where all are."""
        while self._stack and self._stack[-1] in self._done:
            self._stack.pop()
        return self._stack[-1] if self._stack else None

    def waits_for(self, operands: Sequence[_Key]) -> bool:
        """Whether some of the next value's operands must be computed before; they are next then."""
        missing = [one for one in operands if one not in self._done]
        self._stack += reversed(missing)
        return bool(missing)
