# SPDX-License-Identifier: MIT
"""Random custom epilogues as Python functions, and the error bounds of computing them.

A bound follows an expression from its operands to its results. Each value carries the largest distance that a
computed one may have: what its operands' distances become under the operation (by the operation's slope over that
whole range), and the rounding of the operation itself: one unit for arithmetic and roots, `ULPS` for other functions.
A comparison whose operands may change places is uncertain, and what it chooses between is then as far as the two lie
apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rocpy.epilogues import Expression
from rocpy.epilogues.expressions.powers import expanded
from rocpy.epilogues.tracing.trace import Traced

from . import oracles
from .tolerance import FORMATS, ulp

__all__ = ["INPUTS", "bounded", "function_of", "random_text"]

Array = np.ndarray

# Names of the inputs of random functions: what each broadcasts along.
INPUTS = ("row", "column", "full", "scalar")

# Units in the last place of functions that no hardware rounds correctly.
ULPS = 8.0
_STEEPEST = {"tanh": 1.0, "erf": 1.1284, "sigmoid": 0.25, "silu": 1.1, "gelu": 1.13, "gelu_tanh": 1.13}

_UNARY = (
    "-{}", "abs({})", "relu({})", "tanh({})", "sigmoid({})", "silu({})", "gelu({})", "gelu_tanh({})", "erf({})",
    "exp(minimum({}, 3.0))", "log(abs({}) + 0.5)", "sqrt(abs({}))", "rsqrt(abs({}) + 0.25)", "square({})",
    "clip({}, -1.5, 2.0)", "clip({}, -0.5, None)", "clip({}, None, 0.75)",
    "({} * 0.5)", "({} + 1.25)", "(3 - {})", "floor({})", "rint({})",
)  # fmt: skip
_BINARY = (
    "({} + {})", "({} - {})", "({} * {})", "({} / (abs({}) + 1.0))", "maximum({}, {})", "minimum({}, {})",
    "where({} > {}, x, -0.5)",
)  # fmt: skip
_TERNARY = ("where({} > {}, {}, 0.25)", "where(({} < 0.5) & ({} >= -1.0), {}, 2.0)")


def random_text(choose: Callable[[int], int], operations: int = 6) -> tuple[str, tuple[str, ...]]:
    """Return a random function's body in Python, and the names of the inputs that it reads.

    Parameters
    ----------
    choose
        Gives a number below another.
    operations
        How many to draw.
    """
    pool = ["x", *INPUTS]
    for _ in range(operations):
        kind = choose(8)
        forms: Sequence[str] = _UNARY if kind < 4 else _BINARY if kind < 7 else _TERNARY
        form = forms[choose(len(forms))]
        count = form.count("{}")
        # The newest value is always read, so that what is drawn is not thrown away.
        newest = pool[-1] if len(pool) > len(INPUTS) + 1 else "x"
        pool.append(form.format(newest, *(pool[choose(len(pool))] for _ in range(count - 1))))
    text = pool[-1]
    return text, tuple(name for name in INPUTS if name in text)


def _erf(x: Any) -> Any:
    result: Array = np.vectorize(math.erf, otypes=[np.float64])(x)
    return result


_OWN: dict[str, Callable[[Array], Array]] = {
    "relu": oracles.relu,
    "sigmoid": oracles.sigmoid,
    "silu": oracles.silu,
    "gelu": oracles.gelu_erf,
    "gelu_tanh": oracles.gelu,
    "erf": _erf,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
}


def _dispatching(name: str, oracle: Callable[[Array], Array]) -> Callable[..., Any]:
    def run(value: Any) -> Any:
        if not isinstance(value, Traced):
            return oracle(value)
        return value.gelu(approximate="tanh") if name == "gelu_tanh" else getattr(value, name)()

    return run


def function_of(text: str, inputs: Sequence[str]) -> Callable[..., Any]:
    """Return a function of x and inputs with this body; on float64 arrays it is the oracle, and it can be traced."""
    names: dict[str, Any] = {name: _dispatching(name, oracle) for name, oracle in _OWN.items()}
    for name in ("tanh", "exp", "log", "sqrt", "square", "clip", "floor", "rint", "where", "maximum", "minimum"):
        names[name] = getattr(np, name)
    # The text is this module's own, of random_text.
    function: Callable[..., Any] = eval(f"lambda {', '.join(['x', *inputs])}: {text}", names)  # noqa: S307
    return function


def bounded(
    expression: Expression, x: Array, dx: Array | float, inputs: Mapping[str, Any], compute: str = "float32"
) -> tuple[tuple[Array, Array], ...]:
    """Return each result in float64, and the distance that a computed one may have from it.

    Parameters
    ----------
    expression
        What is computed.
    x, dx
        The product in float64, and the distance of the one that is computed from it.
    inputs
        The inputs, which are known exactly.
    compute
        Type of the arithmetic.
    """
    u = 2.0 ** -(FORMATS[compute].fraction_bits + 1)
    tiny = 2.0 ** (FORMATS[compute].min_exponent - FORMATS[compute].fraction_bits)
    computed_by, computed = expanded(expression), list[tuple[Any, Any]]()
    with np.errstate(all="ignore"):
        for node in computed_by.nodes:
            if node.op == "x":
                computed.append((np.asarray(x, np.float64), dx))
            elif node.op in ("input", "const"):
                value = inputs[node.value] if node.op == "input" else node.value
                # Numbers are rounded to the type of the arithmetic too.
                own = u * abs(value) if node.op == "const" and isinstance(value, float) else 0.0
                computed.append((np.asarray(value).astype(np.float64), own if np.isfinite(own) else 0.0))
            else:
                value, carried, units = _step(node.op, node.value, [computed[arg] for arg in node.args], u)
                error = carried + units * u * (np.abs(value) + carried) + (tiny if units else 0.0)
                computed.append((value, np.where(np.isnan(value), 0.0, error)))
    return tuple(
        (np.broadcast_to(value, x.shape), np.broadcast_to(error, x.shape))
        for value, error in (computed[index] for index in computed_by.outputs)
    )


def _step(op: str, attribute: Any, args: list[tuple[Any, Any]], u: float) -> tuple[Any, Any, float]:
    """Return an operation's value, what its operands' distances become, and its own units of rounding."""
    (a, da), (b, db), (c, dc) = (*args, *[(0.0, 0.0)] * (3 - len(args)))[:3]
    if op in ("add", "sub"):
        return (a + b if op == "add" else a - b), da + db, 1.0
    if op == "mul":
        return a * b, np.abs(a) * db + np.abs(b) * da + da * db, 1.0
    if op == "div":
        value, distance = a / b, np.abs(b) - db
        return value, np.where(distance > 0, (da + np.abs(value) * db) / distance, np.inf), 1.0
    if op in _MONOTONE:
        function = _MONOTONE[op]
        value = function(a)
        far = np.maximum(np.abs(function(a + da) - value), np.abs(function(a - da) - value))
        return value, np.where(np.isnan(far), np.inf, far), _UNITS.get(op, 0.0)
    if op in _STEEPEST:
        value = _OWN[op](a) if op in _OWN else np.tanh(a)
        return value, _STEEPEST[op] * da + ULPS * u * np.minimum(np.abs(a), 1.0), ULPS
    if op in _BOUNDS:
        return _BOUNDS[op](a, b), np.maximum(da, db), 0.0
    if op == "clamp":
        return np.minimum(np.maximum(a, b), c), np.maximum(np.maximum(da, db), dc), 0.0
    if op in _COMPARISONS:
        return _COMPARISONS[op](a, b).astype(np.float64), (np.abs(a - b) <= da + db) * (da + db > 0) * 1.0, 0.0
    if op in ("and", "or"):
        joined = (a != 0) & (b != 0) if op == "and" else (a != 0) | (b != 0)
        return joined.astype(np.float64), np.maximum(da, db), 0.0
    if op == "not":
        return (a == 0).astype(np.float64), da, 0.0
    if op == "where":
        other = np.maximum(db, dc) + np.abs(b - c)
        return np.where(a != 0, b, c), np.where(da > 0, other, np.where(a != 0, db, dc)), 0.0
    if op == "cast" and attribute in FORMATS:
        if FORMATS[attribute].fraction_bits == FORMATS[attribute].min_exponent:  # whole numbers
            return _step("trunc", None, args, u)
        return a, da + 0.5 * ulp(np.abs(a) + da, attribute), 0.0
    raise ValueError(f"no bound is known for {op}")


_BOUNDS: dict[str, Callable[[Any, Any], Any]] = {
    "minimum": np.minimum,
    "maximum": np.maximum,
    "clamp_min": np.maximum,
    "clamp_max": np.minimum,
}
_MONOTONE: dict[str, Callable[[Any], Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "relu": lambda a: np.maximum(a, 0.0),
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
}
_UNITS = {"exp": ULPS, "log": ULPS, "sqrt": 1.0, "rsqrt": ULPS}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
