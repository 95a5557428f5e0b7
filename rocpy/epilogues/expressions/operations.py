# SPDX-License-Identifier: MIT
"""The operations that an expression is made of: one row for each, with its arity, its rule of types and its value."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["OPERATIONS", "Operation", "fold"]


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
    return x if x != x or x < y else y


def _maximum(x: float, y: float) -> float:
    return x if x != x or x > y else y


def _exp(x: float) -> float:
    return math.inf if x > 709.8 else math.exp(x)


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan


def _sqrt(x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan


def _sigmoid(x: float) -> float:
    return 0.0 if x < -700.0 else 1.0 / (1.0 + math.exp(-x))


def _never_far_left(function: Callable[[float], float]) -> Callable[[float], float]:
    # At minus infinity the product would be infinity times 0; the value is 0 long before.
    return lambda x: -0.0 if x < -1000.0 else function(x)


def _gelu_tanh(x: float) -> float:
    return x * _sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x))


def _clamp(x: float, low: float, high: float) -> float:
    return _minimum(_maximum(x, low), high)


def _whole(rounded: Callable[[float], Any]) -> Callable[[float], Any]:
    # A fraction beside 0 keeps its sign.
    return lambda x: math.copysign(rounded(x), x) if isinstance(x, float) and math.isfinite(x) else x


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
    # With one bound: those of minimum and maximum, but for the gradient where the two are equal.
    Operation("clamp_min", 2, "promote", value=_maximum),
    Operation("clamp_max", 2, "promote", value=_minimum),
    Operation("relu", 1, "promote", value=lambda x: _maximum(x, type(x)(0))),
    Operation("exp", 1, "float", value=_exp),
    Operation("log", 1, "float", value=_log),
    Operation("sqrt", 1, "float", value=_sqrt),
    Operation("rsqrt", 1, "float", value=lambda x: _divide(1.0, _sqrt(x))),
    Operation("tanh", 1, "float", value=math.tanh),
    Operation("erf", 1, "float", value=math.erf),
    Operation("sigmoid", 1, "float", value=_sigmoid),
    Operation("silu", 1, "float", value=_never_far_left(lambda x: x * _sigmoid(x))),
    Operation("gelu", 1, "float", value=_never_far_left(lambda x: 0.5 * x * math.erfc(-x * math.sqrt(0.5)))),
    Operation("gelu_tanh", 1, "float", value=_never_far_left(_gelu_tanh)),
    # With a negative integer as its exponent; others are products.
    Operation("power", 1, "float"),
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


def fold(operation: Operation, known: Sequence[Any]) -> Any:
    """Return the value of an operation on Python's numbers; ``None`` where there is none to fold.

    It is of the kind that its operands' kinds give, whichever of them it equals.
    """
    if operation.value is None or (operation.name in _ON_TRUTH_VALUES and any(type(one) is not bool for one in known)):
        return None
    try:
        value = operation.value(*known)
        counted = {"promote": known, "where": known[1:]}.get(operation.kind, ())
        return max((type(one) for one in counted), key=_KINDS.index)(value) if _is_mixed(counted) else value
    except (OverflowError, ValueError):  # beyond the largest float
        return None


_ON_TRUTH_VALUES = ("and", "or", "not")
_KINDS = (bool, int, float)


def _is_mixed(numbers: Sequence[Any]) -> bool:
    return len({type(one) for one in numbers}) > 1
