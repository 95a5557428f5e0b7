# SPDX-License-Identifier: MIT
"""What the functions of the vocabulary mean: each written in operations of the expression."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from rocpy.epilogues.expressions.powers import product
from rocpy.epilogues.tracing.writer import type_of_constant
from rocpy.errors import InvalidProblemError, UnsupportedError

__all__ = ["LISTED", "MEANINGS"]

LISTED = (
    "arithmetic, comparisons, & | ~ of truth values, logical functions, where, minimum, maximum, abs, exp, log, sqrt, "
    "rsqrt, square, reciprocal, pow with an integer exponent up to 16 or 0.5 or -0.5, tanh, erf, sigmoid, silu, gelu, "
    "relu, relu6, leaky_relu, hardtanh, hardsigmoid, hardswish, clamp, clip, round, floor, ceil, masked_fill, "
    "addcmul, lerp, casts"
)
# Powers up to this one are products; beyond it a chain of them says little about precision.
_HIGHEST_POWER = 16


def _plain(name: str, arity: int) -> Callable[..., Any]:
    if arity == 1:
        # inplace=False, as torch's modules pass it
        return lambda write, input, inplace=False: write.op(name, input)  # noqa: A006, ARG005
    return lambda write, input, other: write.op(name, input, other)  # noqa: A006


def _add(write: Any, input: Any, other: Any, *, alpha: Any = 1) -> Any:  # noqa: A002
    return write.op("add", input, other if alpha == 1 else write.op("mul", other, alpha))


def _sub(write: Any, input: Any, other: Any, *, alpha: Any = 1) -> Any:  # noqa: A002
    return write.op("sub", input, other if alpha == 1 else write.op("mul", other, alpha))


def _rsub(write: Any, input: Any, other: Any) -> Any:  # noqa: A002
    return write.op("sub", other, input)


def _div(write: Any, input: Any, other: Any, *, rounding_mode: Any = None) -> Any:  # noqa: A002
    if rounding_mode is not None:
        raise UnsupportedError(f"rounding_mode={rounding_mode!r}; divide, then floor")
    return write.op("div", input, other)


def _gelu(write: Any, input: Any, approximate: str = "none") -> Any:  # noqa: A002
    if approximate not in ("none", "tanh"):
        raise InvalidProblemError(f"approximate: got {approximate!r}, expected 'none' or 'tanh'")
    return write.op("gelu" if approximate == "none" else "gelu_tanh", input)


def _clamp(write: Any, input: Any, min: Any = None, max: Any = None, a_min: Any = None, a_max: Any = None) -> Any:  # noqa: A002
    low, high = (a_min if min is None else min), (a_max if max is None else max)
    if low is None and high is None:
        raise InvalidProblemError("neither bound is given")
    if high is None:
        return write.op("clamp_min", input, low)
    return write.op("clamp_max", input, high) if low is None else write.op("clamp", input, low, high)


def _hardtanh(write: Any, input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:  # noqa: A002, ARG001
    # The type is the operand's, as in torch: a whole bound does not make floats of integers.
    bounds: list[Any] = []
    for one in (min_val, max_val):
        if not isinstance(one, float) or not one.is_integer():
            bounds.append(one)
        elif abs(one) < 2**63 and math.copysign(1.0, one) == (-1.0 if one < 0 else 1.0):
            bounds.append(int(one))
        else:  # a number that no integer is: -0.0, or one beyond 64 bits
            bounds.append(write.cast_like(one, input))
    return write.op("clamp", input, *bounds)


def _leaky_relu(write: Any, input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Any:  # noqa: A002, ARG001
    return write.op("where", write.op("gt", input, 0), input, write.op("mul", input, negative_slope))


def _hardsigmoid(write: Any, input: Any, inplace: bool = False) -> Any:  # noqa: A002, ARG001
    return write.op("div", write.op("clamp", write.op("add", input, 3), 0, 6), 6)


def _hardswish(write: Any, input: Any, inplace: bool = False) -> Any:  # noqa: A002, ARG001
    # Outside of the ramp it is -0.0 or the operand, without a factor that could be infinite or a gradient that is NaN.
    inside = write.op("div", write.op("mul", input, write.op("clamp", write.op("add", input, 3), 0, 6)), 6)
    above = write.op("where", write.op("ge", input, 3), input, inside)
    return write.op("where", write.op("le", input, -3), -0.0, above)


def _masked_fill(write: Any, input: Any, mask: Any, value: Any) -> Any:  # noqa: A002
    return write.op("where", mask, write.cast_like(value, input), input)


def _addcmul(write: Any, input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:  # noqa: A002
    return _add(write, input, write.op("mul", tensor1, tensor2), alpha=value)


def _lerp(write: Any, input: Any, end: Any, weight: Any) -> Any:  # noqa: A002
    # As in torch: each half of the way from its own end, so that both ends are reached.
    step = write.op("sub", end, input)
    first = write.op("add", input, write.op("mul", step, weight))
    second = write.op("sub", end, write.op("mul", step, write.op("sub", 1, weight)))
    constant = write.constant(weight)
    if constant is not None:
        return first if abs(constant) < 0.5 else second
    return write.op("where", write.op("lt", write.op("abs", weight), 0.5), first, second)


def _pow(write: Any, input: Any, exponent: Any) -> Any:  # noqa: A002
    number = write.constant(exponent)
    if isinstance(number, bool):
        raise UnsupportedError(f"a power whose exponent is the truth value {number}; pass {int(number)}")
    if number is None:
        raise UnsupportedError(
            "a power whose exponent is not a constant number; use exp(exponent * log(x)) where x is positive"
        )
    is_root = abs(number) == 0.5
    if not math.isfinite(number) or abs(number) > _HIGHEST_POWER or (number != int(number) and not is_root):
        raise UnsupportedError(
            f"the power {number}; integer exponents up to {_HIGHEST_POWER}, 0.5 and -0.5 are supported: use "
            "exp(exponent * log(x)) where x is positive"
        )
    count = abs(int(number))
    if type_of_constant(exponent) or (not is_root and (isinstance(number, float) or count < 2)):
        # Whole numbers become floats, and truth values whole numbers; others stay as they are.
        input = write.op("mul", input, write.one_like(number, exponent))  # noqa: A001
    if is_root:
        return write.op("sqrt" if number > 0 else "rsqrt", input)
    if count == 0:
        # 1 whatever x is, NaN and infinity too, in its type.
        return write.cast_like(write.op("not", write.op("lt", input, input)), input)
    if number > 0:
        return product(functools.partial(write.op, "mul"), input, count)
    return write.op("div", 1, input) if count == 1 else write.op("power", input, value=-count)


def _float_power(write: Any, input: Any, exponent: Any) -> Any:  # noqa: A002
    return _pow(write, write.cast(input, "float64"), exponent)


def _square(write: Any, input: Any) -> Any:  # noqa: A002
    return write.op("mul", input, input)


def _round(write: Any, input: Any, decimals: int = 0) -> Any:  # noqa: A002
    if decimals != 0:
        raise UnsupportedError(f"decimals={decimals}; scale before and after rounding")
    return write.op("round", input)


def _where(write: Any, condition: Any, *values: Any, **named: Any) -> Any:
    chosen = (*values, *(named[name] for name in ("input", "self", "x", "other", "y") if name in named))
    if len(chosen) != 2:
        raise InvalidProblemError(f"where takes a condition and two values, got {len(chosen)}: where(condition, x, y)")
    x, y = chosen
    return write.op("where", condition, x, y)


def _where_of_tensor(write: Any, input: Any, condition: Any, other: Any) -> Any:  # noqa: A002
    return write.op("where", condition, input, other)


def _to(write: Any, input: Any, *args: Any, dtype: Any = None, casting: str = "unsafe", **others: Any) -> Any:  # noqa: A002
    wanted = args[0] if args and dtype is None else dtype
    if wanted is None or "device" in others or str(wanted).partition(":")[0] in _DEVICES:
        raise UnsupportedError("a move to another device; an epilogue's values have no device")
    casting = args[2] if len(args) > 2 and isinstance(args[2], str) else casting  # of numpy's astype
    if casting != "unsafe":
        raise UnsupportedError(f"casting={casting!r}; the types are not known yet, and the only casting is 'unsafe'")
    for name in others:
        if name not in _STORAGE:
            raise UnsupportedError(f"{name}= is not an argument of a cast")
    return write.cast(input, wanted)


# What says how an array is stored, and nothing of its values.
_STORAGE = ("copy", "order", "subok", "non_blocking", "memory_format")


_DEVICES = ("cpu", "cuda", "hip", "meta")


def _positive(write: Any, input: Any) -> Any:  # noqa: A002, ARG001
    return input


def _logic(name: str) -> Callable[..., Any]:
    return lambda write, *operands: write.op(name, *operands)


def _of_any(name: str) -> Callable[..., Any]:
    """Return a logical function of numbers, which are true unless they are 0."""
    return lambda write, *operands: write.op(name, *(write.truth(one) for one in operands))


_UNARY = (
    "neg", "abs", "relu", "exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "silu", "floor", "ceil",
)  # fmt: skip
_BINARY = ("mul", "minimum", "maximum", "eq", "ne", "lt", "le", "gt", "ge")

# By our own name for the function; the first parameter writes the operations.
MEANINGS: dict[str, Callable[..., Any]] = {
    **{name: _plain(name, 1) for name in _UNARY},
    **{name: _plain(name, 2) for name in _BINARY},
    "and": _logic("and"),
    "or": _logic("or"),
    "not": _logic("not"),
    "logical_and": _of_any("and"),
    "logical_or": _of_any("or"),
    "logical_not": _of_any("not"),
    "add": _add,
    "sub": _sub,
    "rsub": _rsub,
    "div": _div,
    "gelu": _gelu,
    "relu6": lambda write, input, inplace=False: write.op("clamp", input, 0, 6),  # noqa: A006, ARG005
    "hardtanh": _hardtanh,
    "leaky_relu": _leaky_relu,
    "hardsigmoid": _hardsigmoid,
    "hardswish": _hardswish,
    "masked_fill": _masked_fill,
    "addcmul": _addcmul,
    "lerp": _lerp,
    "clamp": _clamp,
    "clamp_min": lambda write, input, min: write.op("clamp_min", input, min),  # noqa: A006
    "clamp_max": lambda write, input, max: write.op("clamp_max", input, max),  # noqa: A006
    "square": _square,
    "reciprocal": lambda write, input: write.op("div", 1, input),  # noqa: A006
    "pow": _pow,
    "float_power": _float_power,
    "round": _round,
    "where": _where,
    "where_of_tensor": _where_of_tensor,
    "to": _to,
    "type_as": lambda write, input, other: write.cast(input, other),  # noqa: A006
    "positive": _positive,
}
