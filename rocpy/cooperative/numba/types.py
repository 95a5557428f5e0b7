# SPDX-License-Identifier: MIT
"""Types of what kernels name: indices, groups, arrays of the thread and of the block, atomics."""

from __future__ import annotations

import functools
import inspect
import math
from typing import Any

from llvmlite import ir
from numba.core import cgutils, errors, types
from numba.core.datamodel import models
from numba.core.imputils import lower_constant, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr, infer_global, make_intrinsic_template
from numba.extending import intrinsic, overload, overload_attribute, overload_method, register_model, typeof_impl
from numba.np import arrayobj

from rocpy._messages.suggestions import did_you_mean
from rocpy.cooperative.api import device
from rocpy.cooperative.kernel.limits import MOST_PRIVATE_BYTES
from rocpy.cooperative.kernel.mode import current_mode
from rocpy.cooperative.numba import runtime
from rocpy.cooperative.numba.dtypes import dtype_names, dtype_of
from rocpy.cooperative.numba.groups import BLOCK, WARP, GroupType
from rocpy.cooperative.numba.llvm_types import BYTES, I1, I32, I64, VOID
from rocpy.cooperative.numba.runtime import WORDS, call, current

MOST_LANES = 64
# Elements of an array in a frame that are zeroed by one store, which LLVM splits into as many and then compares with
# each other: the time grows with the square of their number.
MOST_STORED = 64
NEEDS_64_LANES = "rocpy_coop_needs_64_lanes"  # a function that waves of 32 lanes lack
NO_MEMORY = (
    "memory is allocated here, which a GPU thread cannot do: use coop.local.array or coop.shared.array, and loops "
    "over elements in place of expressions of arrays"
)
NO_KEYWORD_ONLY = "which functions called from kernels cannot have: put it before the * of the signature"
MARK = "\N{WHITE RIGHT-POINTING SMALL TRIANGLE}"


def refuse(message: str) -> errors.TypingError:
    """Return a typing error whose text can be found again in what Numba makes of it."""
    return errors.TypingError(f"{MARK}{message}{MARK}")


class Index3Type(types.Type):
    """``coop.threadIdx`` and the like."""

    def __init__(self, name: str) -> None:
        self.word = WORDS[name]
        super().__init__(name=f"coop.{name}")


class NamespaceType(types.Type):
    """``coop.shared``, ``coop.local``, ``coop.atomic``: objects whose attributes are functions."""

    def __init__(self, value: Any) -> None:
        self.value = value
        super().__init__(name=repr(value))

    @property
    def key(self) -> Any:
        """What makes two of these equal."""
        return repr(self.value)


class ThreadDataType(types.Array):
    """An array of the thread's own, of a length that belongs to the type."""

    def __init__(self, dtype: types.Type, count: int) -> None:
        self.count = count
        super().__init__(dtype, 1, "C", name=f"ThreadData({dtype}, {count})")

    @property
    def key(self) -> Any:
        """What makes two of these equal."""
        return (*super().key, "ThreadData", self.count)


for _type in (Index3Type, NamespaceType):
    register_model(_type)(models.OpaqueModel)
register_model(ThreadDataType)(models.ArrayModel)


@typeof_impl.register(device.Index3)
def _typeof_index(value: device.Index3, _context: Any) -> types.Type:
    return Index3Type(value.name)


@typeof_impl.register(device._Arrays)
@typeof_impl.register(device._Atomics)
def _typeof_namespace(value: Any, _context: Any) -> types.Type:
    return NamespaceType(value)


@lower_constant(Index3Type)
@lower_constant(NamespaceType)
def _opaque_constant(context: Any, _builder: Any, _type: Any, _value: Any) -> Any:
    return context.get_dummy_value()


@lower_getattr_generic(NamespaceType)
def _namespace_attribute(context: Any, _builder: Any, _type: Any, _value: Any, _name: str) -> Any:
    return context.get_dummy_value()


@infer_getattr
class _NamespaceAttributes(AttributeTemplate):
    key = NamespaceType

    def generic_resolve(self, namespace: NamespaceType, name: str) -> types.Type | None:
        function = getattr(namespace.value, name, None)
        return None if function is None else self.context.resolve_value_type(function)


