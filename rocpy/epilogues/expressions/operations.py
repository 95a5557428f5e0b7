# SPDX-License-Identifier: MIT
"""The operations that an expression is made of: one row for each, with its arity, its rule of types and its value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["OPERATIONS", "Operation"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation, as data.

    Parameters
    ----------
    name
        Its name in an expression.
    arity
        Number of operands.
    kind
        Which type it gives: ``"promote"`` (that which holds the operands), ``"float"`` (the same, whole numbers as
        float32), ``"bool"``, ``"where"`` (of all but the first operand), ``"cast"`` (as its attribute says),
        ``"like"`` (that of the second operand), ``"leaf"``.
    symbol
        How it is written between or before its operands; empty: as a function.
    value
        Its value on Python's numbers, for folding constants; ``None`` where that is not done.
    """

    name: str
    arity: int
    kind: str
    symbol: str = ""
    value: Callable[..., Any] | None = None
    commutes: bool = False


def _divide(x: float, y: float) -> float:
    if y:
        return x / y
    return math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1.0, y)


def _minimum(x: float, y: float) -> float:
    return math.nan if math.isnan(x) or math.isnan(y) else min(x, y)


def _maximum(x: float, y: float) -> float:
    return math.nan if math.isnan(x) or math.isnan(y) else max(x, y)


def _exp(x: float) -> float:
    return math.inf if x > 709.8 else math.exp(x)


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan


def _sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x > -700.0 else 0.0


def _gelu_tanh(x: float) -> float:
    return x * _sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))


def _clamp(x: float, low: float, high: float) -> float:
    return _minimum(_maximum(x, low), high)


def _whole(rounded: Callable[[float], Any]) -> Callable[[float], Any]:
    return lambda x: type(x)(rounded(x)) if math.isfinite(x) else x


_ROWS = (
    Operation("x", 0, "leaf"),
    Operation("input", 0, "leaf"),
    Operation("const", 0, "leaf"),
    Operation("add", 2, "promote", "+", lambda x, y: x + y, commutes=True),
    Operation("sub", 2, "promote", "-", lambda x, y: x - y),
    Operation("mul", 2, "promote", "*", lambda x, y: x * y, commutes=True),
    Operation("div", 2, "float", "/", _divide),
    Operation("neg", 1, "promote", "-", lambda x: -x),
    Operation("abs", 1, "promote", value=abs),
    Operation("minimum", 2, "promote", value=_minimum, commutes=True),
    Operation("maximum", 2, "promote", value=_maximum, commutes=True),
    Operation("clamp", 3, "promote", value=_clamp),
    Operation("relu", 1, "promote", value=lambda x: _maximum(x, type(x)(0))),
    Operation("exp", 1, "float", value=_exp),
    Operation("log", 1, "float", value=_log),
    Operation("sqrt", 1, "float", value=_sqrt),
    Operation("rsqrt", 1, "float", value=lambda x: _divide(1.0, _sqrt(x))),
    Operation("tanh", 1, "float", value=math.tanh),
    Operation("erf", 1, "float", value=math.erf),
    Operation("sigmoid", 1, "float", value=_sigmoid),
    Operation("silu", 1, "float", value=lambda x: x * _sigmoid(x)),
    Operation("gelu", 1, "float", value=lambda x: 0.5 * x * math.erfc(-x * math.sqrt(0.5))),
    Operation("gelu_tanh", 1, "float", value=_gelu_tanh),
    Operation("round", 1, "promote", value=_whole(round)),
    Operation("floor", 1, "promote", value=_whole(math.floor)),
    Operation("ceil", 1, "promote", value=_whole(math.ceil)),
    Operation("eq", 2, "bool", "==", lambda x, y: x == y, commutes=True),
    Operation("ne", 2, "bool", "!=", lambda x, y: x != y, commutes=True),
    Operation("lt", 2, "bool", "<", lambda x, y: x < y),
    Operation("le", 2, "bool", "<=", lambda x, y: x <= y),
    Operation("gt", 2, "bool", ">", lambda x, y: x > y),
    Operation("ge", 2, "bool", ">=", lambda x, y: x >= y),
    Operation("and", 2, "bool", "&", lambda x, y: bool(x and y), commutes=True),
    Operation("or", 2, "bool", "|", lambda x, y: bool(x or y), commutes=True),
    Operation("not", 1, "bool", "~", lambda x: not x),
    Operation("where", 3, "where", value=lambda condition, x, y: x if condition else y),
    Operation("cast", 1, "cast"),
    Operation("cast_like", 2, "like"),
    # Every second column, from the first (0) or from the second (1), and the two of them put together again.
    Operation("pick", 1, "promote"),
    Operation("interleave", 2, "promote"),
)

OPERATIONS: dict[str, Operation] = {row.name: row for row in _ROWS}
