# SPDX-License-Identifier: MIT
"""Makes what Numba needs out of the table of primitives: a typing rule and code for each call."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from numba.core import types
from numba.core.compiler import Flags
from numba.core.typing import signature as make_signature
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import lower_builtin, register_jitable

from rocpy.cooperative import _combining, _movement, _neighbours, _sorting
from rocpy.cooperative import numba_runtime as runtime
from rocpy.cooperative._primitives import PRIMITIVES, Primitive
from rocpy.cooperative.numba_half import HALVES, BFloat16
from rocpy.cooperative.numba_runtime import GroupType
from rocpy.cooperative.numba_types import ThreadDataType, first_element, own_copy, refuse, stack_array

_ = (_combining, _movement, _neighbours, _sorting)  # they register their records
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

    def given(self, name: str) -> bool:
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
                "are served"
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
        given = [name for name in names if self.given(name)]
        for name in given:
            self.integer(name)
        return dict.fromkeys(given, types.int64)

    def one_of(self, name: str, known: Any) -> str:
        """Value of an option that must be one of some words."""
        given = self.literal(name, str)
        if given not in known:
            raise refuse(f"{self.name}: {name} is {given!r}; it must be one of: {', '.join(known)}")
        return given

    def companion(self, name: str, items: int) -> types.Type:
        """Element type of a second value that has as many items as the first."""
        element, count = self.payload(name)
        if count != items:
            raise refuse(
                f"{self.name}: {name} is {self.types[name]}; it must have {items or 1} items a thread, as the other"
            )
        return element


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


# NVIDIA's names for what some parameters are.
_OTHER_NAMES = {
    "binary_op": "op",
    "scan_op": "op",
    "compare_op": "op",
    "initial_value": "initial",
    "prefix_op": "prefix",
    "prefix_state": "state",
    "valid_flags": "flags",
}
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


@functools.cache
def _signature_of(primitive: Primitive) -> inspect.Signature:
    return inspect.signature(primitive.function)


@dataclass(frozen=True, eq=False)
class Implementation:
    """What the code of a call is found by: its plan, and the names of its arguments in their order."""

    primitive: Primitive
    plan: Plan
    names: tuple[str, ...]


@functools.lru_cache(maxsize=4096)
def resolve(name: str, ordered: tuple[types.Type, ...], omitted: tuple[str, ...]) -> Implementation:
    """Return how a call with arguments of these types is carried out; None's type stands for what is omitted."""
    primitive = PRIMITIVES[name]
    parameters = _signature_of(primitive).parameters
    defaults = {each: parameters[each].default for each in omitted}
    plan = BUILDERS[name](Call(primitive, dict(zip(parameters, ordered, strict=True)), defaults))
    key = Implementation(primitive, plan, tuple(parameters))
    lower_builtin(key, *ordered)(_codegen(key))
    return key


def _flags() -> Flags:
    flags = Flags()
    flags.error_model = "numpy"
    flags.forceinline = True  # the arrays in a call would go by the stack, word after word
    return flags


@functools.lru_cache(maxsize=4096)
def _device_function(key: Implementation) -> Callable[..., Any]:
    """Return what a GPU runs in place of the plan's function: its own form of it, or the same."""
    make = DEVICE.get(key.primitive.name)
    return (make(key.plan) if make else None) or key.plan.function


def _codegen(key: Implementation) -> Callable[..., Any]:
    plan, names = key.plan, key.names

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        outputs = [stack_array(context, builder, each, (each.count,)) for each in plan.outputs]
        given = dict(zip(names, zip(arguments, signature.args, strict=True), strict=True))
        values = [context.cast(builder, *given[name], wanted) for name, wanted in plan.parameters.items()]
        inner = make_signature(plan.result, *plan.parameters.values(), *plan.outputs)
        if runtime.on_device(builder):
            if any(each in HALVES for each in (*signature.args, plan.choices.get("dtype"))):
                raise refuse(f"{key.primitive.name}: values of 16-bit floats are served on the CPU alone; use float32")
            own = context.compile_internal(builder, _device_function(key), inner, [*values, *outputs])
        else:
            made = context.compile_subroutine(builder, plan.function, inner, flags=_flags())
            own = context.call_internal(builder, made.fndesc, inner, [*values, *outputs])
        parts = outputs
        if plan.single:
            parts = [first_element(context, builder, *pair) for pair in zip(plan.outputs, outputs, strict=True)]
        if plan.result is not types.none:
            parts = [*parts, own_copy(context, builder, plan.result, own)]
        if not parts:
            return context.get_dummy_value()
        return parts[0] if len(parts) == 1 else context.make_tuple(builder, plan.returned, parts)

    return codegen


def _define(primitive: Primitive) -> None:
    class Template(AbstractTemplate):
        key = primitive.function
        prefer_literal = True

        def generic(self, args: Any, kws: Any) -> Any:
            """Type a call."""
            described = _signature_of(primitive)
            called = {own: other for other, own in _OTHER_NAMES.items() if other in kws and own in described.parameters}
            kws = {_OTHER_NAMES.get(name, name) if name in called.values() else name: kws[name] for name in kws}
            try:
                bound = described.bind(*args, **kws)
            except TypeError as error:
                plain = [each.replace(annotation=each.empty) for each in described.parameters.values()]
                shown = described.replace(parameters=plain, return_annotation=described.empty)
                raise refuse(f"{primitive.name}{shown}: {error}") from None
            omitted = tuple(name for name in described.parameters if name not in bound.arguments)
            ordered = tuple(bound.arguments.get(name, types.none) for name in described.parameters)
            self._key = resolve(primitive.name, ordered, omitted)
            # Numba orders keywords by a signature without keyword-only parameters.
            flat = [
                each.replace(kind=each.POSITIONAL_OR_KEYWORD, name=called.get(each.name, each.name))
                for each in described.parameters.values()
            ]
            return make_signature(self._key.plan.returned, *ordered).replace(pysig=described.replace(parameters=flat))

        def get_impl_key(self, sig: Any) -> Any:
            """Return what the code is found by."""
            return self._key

    Template.__name__ = f"Template_{primitive.name}"
    infer_global(primitive.function, types.Function(Template))


for _module in ("numba_reduce", "numba_scan", "numba_movement", "numba_sort", "numba_neighbours"):
    importlib.import_module(f"rocpy.cooperative.{_module}")
for _primitive in PRIMITIVES.values():
    _define(_primitive)
