# SPDX-License-Identifier: MIT
"""Operators of reductions and scans: by name, as a numpy ufunc, or as a Python function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.core import cgutils, errors, types
from numba.core.target_extension import current_target, resolve_dispatcher_from_str
from numba.core.typing import signature as make_signature
from numba.extending import intrinsic, register_jitable

from rocpy.cooperative.api.operators import NAMES, name_of
from rocpy.cooperative.numba.half import HALVES, BFloat16
from rocpy.cooperative.numba.messages import reason_of
from rocpy.cooperative.numba.types import MARK, refuse


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
    name
        As users write it; empty for a function.
    function
        The user's function, as Numba takes it; None for a name.
    """

    combine: Callable[[Any, Any], Any]
    identity: Any
    exact: bool
    name: str = ""
    function: Any = None


def caster(dtype: types.Type) -> Callable[[Any], Any]:
    """Return a function that makes an element of a number."""
    if isinstance(dtype, types.Boolean):
        return register_jitable(lambda value: bool(value))
    if isinstance(dtype, types.Record):
        return register_jitable(lambda value: value)
    return register_jitable(lambda value: dtype(value))


@functools.cache
def named(name: str, dtype: types.Type) -> Operator:
    """Return an operator by its name."""
    if isinstance(dtype, types.Record):
        raise refuse(f"op {name!r} is for numbers, and the value is structured; pass a Python function")
    if name in "&|^" and isinstance(dtype, (types.Float, BFloat16, types.Complex)):
        raise refuse(f"op {name!r} is for integers and booleans, and the value is {dtype}")
    if name in ("min", "max") and isinstance(dtype, types.Complex):
        raise refuse(f"op {name!r} needs ordered values, and the value is {dtype}")
    cast = caster(dtype)
    function = _combiners(cast)[name]
    exact = isinstance(dtype, (types.Integer, types.Boolean)) or name in ("min", "max")
    return Operator(register_jitable(function), _identity(name, dtype), exact, name)


def _combiners(cast: Any) -> dict[str, Callable[[Any, Any], Any]]:
    # A NaN wins, as in numpy: it is the one value that differs from itself.
    return {
        "+": lambda a, b: cast(a + b),
        "-": lambda a, b: cast(a - b),
        "*": lambda a, b: cast(a * b),
        "min": lambda a, b: a if (a < b or a != a) else b,
        "max": lambda a, b: a if (a > b or a != a) else b,
        "&": lambda a, b: cast(a & b),
        "|": lambda a, b: cast(a | b),
        "^": lambda a, b: cast(a ^ b),
    }


def _identity(name: str, dtype: types.Type) -> Any:
    if isinstance(dtype, types.Boolean):
        return {"*": True, "min": True, "&": True, "-": None}.get(name, False)
    if name == "-":
        return None
    if name in ("+", "|", "^"):
        return 0
    if name == "*":
        return 1
    if isinstance(dtype, types.Integer):
        if name == "&":
            return -1 if dtype.signed else dtype.maxval
        return dtype.maxval if name == "min" else dtype.minval
    return np.inf if name == "min" else -np.inf


def resolve(call: Any, dtype: types.Type, names: tuple[str, ...] = NAMES) -> Operator:
    """Return the operator that a call's `op` stands for."""
    word = call.word("op")
    if word is not None:
        if word not in names:
            raise refuse(f"{call.name}: op is {word!r}; the names are {', '.join(names)}")
        return named(word, dtype)
    key = _function_of(call)
    accepted = f"one of {', '.join(names)}, a numpy ufunc, or a Python function of two values"
    if not callable(key):
        raise refuse(f"{call.name}: op is {call.types['op']}; pass {accepted}")
    if word := name_of(key, booleans=isinstance(dtype, types.Boolean)):
        return named(word, dtype)
    fills = _fills(key, dtype)
    check(call, "op", (dtype, dtype, dtype) if fills else (dtype, dtype), None if fills else dtype, accepted)
    return _of_function(key, dtype, fills)


def predicate(call: Any, dtype: types.Type, accepted: str) -> Operator:
    """Return the function of two values that a call's `op` is, whose result is a truth."""
    key = _function_of(call)
    if not callable(key):
        raise refuse(f"{call.name}: op is {call.types['op']}; pass {accepted}")
    check(call, "op", (dtype, dtype), types.boolean, accepted)
    return _predicate(key, dtype)


