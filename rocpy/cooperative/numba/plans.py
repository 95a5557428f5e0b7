# SPDX-License-Identifier: MIT
"""Calls of primitives as types, the plans that builders make of them, and the register of builders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from numba.core import types
from numba.extending import register_jitable

from rocpy.cooperative.api.table import Primitive
from rocpy.cooperative.numba.groups import GroupType
from rocpy.cooperative.numba.half import BFloat16
from rocpy.cooperative.numba.types import ThreadDataType, refuse

# Numbers of a kind can be numbers of a later one.
_KINDS: tuple[Any, ...] = (types.Boolean, types.Integer, (types.Float, BFloat16), types.Complex)
ELEMENTS = (types.Integer, types.Float, BFloat16, types.Boolean, types.Complex, types.Record)


class Call:
    """A call of a primitive, as types: what a builder makes a plan of."""

    def __init__(self, primitive: Primitive, arguments: dict[str, types.Type], defaults: dict[str, Any]) -> None:
        self.primitive = primitive
        self.name = primitive.name
        self.types = arguments
        self._defaults = defaults
        self.group = arguments["group"]
        if not isinstance(self.group, GroupType):
            raise refuse(f"{self.name}: group is {self.group}; pass coop.this_block() or coop.this_warp()")

    def has(self, name: str) -> bool:
        """Whether an option was given, and not as None."""
        return name in self.types and not isinstance(types.unliteral(self.types[name]), types.NoneType)

    def literal(self, name: str, kinds: type | tuple[type, ...] = object) -> Any:
        """Value of an option that must be known when the kernel is compiled."""
        if name not in self.types or name in self._defaults:
            return self._defaults.get(name)
        type_ = self.types[name]
        if isinstance(type_, types.NoneType):
            return None
        value = getattr(type_, "literal_value", None)
        if value is None or not isinstance(value, kinds):
            raise refuse(f"{self.name}: {name} is {type_}; it must be a literal or a global constant")
        return value

    def payload(self, name: str = "value") -> tuple[types.Type, int]:
        """Element type of a value and its number of elements, 0 for a scalar."""
        type_ = types.unliteral(self.types[name])
        if isinstance(type_, ThreadDataType):
            element, count = type_.dtype, type_.count
            kind = "ThreadData"
        else:
            element, count, kind = type_, 0, "scalar"
        if isinstance(type_, types.Array) and not count:
            raise refuse(f"{self.name}: {name} is an array, {type_}; pass one element of it, or a coop.ThreadData")
        if kind not in self.primitive.payloads:
            raise refuse(f"{self.name}: {name} is a {kind}; pass one of: {', '.join(self.primitive.payloads)}")
        if not isinstance(element, ELEMENTS):
            raise refuse(
                f"{self.name}: {name} is {element}; integers, floats, booleans, complex numbers and structured values "
                "are supported"
            )
        return element, count

    def word(self, name: str) -> str | None:
        """Value of an option that may be a word, None if it is something else."""
        if name in self._defaults:
            return str(self._defaults[name])
        value = getattr(self.types[name], "literal_value", None)
        return value if isinstance(value, str) else None

    def integer(self, name: str) -> None:
        """Check that an option is an integer."""
        if not isinstance(types.unliteral(self.types[name]), types.Integer):
            raise refuse(f"{self.name}: {name} is {self.types[name]}; it must be an integer")

    def integers(self, *names: str) -> dict[str, types.Type]:
        """Check that those of the options that are given are integers; return them as parameters of a plan."""
        present = [name for name in names if self.has(name)]
        for name in present:
            self.integer(name)
        return dict.fromkeys(present, types.int64)

    def converted(self, name: str, dtype: types.Type) -> types.Type:
        """Check that an option is a number that an element can be; return the type of elements."""
        type_ = self.types[name]
        held = types.unliteral(type_)
        kind, wanted = _kind_of(held), _kind_of(dtype)
        fits = held == dtype if kind < 0 or wanted < 0 else kind <= max(wanted, 1)  # a boolean may be 0 or 1
        value = getattr(type_, "literal_value", None)
        if isinstance(dtype, types.Integer) and isinstance(value, int):
            fits = dtype.minval <= value <= dtype.maxval
        if not fits:
            seen = held if value is None else value
            refusal = refuse(
                f"{self.name}: {name} is {seen}, and the items are {dtype}; pass a number that {dtype} has"
            )
            # An error of Numba's would let it try again without what is known of the value.
            raise ValueError(str(refusal)) if value is not None else refusal
        return dtype

    def one_of(self, name: str, known: Any) -> str:
        """Value of an option that must be one of some words."""
        choice = self.literal(name, str)
        if choice not in known:
            raise refuse(f"{self.name}: {name} is {choice!r}; it must be one of: {', '.join(known)}")
        return choice

    def companion(self, name: str, items: int) -> types.Type:
        """Element type of a second value that has as many items as the first."""
        element, count = self.payload(name)
        if count != items:
            raise refuse(
                f"{self.name}: {name} is {self.types[name]}; it must have {items or 1} items per thread, like the other"
            )
        return element


def _kind_of(type_: types.Type) -> int:
    """Return which of `_KINDS` a number is; -1 for any other type."""
    return next((i for i, kind in enumerate(_KINDS) if isinstance(type_, kind)), -1)


@dataclass
class Plan:
    """How a call is carried out.

    Attributes
    ----------
    function
        Python function that Numba compiles for the CPU: takes the parameters, then the outputs.
    parameters
        Names of the call's arguments that are values at run time, with the types they are cast to.
    result
        What the function returns.
    outputs
        Arrays in the caller's frame that the function fills; they come before its own result in what the call returns.
    single
        Whether the outputs are returned as their only elements.
    choices
        What is known when the call is compiled, by the names in its record: types, numbers of items (0 for a scalar),
        modes, flags, and operators as `Operator`.
    """

    function: Callable[..., Any]
    parameters: dict[str, types.Type]
    result: types.Type = types.none
    outputs: list[ThreadDataType] = field(default_factory=list)
    single: bool = False
    choices: dict[str, Any] = field(default_factory=dict)

    @property
    def returned(self) -> types.Type:
        """Type of the call."""
        parts = [each.dtype if self.single else each for each in self.outputs]
        parts += [] if self.result is types.none else [self.result]
        if not parts:
            return types.none
        return parts[0] if len(parts) == 1 else types.Tuple(parts)


Builder = Callable[[Call], Plan]
BUILDERS: dict[str, Builder] = {}
# Functions of a plan that give the function for AMD GPUs, with the same parameters; None, as no entry: the CPU's own.
DEVICE: dict[str, Callable[[Plan], Callable[..., Any] | None]] = {}


def builds(*names: str) -> Callable[[Builder], Builder]:
    """Register the builder of primitives."""

    def register(builder: Builder) -> Builder:
        for name in names:
            BUILDERS[name] = builder
        return builder

    return register


def with_constants(function: Callable[..., Any], names: tuple[str, ...], constants: dict[str, Any]) -> Any:
    """Return a function of the other parameters that calls `function` with constants for some of them."""
    taken = [name for name in names if name not in constants]
    passed = [repr(constants[name]) if name in constants else name for name in names]
    # A closure, not a global: Numba takes functions of the same code without a closure for the same.
    source = f"lambda function: lambda {', '.join(taken)}: function({', '.join(passed)})"
    return eval(source)(register_jitable(function))  # noqa: S307 - written above, of names in this package


def item_getter(count: int) -> Any:
    """Return a function of a payload and an index: the item; a scalar, whose `count` is 0, is its only one."""
    return register_jitable((lambda value, k: value[k]) if count else (lambda value, k: value))


def plain(type_: types.Type) -> types.Type:
    """Return a type without what is known of the value."""
    return types.unliteral(type_)
