# SPDX-License-Identifier: MIT
"""An expression for operands of known types: what is left to compute, in which type, and what the results are."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rocpy.epilogues._expression import Builder, Expression
from rocpy.epilogues._types import category, compute_type

__all__ = ["Resolved", "in_order", "resolve"]

_Key = TypeVar("_Key")

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
    out_types
        Types of the results.
    x_type
        Type that the product counts as.
    inputs
        Types of the inputs that are read.
    """

    expression: Expression
    types: tuple[str, ...]
    out_types: tuple[str, ...]
    x_type: str
    inputs: tuple[tuple[str, tuple[str, int]], ...]

    @property
    def compute(self) -> str:
        """The one floating-point type that everything is computed in; empty where there are several, or none."""
        found = set()
        for node, dtype in zip(self.expression.nodes, self.types, strict=True):
            if node.args and dtype != "bool" and node.op != "cast":
                found.add(compute_type(dtype))
        found = found or {compute_type(self.x_type)}
        return found.pop() if len(found) == 1 and found <= {"float32", "float64"} else ""

    @property
    def exact_functions(self) -> bool:
        """Whether each operation has one value, whoever computes it and wherever an element lies."""
        return all(node.op not in _INEXACT for node in self.expression.nodes)


@functools.lru_cache(maxsize=512)
def _resolve(expression: Expression, x_type: str, inputs: tuple[tuple[str, tuple[str, int]], ...]) -> Resolved:
    named = dict(inputs)
    types = expression.types(x_type, named)
    builder = Builder(expression.inputs)
    places: list[int] = []
    results = set(expression.outputs)
    used = {arg for node in expression.nodes for arg in node.args}
    for place, node in enumerate(expression.nodes):
        args = [places[arg] for arg in node.args]
        if node.op in ("cast", "cast_like"):
            source, target = types[node.args[0]], types[place]
            last = place in results and place not in used and category(target) == 2 and category(source) == 2
            if last or _changes_nothing(source, target):
                here = args[0]
            else:
                here = builder.op("cast", args[0], value=target)
        elif args:
            here = builder.op(node.op, *args, value=node.value)
        else:
            here = builder.copy(Expression((), (node,), (0,)))[0]
        places.append(here)
    made = builder.finish(
        [places[place] for place in expression.outputs], expression.single, expression.defaults, expression.name
    )
    return Resolved(
        made, _retyped(made, x_type, named), tuple(types[place] for place in expression.outputs), x_type, inputs
    )


def _retyped(made: Expression, x_type: str, named: Mapping[str, tuple[str, int]]) -> tuple[str, ...]:
    """Return the types of a resolved expression: of values as they are computed, since nothing narrower is kept."""
    wide = {name: (compute_type(dtype), rank) for name, (dtype, rank) in named.items()}
    types = list(made.types(compute_type(x_type), wide))
    for place, node in enumerate(made.nodes):
        if node.op == "cast":
            types[place] = node.value
    return tuple(types)


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


def in_order(wanted: _Key, operands: Callable[[_Key], Sequence[_Key]], made: Container[_Key]) -> Iterator[_Key]:
    """Yield what a value is computed from and is not made yet, operands before their users; the value itself is last.

    The caller makes each before it asks for the next one. Nothing recurses: an epilogue may have thousands of steps.
    """
    stack = [wanted]
    while stack:
        one = stack[-1]
        missing = [] if one in made else [other for other in operands(one) if other not in made]
        if missing:
            stack += reversed(missing)
            continue
        stack.pop()
        if one not in made:
            yield one
