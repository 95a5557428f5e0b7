# SPDX-License-Identifier: MIT
"""Makes what Numba needs out of the table of primitives: a typing rule and code for each call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numba.core import types
from numba.core.compiler import Flags
from numba.core.typing import signature as make_signature
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import lower_builtin

from rocpy.cooperative.api.table import PRIMITIVES, Primitive
from rocpy.cooperative.numba import atomics, movement, neighbours, reduce, runtime, scan, sort
from rocpy.cooperative.numba.half import HALVES
from rocpy.cooperative.numba.llvm_types import I64
from rocpy.cooperative.numba.plans import BUILDERS, DEVICE, Call, Plan
from rocpy.cooperative.numba.types import (
    apart_from,
    data_of,
    first_element,
    frame_array,
    own_copy,
    poison_array,
    refuse,
)

_ = (atomics, movement, neighbours, reduce, scan, sort)  # register what kernels may call

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


def _cast(context: Any, builder: Any, value: Any, held: types.Type, wanted: types.Type) -> Any:
    """Return an argument as the plan takes it; a number of items that no int64 has stays larger than any other."""
    cast = context.cast(builder, value, held, wanted)
    if wanted is types.int64 and types.unliteral(held) is types.uint64:
        return builder.select(builder.icmp_signed("<", cast, I64(0)), I64(2**63 - 1), cast)
    return cast


def _codegen(key: Implementation) -> Callable[..., Any]:
    plan, names = key.plan, key.names

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        outputs = [frame_array(context, builder, each, (each.count,)) for each in plan.outputs]
        filled = [data_of(context, builder, *pair) for pair in zip(plan.outputs, outputs, strict=True)]
        typed_arguments = dict(zip(names, zip(arguments, signature.args, strict=True), strict=True))
        values = [
            apart_from(context, builder, wanted, _cast(context, builder, *typed_arguments[name], wanted), filled)
            for name, wanted in plan.parameters.items()
        ]
        for kind, output in zip(plan.outputs, outputs, strict=True):
            poison_array(context, builder, kind, output, kind.count)
        inner = make_signature(plan.result, *plan.parameters.values(), *plan.outputs)
        if runtime.on_device(builder):
            if any(each in HALVES for each in (*signature.args, plan.choices.get("dtype"))):
                raise refuse(f"{key.primitive.name}: 16-bit floats are supported on the CPU only; use float32")
            own = context.compile_internal(builder, _device_function(key), inner, [*values, *outputs])
        else:
            compiled = context.compile_subroutine(builder, plan.function, inner, flags=_flags())
            own = context.call_internal(builder, compiled.fndesc, inner, [*values, *outputs])
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


for _primitive in PRIMITIVES.values():
    _define(_primitive)