def check(call: Any, name: str, arguments: tuple[types.Type, ...], element: types.Type | None, accepted: str) -> None:
    """Refuse a function that does not take what it is called with, or returns what cannot be used.

    Parameters
    ----------
    call
        Of a primitive.
    name
        The argument that the function is.
    arguments
        Types of what it is called with.
    element
        Type that its result is cast to; None where it is not used.
    accepted
        What may be passed.
    """
    key = _function_of(call, name)
    shown = f"({', '.join(map(str, arguments))})"
    signature, reason, details = None, "", ""
    try:
        context = resolve_dispatcher_from_str(current_target()).targetdescr.typing_context
        signature = call.types[name].get_call_type(context, tuple(_wider(key, each) for each in arguments), {})
    except Exception as error:  # Numba's rules of functions raise any
        details = str(error)  # with the line in a function, where that is the reason
        if MARK in details or "NRT required" in details:  # is said already; or is tried again
            raise
        if isinstance(call.types[name], types.Dispatcher):
            reason = f": {reason_of(error)}"
    if signature is None:
        message = f"{call.name}: {name} is {_shown(key)}, which cannot be called with {shown}{reason}; pass {accepted}"
        raise errors.TypingError(f"{MARK}{message}{MARK}\n{details}")
    result = types.unliteral(signature.return_type)
    if element is not None and not _is_element(result, element):
        raise refuse(
            f"{call.name}: {name} is {_shown(key)}, which returns {result} of {shown}; it must return "
            + ("a truth" if element is types.boolean else str(element))
        )


def _shown(key: Any) -> str:
    if isinstance(key, np.ufunc):
        return f"np.{key.__name__}"
    name = str(getattr(getattr(key, "py_func", key), "__name__", key))
    return "a lambda" if name == "<lambda>" else f"the function {name}"


def _is_element(result: types.Type, dtype: types.Type) -> bool:
    """Return whether what a function returns can be cast to an element."""
    if isinstance(dtype, types.Record):
        return result == dtype
    if isinstance(result, types.Complex):
        return isinstance(dtype, (types.Complex, types.Boolean))
    return isinstance(result, (types.Number, types.Boolean))


@functools.lru_cache(maxsize=1024)
def _predicate(function: Any, dtype: types.Type) -> Operator:
    call = _widening(function, dtype)
    return Operator(register_jitable(lambda a, b: bool(call(a, b))), None, exact=False, function=function)


def _wider(function: Any, dtype: types.Type) -> types.Type:
    """Return the type that elements are converted to for a function: Numba has no ufuncs of 16-bit floats."""
    return types.float32 if isinstance(function, np.ufunc) and dtype in HALVES else dtype


def _widening(function: Any, dtype: types.Type) -> Any:
    """Return a function of two elements that converts them for another, where it must."""
    cast = _wider(function, dtype)
    return function if cast == dtype else register_jitable(lambda a, b: function(cast(a), cast(b)))


def _function_of(call: Any, name: str = "op") -> Any:
    operator = call.types[name]
    if isinstance(operator, types.Dispatcher):
        return operator.dispatcher
    key = getattr(operator, "typing_key", None)
    if key is None and isinstance(operator, types.Callable) and isinstance(getattr(operator, "ufunc", None), np.ufunc):
        key = operator.ufunc
    return key


def _fills(function: Any, dtype: types.Type) -> bool:
    """Return whether a function fills a third value, in place of returning one."""
    code = getattr(getattr(function, "py_func", function), "__code__", None)
    return isinstance(dtype, types.Record) and code is not None and code.co_argcount == 3


@functools.lru_cache(maxsize=1024)
def _of_function(function: Any, dtype: types.Type, fills: bool) -> Operator:
    cast, call = caster(dtype), _widening(function, dtype)
    combine = _filling(function, dtype) if fills else register_jitable(lambda a, b: cast(call(a, b)))
    return Operator(combine, None, exact=False, function=function)


def _filling(function: Any, dtype: types.Type) -> Any:
    """Return an operator of two structured values made of a function that fills a third."""

    def fill(a: Any, b: Any, out: Any) -> None:
        function(a, b, out)

    @intrinsic
    def combine(_typing: Any, a: Any, b: Any) -> Any:
        def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            data = context.get_data_type(dtype)
            # The function may read its operands after it has begun to write, and the last result may be one of them.
            filled, result_slot = cgutils.alloca_once(builder, data), cgutils.alloca_once(builder, data)
            filled.align = result_slot.align = 16
            inner = make_signature(types.none, dtype, dtype, dtype)
            context.compile_internal(builder, fill, inner, [*arguments, filled])
            builder.store(builder.load(filled), result_slot)
            return result_slot

        return dtype(a, b), codegen

    return combine
