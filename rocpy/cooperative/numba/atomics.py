# SPDX-License-Identifier: MIT
"""Atomic operations on elements of arrays, whose indices mean what they mean in ordinary indexing."""

from __future__ import annotations

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np import arrayobj

from rocpy.cooperative.api import device
from rocpy.cooperative.numba.half import BFloat16, bfloat16, rounded, widened
from rocpy.cooperative.numba.llvm_types import I16
from rocpy.cooperative.numba.types import refuse, share_template

_RMW = {"add": "add", "sub": "sub", "and_": "and", "or_": "or", "xor": "xor", "exch": "xchg"}


def _element_pointer(context: Any, builder: Any, array_type: Any, array: Any, index_type: Any, index: Any) -> Any:
    view = arrayobj.make_array(array_type)(context, builder, array)
    index_types, indices = [index_type], [index]
    if isinstance(index_type, types.BaseTuple):
        index_types = list(index_type)
        indices = cgutils.unpack_tuple(builder, index, count=len(index_type))
    extents = cgutils.unpack_tuple(builder, view.shape, count=array_type.ndim)
    positions = [
        # A negative index counts from the end; one of an unsigned type is never negative.
        arrayobj.fix_integer_index(context, builder, each, position, extent)
        for each, position, extent in zip(index_types, indices, extents, strict=True)
    ]
    # Indices are checked in debug mode as those of ordinary accesses are.
    return cgutils.get_item_pointer(
        context, builder, array_type, view, positions, wraparound=False, boundscheck=context.enable_boundscheck
    )


def _rmw_name(name: str, dtype: types.Type) -> str:
    if name in ("max", "min"):
        if isinstance(dtype, types.Float):
            return "f" + name
        return name if getattr(dtype, "signed", False) else "u" + name
    if isinstance(dtype, types.Float) and name in ("add", "sub"):
        return "f" + name
    return _RMW[name]


def _change_bfloat16(builder: Any, name: str, pointer: Any, value: Any) -> Any:
    """Change an element in a loop, since no instruction has the type; return what it was."""
    begin, loop, end = builder.block, builder.append_basic_block("change"), builder.append_basic_block("changed")
    builder.branch(loop)
    builder.position_at_end(loop)
    expected = builder.phi(I16)
    expected.add_incoming(I16(0), begin)
    old, new = widened(builder, expected), widened(builder, value)
    if name in ("add", "sub"):
        changed = rounded(builder, builder.fadd(old, new) if name == "add" else builder.fsub(old, new))
    else:
        # As for other floats: a number comes before NaN.
        better = builder.fcmp_ordered(">" if name == "max" else "<", new, old)
        changed = builder.select(builder.or_(better, builder.fcmp_unordered("uno", old, old)), value, expected)
    result = builder.cmpxchg(pointer, expected, changed, "monotonic", "monotonic")
    seen = builder.extract_value(result, 0)
    expected.add_incoming(seen, loop)
    builder.cbranch(builder.extract_value(result, 1), end, loop)
    builder.position_at_end(end)
    return seen


def _define(name: str) -> None:
    @intrinsic
    def function(_typing: Any, array: Any, index: Any, value: Any) -> Any:
        index = _check(name, array, index, value)
        element = array.dtype

        def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            pointer = _element_pointer(context, builder, array, arguments[0], index, arguments[1])
            if element == bfloat16 and name != "exch":
                return _change_bfloat16(builder, name, pointer, arguments[2])
            return builder.atomic_rmw(_rmw_name(name, element), pointer, arguments[2], "monotonic")

        return element(array, index, element), codegen

    share_template(getattr(device._Atomics, name), function)


def _check(name: str, array: Any, index: Any, *values: Any) -> types.Type:
    """Refuse what no atomic operation takes; return the type that the index is cast to."""
    if not isinstance(array, types.Array) or not isinstance(array.dtype, (types.Integer, types.Float, BFloat16)):
        raise refuse(f"atomic.{name}: the array is {array}; it must have integer or floating-point elements")
    if not array.mutable:
        raise refuse(f"atomic.{name}: the array is read-only")
    if isinstance(array.dtype, (types.Float, BFloat16)) and name in ("and_", "or_", "xor"):
        raise refuse(f"atomic.{name}: the elements are {array.dtype}; bits are changed in integers only")
    parts = tuple(index) if isinstance(index, types.BaseTuple) else (index,)
    for part in parts:
        if not isinstance(part, (types.Integer, types.Boolean)):
            raise refuse(
                f"atomic.{name}: the index is {index}; it must be an integer, or a tuple of as many as the array has "
                "dimensions"
            )
    if len(parts) != array.ndim:
        raise refuse(f"atomic.{name}: {len(parts)} indices for an array of {array.ndim} dimensions")
    for value in values:
        if not isinstance(value, (types.Number, types.Boolean)):
            raise refuse(f"atomic.{name}: the value is {value}; it must be a number")
    known = [types.intp if isinstance(part, types.Boolean) else part for part in parts]  # False is 0, True is 1
    return types.BaseTuple.from_types(known) if isinstance(index, types.BaseTuple) else known[0]


for _name in device.ATOMIC_OPERATIONS:
    _define(_name)


@intrinsic
def _cas(_typing: Any, array: Any, index: Any, expected: Any, value: Any) -> Any:
    index = _check("cas", array, index, expected, value)
    element = array.dtype
    if not isinstance(element, types.Integer):
        raise refuse(f"atomic.cas: the elements are {element}; only integers are compared and set")

    def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        pointer = _element_pointer(context, builder, array, arguments[0], index, arguments[1])
        exchanged = builder.cmpxchg(pointer, arguments[2], arguments[3], "monotonic", "monotonic")
        return builder.extract_value(exchanged, 0)

    return element(array, index, element, element), codegen


share_template(device._Atomics.cas, _cas)
