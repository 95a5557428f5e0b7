# SPDX-License-Identifier: MIT
"""Which part of an expression an epilogue of the library computes, and what is left to do after it."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rocpy.blaslt.model.epilogues import EPILOGUES
from rocpy.epilogues.expressions.expression import Builder, Expression, Node

__all__ = ["NativeForm", "match", "nearest"]

ROW, COLUMN, FULL, SCALAR = "row", "column", "full", "scalar"


@dataclass(frozen=True, slots=True)
class NativeForm:
    """A product with one of the library's epilogues: ``function(alpha x + beta c + bias)``.

    Parameters
    ----------
    function
        ``""``, ``"relu"``, ``"gelu"`` (the tanh form), ``"gelu_erf"``, ``"silu"``, ``"sigmoid"`` or ``"clamp"``.
    alpha, beta
        Factors of the product and of ``c``.
    bias, c
        Names of the inputs that are the bias and the addend; empty for none.
    clamp
        Bounds.
    """

    function: str = ""
    alpha: float = 1.0
    beta: float = 1.0
    bias: str = ""
    c: str = ""
    clamp: tuple[float, float] | None = None

    @property
    def epilogue(self) -> str:
        """The epilogue's name."""
        parts = [self.function, "bias" if self.bias else ""]
        return "_".join(part for part in parts if part) or "default"


_LOWER, _UPPER = ("maximum", "clamp_min"), ("minimum", "clamp_max")
_FUNCTIONS = {"relu": "relu", "gelu": "gelu_erf", "gelu_tanh": "gelu", "silu": "silu", "sigmoid": "sigmoid"}


def match(
    expression: Expression, kinds: Mapping[str, str], takes_c: bool, output: int | None = None
) -> NativeForm | None:
    """Return the library's epilogue that a node is, ``None`` where there is none.

    Parameters
    ----------
    expression
        A resolved expression.
    kinds
        Of each input that may be a bias or a ``c``: ``"row"``, ``"column"`` or ``"full"``.
    takes_c
        Whether the product has no ``c`` yet.
    output
        Index of the node; the only result by default.
    """
    if output is None:
        if not expression.single:
            return None
        output = expression.outputs[0]
    node = expression.nodes[output]
    function, clamp, inner = "", None, output
    if node.op in _FUNCTIONS:
        function, inner = _FUNCTIONS[node.op], node.args[0]
    elif node.op in _LOWER and _number(expression, node.args[1]) == 0:
        function, inner = "relu", node.args[0]
    elif node.op == "clamp":
        low, high = (_number(expression, arg) for arg in node.args[1:])
        if low is None or high is None or math.isnan(low) or math.isnan(high) or low > high:
            return None
        if (low, high) == (0, math.inf):
            function = "relu"
        else:
            function, clamp = "clamp", (float(low), float(high))
        inner = node.args[0]
    elif node.op in (*_LOWER, *_UPPER):
        bounds = _bounds(expression, output)
        if bounds is not None:
            function, (clamp, inner) = "clamp", bounds
    terms = _terms(expression)[inner]
    if terms is None or terms.get("x", 0) == 0:
        return None
    return _form(terms, kinds, takes_c, function, clamp)


def _form(
    terms: dict[str, float],
    kinds: Mapping[str, str],
    takes_c: bool,
    function: str,
    clamp: tuple[float, float] | None,
) -> NativeForm | None:
    if not takes_c and abs(terms["x"]) != 1:
        return None  # the product is a sum by itself, as in _scaled
    bias = c = ""
    beta = 1.0
    for name, factor in terms.items():
        if name == "x":
            continue
        kind = kinds.get(name.removeprefix("."))
        if kind in (ROW, COLUMN) and factor == 1 and not bias:
            bias = name.removeprefix(".")
        elif kind == FULL and takes_c and not c:
            c, beta = name.removeprefix("."), factor
        else:
            return None
    return NativeForm(function, terms["x"], beta, bias, c, clamp)


def _number(expression: Expression, index: int) -> Any:
    node = expression.nodes[index]
    return node.value if node.op == "const" and not isinstance(node.value, bool) else None


