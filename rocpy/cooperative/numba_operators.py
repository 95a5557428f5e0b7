# SPDX-License-Identifier: MIT
"""Operators of reductions and scans: by name, as a numpy ufunc, or as a Python function."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.core import types
from numba.extending import register_jitable

from rocpy.cooperative.numba_types import refuse

NAMES = ("+", "*", "min", "max", "&", "|", "^")

_FUNCTIONS: dict[Any, str] = {
    operator.add: "+",
    operator.mul: "*",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    min: "min",
    max: "max",
    np.add: "+",
    np.multiply: "*",
    np.minimum: "min",
    np.maximum: "max",
    np.bitwise_and: "&",
    np.bitwise_or: "|",
    np.bitwise_xor: "^",
    np.logical_and: "&",
    np.logical_or: "|",
    np.logical_xor: "^",
}
_LOGICAL = (np.logical_and, np.logical_or, np.logical_xor)


@dataclass(frozen=True)
class Operator:
    """An operator for one element type.

    Attributes
    ----------
    combine
        Function of two elements, for use in compiled code; its result is an element.
    identity
        Neutral element, None where none is known.
    exact
        Whether any order of the operands gives the same bits.
    """

    combine: Callable[[Any, Any], Any]
    identity: Any
    exact: bool


def caster(dtype: types.Type) -> Callable[[Any], Any]:
    """Return a function that makes an element of a number."""
    if isinstance(dtype, types.Boolean):
        return register_jitable(lambda value: bool(value))
    return register_jitable(lambda value: dtype(value))


@functools.cache
def named(name: str, dtype: types.Type) -> Operator:
    """Return an operator by its name."""
    if name in "&|^" and isinstance(dtype, (types.Float, types.Complex)):
        raise refuse(f"op {name!r} is for integers and booleans, and the value is {dtype}")
    if name in ("min", "max") and isinstance(dtype, types.Complex):
        raise refuse(f"op {name!r} needs an order, and the value is {dtype}")
    cast = caster(dtype)
    function = _combiners(cast)[name]
    exact = isinstance(dtype, (types.Integer, types.Boolean)) or name in ("min", "max")
    return Operator(register_jitable(function), _identity(name, dtype), exact)


def _combiners(cast: Any) -> dict[str, Callable[[Any, Any], Any]]:
    # A NaN wins, as in numpy: it is the one value that differs from itself.
    return {
        "+": lambda a, b: cast(a + b),
        "*": lambda a, b: cast(a * b),
        "min": lambda a, b: a if (a < b or a != a) else b,
        "max": lambda a, b: a if (a > b or a != a) else b,
        "&": lambda a, b: cast(a & b),
        "|": lambda a, b: cast(a | b),
        "^": lambda a, b: cast(a ^ b),
    }


def _identity(name: str, dtype: types.Type) -> Any:
    if isinstance(dtype, types.Boolean):
        return {"+": False, "*": True, "min": True, "max": False, "&": True, "|": False, "^": False}[name]
    if name in ("+", "|", "^"):
        return 0
    if name == "*":
        return 1
    if isinstance(dtype, types.Integer):
        if name == "&":
            return -1 if dtype.signed else dtype.maxval
        return dtype.maxval if name == "min" else dtype.minval
    return np.inf if name == "min" else -np.inf


def resolve(call: Any, dtype: types.Type, name: str = "op") -> Operator:
    """Return the operator that an argument of a call names."""
    given = call.types[name]
    if isinstance(given, types.StringLiteral):
        if given.literal_value not in NAMES:
            raise refuse(f"{call.name}: {name} is {given.literal_value!r}; the names are {', '.join(NAMES)}")
        return named(given.literal_value, dtype)
    if isinstance(given, types.Dispatcher):
        return _of_function(given.dispatcher, dtype)
    key = getattr(given, "typing_key", None)
    if key is None and isinstance(given, types.Callable) and isinstance(getattr(given, "ufunc", None), np.ufunc):
        key = given.ufunc
    if key in _FUNCTIONS and not (key in _LOGICAL and not isinstance(dtype, types.Boolean)):
        return named(_FUNCTIONS[key], dtype)
    if callable(key):
        return _of_function(key, dtype)
    raise refuse(
        f"{call.name}: {name} is {given}; pass one of {', '.join(NAMES)}, a numpy ufunc, or a Python function of two "
        "values"
    )


@functools.lru_cache(maxsize=1024)
def _of_function(function: Any, dtype: types.Type) -> Operator:
    cast = caster(dtype)
    return Operator(register_jitable(lambda a, b: cast(function(a, b))), None, exact=False)