def _index_attribute(axis: int) -> None:
    @intrinsic
    def read(_typing: Any, index: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
            return builder.sext(runtime.load_word(builder, index.word + axis), I64)

        return types.int64(index), codegen

    @overload_attribute(Index3Type, "xyz"[axis])
    def attribute(_index: Any) -> Any:
        def get(_index: Any) -> Any:
            return read(_index)

        return get


for _axis in range(3):
    _index_attribute(_axis)


# Groups.


@intrinsic
def _block(_typing: Any) -> Any:
    def codegen(_context: Any, _builder: Any, _signature: Any, _arguments: Any) -> Any:
        return I32(0)

    return BLOCK(), codegen


_WHOLE = types.Omitted(0)


@intrinsic(prefer_literal=True)
def _warp(_typing: Any, width: Any = _WHOLE) -> Any:
    if not isinstance(width, (types.Integer, types.Omitted)):
        raise refuse(f"this_warp: width is {width}; it must be an integer, a power of two up to the warp size")
    literal = 0 if isinstance(width, types.Omitted) else getattr(width, "literal_value", None)

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        if literal is None:
            return _width_at_launch(builder, arguments[0])
        if literal == 0:
            return runtime.load_word(builder, WORDS["warp_size"])
        # Here, not where types are found, of which Numba keeps what it found for kernels of other warp sizes.
        _check_width(literal)
        if literal == MOST_LANES and runtime.on_device(builder):
            runtime.device_call(builder, NEEDS_64_LANES, VOID)
        return I32(literal)

    return WARP(types.int64 if literal is None else width), codegen


def _width_at_launch(builder: ir.IRBuilder, width: ir.Value) -> ir.Value:
    """Return a width that only the launch knows; on the CPU one that no warp has ends the launch here."""
    whole = runtime.load_word(builder, WORDS["warp_size"])
    # Wider than any warp stays so, and is not cut to its lower 32 bits.
    for beyond, limit in (("<", -(2**31)), (">", 2**31 - 1)):
        width = builder.select(builder.icmp_signed(beyond, width, I64(limit)), I64(limit), width)
    width = builder.trunc(width, I32)
    width = builder.select(builder.icmp_signed("==", width, I32(0)), whole, width)
    if not runtime.on_device(builder):
        call(builder, "rocpy_simt_group_size", current(builder), width)
    return width


def _check_width(width: int) -> None:
    mode = current_mode()
    most = mode.warp_size if mode else MOST_LANES
    if width < 0 or width & (width - 1):
        raise refuse(f"this_warp: width is {width}; it must be a power of two up to the warp size, {most}")
    if width > most:
        raise refuse(
            f"this_warp: width is {width}, and the warps of this kernel have {most} threads: "
            + ("at most 64 are possible" if most == MOST_LANES else "pass coop.jit(warp_size=64)")
        )


@overload(device.this_block)
def _this_block() -> Any:
    return lambda: _block()


@overload_method(GroupType, "rank")
def _group_rank(group: Any) -> Any:
    def implementation(group: Any) -> Any:
        return runtime.group_rank(group)

    return implementation


@overload_method(GroupType, "size")
def _group_size(group: Any) -> Any:
    def implementation(group: Any) -> Any:
        return runtime.group_size(group)

    return implementation


@overload(device.barrier)
def _barrier(group: Any) -> Any:
    if not isinstance(group, GroupType):
        raise refuse(f"barrier: group is {group}; pass coop.this_block() or coop.this_warp()")

    def implementation(group: Any) -> Any:
        return runtime.synchronize(group)

    return implementation


@overload(device.syncthreads)
def _syncthreads() -> Any:
    return lambda: runtime.synchronize(_block())


@overload(device.syncwarp)
def _syncwarp() -> Any:
    return lambda: runtime.synchronize(_warp(0))


def _grid_function(stub: Any, *, whole: bool) -> None:
    @intrinsic(prefer_literal=True)
    def function(_typing: Any, ndim: Any) -> Any:
        count = getattr(ndim, "literal_value", None)
        if count not in (1, 2, 3):
            raise refuse(f"{stub.__name__}: ndim must be the literal 1, 2 or 3")

        def codegen(context: Any, builder: Any, signature: Any, _arguments: Any) -> Any:
            def word(name: str, axis: int) -> Any:
                return builder.sext(runtime.load_word(builder, WORDS[name] + axis), I64)

            positions = []
            for axis in range(count):
                blocks = word("gridDim" if whole else "blockIdx", axis)
                position = builder.mul(blocks, word("blockDim", axis))
                positions.append(position if whole else builder.add(position, word("threadIdx", axis)))
            return positions[0] if count == 1 else context.make_tuple(builder, signature.return_type, positions)

        result = types.int64 if count == 1 else types.UniTuple(types.int64, count)
        return result(ndim), codegen

    share_template(stub, function)


_ATOMICS = frozenset(getattr(device._Atomics, name) for name in (*device.ATOMIC_OPERATIONS, "cas"))


def share_template(stub: Any, maker: Any) -> None:
    """Let the name that users see have the template of the intrinsic, whose code is part of the caller's."""
    name = f"{'atomic.' if stub in _ATOMICS else ''}{stub.__name__.replace('_array', '.array')}"
    described = inspect.signature(maker._defn)
    described = described.replace(parameters=list(described.parameters.values())[1:], return_annotation=described.empty)

    @functools.wraps(maker._defn)
    def definition(typing: Any, *arguments: Any, **named: Any) -> Any:
        try:
            described.bind(*arguments, **named)
        except TypeError as error:
            raise refuse(f"{name}({', '.join(described.parameters)}): {error}") from None
        return maker._defn(typing, *arguments, **named)

    infer_global(stub, types.Function(make_intrinsic_template(maker, definition, maker._name, prefer_literal=True)))


share_template(device.this_warp, _warp)
_grid_function(device.grid, whole=False)
_grid_function(device.gridsize, whole=True)


# Arrays.


def _shape_of(name: str, shape: types.Type) -> tuple[int, ...]:
    if isinstance(shape, types.IntegerLiteral):
        extents: tuple[Any, ...] = (shape.literal_value,)
    elif isinstance(shape, types.BaseTuple) and all(isinstance(each, types.IntegerLiteral) for each in shape):
        extents = tuple(each.literal_value for each in shape)
    else:
        raise refuse(
            f"{name}: the shape must be known when the kernel is compiled: an integer literal, a global constant or a "
            f"tuple of them; it is {shape}"
        )
    if any(extent < 0 for extent in extents):
        raise refuse(f"{name}: the shape is {extents}; extents must not be negative")
    return extents


def _element_of(name: str, dtype: types.Type) -> types.Type:
    result = dtype_of(dtype)
    if result is None:
        written = getattr(dtype, "literal_value", None)
        shown = dtype if written is None else repr(written)
        near = did_you_mean(written, dtype_names())
        raise refuse(f"{name}: dtype is {shown}{near}; pass a type such as np.float32 or np.int64")
    return result


def _zeroed(context: Any, builder: ir.IRBuilder, kind: ir.ArrayType) -> ir.Value:
    """Return memory for an array in the function's frame, which is zero when the function begins."""
    if kind.count <= MOST_STORED:
        return cgutils.alloca_once(builder, kind)
    with builder.goto_entry_block():
        memory = builder.alloca(kind)
        size = I64(context.get_abi_sizeof(kind))
        cgutils.memset(builder, builder.bitcast(memory, BYTES), size, 0)
    return memory


def frame_array(context: Any, builder: ir.IRBuilder, type_: types.Array, shape: tuple[int, ...]) -> ir.Value:
    """Return an array in the frame of the function that is being compiled: the same whenever that code runs."""
    element = context.get_data_type(type_.dtype)
    count = math.prod(shape)
    size = count * context.get_abi_sizeof(element)
    if size > MOST_PRIVATE_BYTES:
        raise refuse(
            f"an array of {size} bytes is created for each thread, and {MOST_PRIVATE_BYTES} are supported: make it "
            "smaller, or pass an array with a row for each thread"
        )
    memory = _zeroed(context, builder, ir.ArrayType(element, max(count, 1)))
    memory.align = 16
    return runtime.array_at(context, builder, type_, builder.bitcast(memory, element.as_pointer()), shape)


def poison_array(context: Any, builder: ir.IRBuilder, type_: types.Array, array: ir.Value, count: int) -> None:
    """Poison the elements of a contiguous array in debug mode."""
    first = data_of(context, builder, type_, array)
    wanted = builder.icmp_signed("!=", runtime.debug_word(builder), I32(0))
    with cgutils.if_unlikely(builder, wanted):
        runtime.tell_poisoned(builder)
        with cgutils.for_range(builder, I64(count)) as loop:
            builder.store(runtime.poison_value(context, type_.dtype), builder.gep(first, [loop.index]))


def stack_array(context: Any, builder: ir.IRBuilder, type_: types.Array, shape: tuple[int, ...]) -> ir.Value:
    """Return an array in the frame of the function that is being compiled; poisoned in debug mode."""
    array = frame_array(context, builder, type_, shape)
    poison_array(context, builder, type_, array, math.prod(shape))
    return array


def data_of(context: Any, builder: ir.IRBuilder, type_: types.Type, value: ir.Value) -> ir.Value:
    """Return the address of a structured value, or of the first element of an array."""
    return value if isinstance(type_, types.Record) else arrayobj.make_array(type_)(context, builder, value).data


def apart_from(
    context: Any, builder: ir.IRBuilder, type_: types.Type, value: ir.Value, outputs: list[ir.Value]
) -> ir.Value:
    """Return a value as it is before a call fills its outputs: a copy where it is what the call filled last time."""
    if not isinstance(type_, (ThreadDataType, types.Record)) or not outputs:
        return value
    own = data_of(context, builder, type_, value)
    address = builder.bitcast(own, BYTES)
    shared = I1(0)
    for each in outputs:
        shared = builder.or_(shared, builder.icmp_unsigned("==", address, builder.bitcast(each, BYTES)))
    kind = ir.ArrayType(own.type.pointee, getattr(type_, "count", 1))
    whole = builder.bitcast(own, kind.as_pointer())
    copy = cgutils.alloca_once(builder, kind, zfill=False)
    copy.align = 16
    with builder.if_then(shared, likely=False):
        cgutils.raw_memcpy(builder, copy, whole, I64(1), I64(context.get_abi_sizeof(kind)), align=1)
    chosen = builder.bitcast(builder.select(shared, copy, whole), own.type)
    if isinstance(type_, types.Record):
        return chosen
    return runtime.array_at(context, builder, type_, chosen, (type_.count,))


def first_element(context: Any, builder: ir.IRBuilder, type_: types.Array, array: ir.Value) -> ir.Value:
    """Return element 0 of an array; of structured values the place, as Numba does."""
    data = arrayobj.make_array(type_)(context, builder, array).data
    return arrayobj.load_item(context, builder, type_, data)


def own_copy(context: Any, builder: ir.IRBuilder, type_: types.Type, value: ir.Value) -> ir.Value:
    """Return a value whose structured parts lie in the frame of the function that is being compiled."""
    if isinstance(type_, types.Record):
        copy = cgutils.alloca_once(builder, context.get_data_type(type_))
        copy.align = 16
        builder.store(builder.load(value), copy)
        return copy
    if isinstance(type_, types.BaseTuple) and any(isinstance(each, types.Record) for each in type_):
        parts = cgutils.unpack_tuple(builder, value, count=len(type_))
        copies = [own_copy(context, builder, each, part) for each, part in zip(type_, parts, strict=True)]
        return context.make_tuple(builder, type_, copies)
    return value


@intrinsic(prefer_literal=True)
def _local(_typing: Any, shape: Any, dtype: Any) -> Any:
    extents = _shape_of("local.array", shape)
    result = types.Array(_element_of("local.array", dtype), len(extents), "C")

    def codegen(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        return stack_array(context, builder, result, extents)

    return result(shape, dtype), codegen


@intrinsic(prefer_literal=True)
def _thread_data(_typing: Any, count: Any, dtype: Any) -> Any:
    extents = _shape_of("ThreadData", count)
    if len(extents) != 1 or extents[0] < 1:
        raise refuse(f"ThreadData: count is {extents}; it must be one number, 1 or more")
    result = ThreadDataType(_element_of("ThreadData", dtype), extents[0])

    def codegen(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        return stack_array(context, builder, result, extents)

    return result(count, dtype), codegen


@intrinsic(prefer_literal=True)
def _shared(_typing: Any, shape: Any, dtype: Any) -> Any:
    extents = _shape_of("shared.array", shape)
    result = types.Array(_element_of("shared.array", dtype), len(extents), "C")

    def codegen(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        size = context.get_abi_sizeof(context.get_data_type(result.dtype))
        if extents == (0,):
            pointer, total = runtime.dynamic_shared(builder)
            return runtime.array_at(context, builder, result, pointer, [builder.sdiv(total, I64(size))])
        count = 1
        for extent in extents:
            count *= extent
        if runtime.on_device(builder):
            return runtime.array_at(
                context, builder, result, runtime.lds(builder, "rocpy_shared", count * size), extents
            )
        # The address of this variable is the array's name: unique, and the same in each thread.
        key = cgutils.add_global_variable(builder.module, I64, builder.module.get_unique_name("rocpy_shared"))
        key.linkage = "internal"
        key.initializer = I64(0)
        pointer = call(builder, "rocpy_simt_shared", current(builder), builder.bitcast(key, BYTES), I64(count * size))
        return runtime.array_at(context, builder, result, pointer, extents)

    return result(shape, dtype), codegen


share_template(device.shared_array, _shared)
share_template(device.local_array, _local)
share_template(device.ThreadData, _thread_data)