def _bounds(expression: Expression, index: int) -> tuple[tuple[float, float], int] | None:
    """Return the bounds and the operand of min(max(y, low), high), or of the two the other way round."""
    low, high, here = -math.inf, math.inf, index
    seen: tuple[str, ...] = ()
    while (node := expression.nodes[here]).op in (*_LOWER, *_UPPER) and node.op not in seen:
        number = _number(expression, node.args[1])
        if number is None or math.isnan(number):
            break
        if node.op in _UPPER:
            high = float(number)
        else:
            low = float(number)
        seen += _UPPER if node.op in _UPPER else _LOWER
        here = node.args[0]
    return ((low, high), here) if seen and low <= high else None


@functools.lru_cache(maxsize=256)
def _terms(expression: Expression) -> tuple[dict[str, float] | None, ...]:
    """Return for each node the factors of a sum of the product and of inputs, by name (inputs with a dot before it)."""
    linear_terms: list[dict[str, float] | None] = []
    for node in expression.nodes:  # operands come before their users
        linear_terms.append(_terms_of(expression, node, [linear_terms[arg] for arg in node.args]))
    return tuple(linear_terms)


def _terms_of(expression: Expression, node: Node, args: list[dict[str, float] | None]) -> dict[str, float] | None:
    if node.op == "x":
        return {"x": 1.0}
    if node.op == "input":
        return {"." + node.value: 1.0}
    if node.op in ("add", "sub"):
        left, right = args
        if left is None or right is None:
            return None
        # What is added twice, or taken away again, may be NaN, or be infinite in between.
        if left.keys() & right.keys():
            return None
        return {**left, **{name: factor if node.op == "add" else -factor for name, factor in right.items()}}
    if node.op == "neg":
        return _scaled(args[0], -1.0)
    if node.op in ("mul", "div"):
        number = _number(expression, node.args[1])
        if number is None or not _is_normal(number):
            return None
        return _scaled(args[0], float(number) if node.op == "mul" else 1.0 / number)
    return None


def _scaled(terms: dict[str, float] | None, factor: float) -> dict[str, float] | None:
    """Return a sum times a factor, ``None`` where one step may leave float32's range and the steps written do not.

    Or the other way round: a sum's terms may be infinite where the sum is not, and so may a number between two steps,
    one of which makes it larger and the other one smaller.
    """
    if terms is None or (len(terms) > 1 and abs(factor) != 1):
        return None
    size = abs(factor)
    for own in terms.values():
        if not _is_normal(factor * own) or (size > 1 > abs(own)) or (size < 1 < abs(own)):
            return None
    return {name: factor * own for name, own in terms.items()}


def _is_normal(number: float) -> bool:
    """Whether a number and its reciprocal keep their digits in float32."""
    return _SMALLEST <= abs(number) <= 1.0 / _SMALLEST


_SMALLEST = 2.0**-126


@functools.lru_cache(maxsize=512)
def _nearest(
    expression: Expression, kinds: tuple[tuple[str, str], ...], takes_c: bool
) -> tuple[NativeForm, Expression]:
    for index in reversed(range(len(expression.nodes))):  # a later one is nearer to the result
        if expression.nodes[index].op == "x" or not expression.nodes[index].args:
            continue
        form = match(expression, dict(kinds), takes_c, index)
        if form is None or EPILOGUES[form.epilogue].enumerator is None:
            continue
        rest = _after(expression, index)
        if rest is not None:
            return form, rest
    return NativeForm(), expression


def nearest(expression: Expression, kinds: Mapping[str, str], takes_c: bool) -> tuple[NativeForm, Expression]:
    """Return the product to begin with, and what is left to compute from its result.

    The product's node must be the only way from ``x`` to the results, and what is left reads ``x`` as that result.
    """
    return _nearest(expression, tuple(sorted(kinds.items())), takes_c)


def _after(expression: Expression, index: int) -> Expression | None:
    """Return an expression with a node in the place of x; ``None`` where x is read otherwise too."""
    builder = Builder(expression.inputs)
    copies: list[int | None] = []
    for number, node in enumerate(expression.nodes):
        if number == index:
            copies.append(builder.x())
        elif node.op == "x":
            copies.append(None)
        else:
            args = [copies[arg] for arg in node.args]
            if any(arg is None for arg in args):
                copies.append(None)
            elif args:
                copies.append(builder.op(node.op, *args, value=node.value))  # type: ignore[arg-type]
            else:
                copies.append(builder.leaf(node))
    outputs = [copies[output] for output in expression.outputs]
    if any(output is None for output in outputs):
        return None
    return builder.finish(outputs, expression.single, (), expression.name)  # type: ignore[arg-type]
