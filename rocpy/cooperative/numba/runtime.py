# SPDX-License-Identifier: MIT
"""The fiber runtime as compiled kernels see it: functions by name, a thread's state by offset, slots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.target_extension import current_target
from numba.extending import intrinsic
from numba.np import arrayobj

from rocpy.cooperative.kernel.limits import MOST_BLOCKS, MOST_THREADS
from rocpy.cooperative.numba.dtypes import dtype_of
from rocpy.cooperative.numba.groups import BLOCK, WARP, GroupType
from rocpy.cooperative.numba.llvm_types import BYTES, I8, I32, I64, TRIPLE, VOID
from rocpy.cooperative.numba.memory.access import READ, bits_of, kind_of_store

DEBUGGING = "rocpy_simt_debugging"  # known where the kernel is linked: see cpu/entry.py
LDS = 3  # address space of shared memory on AMD GPUs

_FUNCTIONS: dict[str, tuple[ir.Type, tuple[ir.Type, ...]]] = {
    "rocpy_simt_current": (BYTES, ()),
    "rocpy_simt_barrier": (VOID, (BYTES, I32)),
    "rocpy_simt_slots": (BYTES, (BYTES, I32, I64)),
    "rocpy_simt_arrive": (I32, (BYTES, I32)),
    "rocpy_simt_release": (VOID, (BYTES, I32)),
    "rocpy_simt_group_size": (I32, (BYTES, I32)),
    "rocpy_simt_shared": (BYTES, (BYTES, BYTES, I64)),
    "rocpy_simt_dynamic_shared": (BYTES, (BYTES,)),
    "rocpy_simt_access": (VOID, (BYTES, BYTES, I64, I32)),
    "rocpy_simt_stored": (VOID, (BYTES, BYTES, I64, I32)),
    "rocpy_simt_poisoned": (VOID, (BYTES,)),
    "rocpy_simt_divided_by_zero": (VOID, (BYTES,)),
    "rocpy_simt_raise": (VOID, (BYTES, I32, BYTES)),
    DEBUGGING: (I32, ()),
}

# Words of rocpy_simt_state (csrc/simt/simt.h).
WORDS = {
    "threadIdx": 0,
    "blockIdx": 3,
    "blockDim": 6,
    "gridDim": 9,
    "rank": 12,
    "size": 13,
    "warp_size": 14,
    "debug": 15,
}
_EXTENTS = ("blockDim", "gridDim", "size", "warp_size")
_IN_BLOCKS = ("threadIdx", "blockDim", "rank", "size", "warp_size")


def _ranges() -> dict[int, tuple[int, int]]:
    """Return what each word lies between, for the optimizer: an index that cannot be negative is not looked at."""
    axes = [(name, WORDS[name] + axis) for name in WORDS for axis in range(3 if name.endswith(("Idx", "Dim")) else 1)]
    # The end of a range is not of it, and may wrap: all positive numbers.
    return {
        word: (int(name in _EXTENTS), MOST_THREADS + 1 if name in _IN_BLOCKS else -(MOST_BLOCKS + 1))
        for name, word in axes
    }


RANGES = _ranges()
DYNAMIC_SHARED_OFFSET = 64
SITE_OFFSET = 72
FRAME_OFFSET = 80
UNDEFINED_OFFSET = 88
STATE_BYTES = 96

# Bits of undefined results in debug mode (csrc/simt/simt.h).
POISON = {
    types.float16: 0x7EAD,
    types.float32: 0x7FC0DEAD,
    types.float64: 0x7FF81BD5A0000000,
}


# Targets whose functions are linked one by one, each with what it names of the device library: told the names.
LINKERS: dict[str, Callable[[str], None]] = {}


def _named_in_code(name: str) -> None:
    linker = LINKERS.get(current_target())
    if linker is not None:
        linker(name)


def on_device(builder: ir.IRBuilder) -> bool:
    """Return whether the code is for an AMD GPU."""
    return builder.module.triple == TRIPLE


def device_call(builder: ir.IRBuilder, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
    """Call a function of the device library."""
    _named_in_code(name)
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def call(builder: ir.IRBuilder, name: str, *arguments: ir.Value) -> ir.Value:
    """Call a function of the runtime; the device library's, which has no states, in code for AMD GPUs."""
    result, parameters = _FUNCTIONS[name]
    if on_device(builder):
        return device_call(builder, name.replace("_simt_", "_device_"), result, *arguments[1:])
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, parameters), name)
    function.attributes.add("nounwind")
    if name in ("rocpy_simt_current", DEBUGGING):
        function.attributes.add("readnone")  # so that it is called once in a kernel
    values = [builder.bitcast(v, t) if t == BYTES else v for v, t in zip(arguments, parameters, strict=True)]
    return builder.call(function, values)


def current(builder: ir.IRBuilder) -> ir.Value:
    """Return the state of the running thread; nothing on an AMD GPU."""
    if on_device(builder):
        return ir.Constant(BYTES, None)
    return call(builder, "rocpy_simt_current")


def load_word(builder: ir.IRBuilder, index: int) -> ir.Value:
    """Return a 32-bit word of the running thread's state."""
    if on_device(builder):
        return device_call(builder, "rocpy_device_word", I32, I32(index))
    words = builder.bitcast(current(builder), I32.as_pointer())
    word = builder.load(builder.gep(words, [I32(index)]))
    word.set_metadata("range", builder.module.add_metadata(list(map(I32, RANGES[index]))))
    return word


def debug_word(builder: ir.IRBuilder) -> ir.Value:
    """Return 1 in debug mode, else 0."""
    if on_device(builder):
        return load_word(builder, WORDS["debug"])
    return call(builder, DEBUGGING)


def field(builder: ir.IRBuilder, offset: int, type_: ir.Type) -> ir.Value:
    """Return a pointer to what lies at an offset of the running thread's state."""
    return builder.bitcast(builder.gep(current(builder), [I32(offset)]), type_.as_pointer())


def dynamic_shared(builder: ir.IRBuilder) -> tuple[ir.Value, ir.Value]:
    """Return the block's dynamic shared memory, and its bytes."""
    pointer = call(builder, "rocpy_simt_dynamic_shared", current(builder))
    if on_device(builder):
        return pointer, device_call(builder, "rocpy_device_dynamic_shared_bytes", I64)
    return pointer, builder.load(field(builder, DYNAMIC_SHARED_OFFSET, I64))


def lds(builder: ir.IRBuilder, name: str, size: int, *, external: bool = False) -> ir.Value:
    """Return shared memory of the block of an AMD GPU; what is external gets its place when the kernel is whole."""
    module = builder.module
    if external:
        _named_in_code(name)
    else:
        name = module.get_unique_name(name)
    variable = module.globals.get(name)
    if variable is None:
        variable = ir.GlobalVariable(module, ir.ArrayType(I8, size), name, addrspace=LDS)
        if not external:
            variable.linkage, variable.initializer = "internal", ir.Constant(variable.type.pointee, ir.Undefined)
            variable.align = 16
    return builder.addrspacecast(variable, BYTES)


def array_at(context: Any, builder: ir.IRBuilder, type_: types.Array, pointer: ir.Value, shape: Any) -> ir.Value:
    """Return a C-contiguous Numba array over memory that it does not own."""
    element = context.get_data_type(type_.dtype)
    size = context.get_abi_sizeof(element)
    intp = context.get_value_type(types.intp)
    extents = [intp(extent) if isinstance(extent, int) else extent for extent in shape]
    strides: list[ir.Value] = []
    step = intp(size)
    for extent in reversed(extents):
        strides.insert(0, step)
        step = builder.mul(step, extent)
    array = arrayobj.make_array(type_)(context, builder)
    arrayobj.populate_array(
        array,
        data=builder.bitcast(pointer, element.as_pointer()),
        shape=cgutils.pack_array(builder, extents, intp),
        strides=cgutils.pack_array(builder, strides, intp),
        itemsize=intp(size),
        meminfo=None,
    )
    return array._getvalue()


@intrinsic
def group_rank(_typing: Any, group: Any) -> Any:
    """Return the thread's rank in its group."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        rank = load_word(builder, WORDS["rank"])
        if group is WARP:
            rank = builder.and_(rank, builder.sub(arguments[0], I32(1)))
        return builder.sext(rank, I64)

    return types.int64(group), codegen


@intrinsic
def group_size(_typing: Any, group: Any) -> Any:
    """Return the number of threads of the group."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        if group is BLOCK:
            size = load_word(builder, WORDS["size"])
        else:
            size = call(builder, "rocpy_simt_group_size", current(builder), arguments[0])
        return builder.sext(size, I64)

    return types.int64(group), codegen


@intrinsic(prefer_literal=True)
def open_slots(_typing: Any, group: Any, dtype: Any, count: Any) -> Any:
    """Begin a collective: return the group's slots, `count` elements for each thread, thread after thread."""
    result = types.Array(dtype_of(dtype), 1, "C")
    literal = getattr(count, "literal_value", None)

    def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        width, _, each = arguments
        state = current(builder)
        size = context.get_abi_sizeof(context.get_data_type(result.dtype))
        if on_device(builder):
            pointer = device_slots(builder, group, width, size * literal)
        else:
            pointer = call(builder, "rocpy_simt_slots", state, width, builder.mul(each, I64(size)))
        if group is BLOCK:
            threads = load_word(builder, WORDS["size"])
        else:
            threads = call(builder, "rocpy_simt_group_size", state, width)
        return array_at(context, builder, result, pointer, [builder.mul(builder.sext(threads, I64), each)])

    # The literal stays in the signature, by which Numba finds this code again: other counts have code of their own.
    return result(group, dtype, types.int64 if literal is None else count), codegen


def device_slots(builder: ir.IRBuilder, group: GroupType, width: ir.Value, each: int) -> ir.Value:
    """Return the group's part of the block's slots, of `each` bytes a thread, when all may write there."""
    call(builder, "rocpy_simt_barrier", current(builder), width)
    pointer = lds(builder, f"rocpy_slots_{each}", 0, external=True)
    if group is BLOCK:
        return pointer
    first = builder.and_(load_word(builder, WORDS["rank"]), builder.not_(builder.sub(width, I32(1))))
    return builder.gep(pointer, [builder.mul(builder.sext(first, I64), I64(each))])


def view_at(context: Any, builder: Any, signature: Any, array: Any, start: ir.Value, count: ir.Value) -> ir.Value:
    """Return `count` elements of the result's type over the memory of an array, from byte `start` on."""
    data = arrayobj.make_array(signature.args[0])(context, builder, array).data
    pointer = builder.gep(builder.bitcast(data, BYTES), [start])
    return array_at(context, builder, signature.return_type, pointer, [count])


@intrinsic
def arrive(_typing: Any, group: Any) -> Any:
    """Wait for the group; True in the one thread that sees every slot while the others still wait."""

    def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        if on_device(builder):  # the others wait in `await_leader`
            call(builder, "rocpy_simt_barrier", current(builder), arguments[0])
            rank = load_word(builder, WORDS["rank"])
            if group is WARP:
                rank = builder.and_(rank, builder.sub(arguments[0], I32(1)))
            return builder.icmp_signed("==", rank, I32(0))
        leads = call(builder, "rocpy_simt_arrive", current(builder), arguments[0])
        return builder.icmp_signed("!=", leads, I32(0))

    return types.boolean(group), codegen


@intrinsic
def release(_typing: Any, group: Any) -> Any:
    """Let the others go on; called by the thread for which `arrive` was True, and followed by `await_leader` in all."""

    def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        if not on_device(builder):
            call(builder, "rocpy_simt_release", current(builder), arguments[0])
        return context.get_dummy_value()

    return types.none(group), codegen


@intrinsic
def await_leader(_typing: Any, group: Any) -> Any:
    """Wait, on a GPU, for the thread that was first released; on the CPU the others wait in `arrive`."""

    def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        if on_device(builder):
            call(builder, "rocpy_simt_barrier", current(builder), arguments[0])
        return context.get_dummy_value()

    return types.none(group), codegen


@intrinsic
def arrive_and_wait(_typing: Any, group: Any) -> Any:
    """Wait until every slot is written."""

    def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        state, width = current(builder), arguments[0]
        if on_device(builder):
            call(builder, "rocpy_simt_barrier", state, width)
        else:
            leads = builder.icmp_signed("!=", call(builder, "rocpy_simt_arrive", state, width), I32(0))
            with builder.if_then(leads):
                call(builder, "rocpy_simt_release", state, width)
        return context.get_dummy_value()

    return types.none(group), codegen


@intrinsic
def synchronize(_typing: Any, group: Any) -> Any:
    """Wait at the group's barrier."""

    def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        call(builder, "rocpy_simt_barrier", current(builder), arguments[0])
        return context.get_dummy_value()

    return types.none(group), codegen


@intrinsic
def debugging(_typing: Any) -> Any:
    """Return whether the launch is in debug mode."""

    def codegen(_context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        return builder.icmp_signed("!=", debug_word(builder), I32(0))

    return types.boolean(), codegen


@intrinsic
def note_access(_typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Tell the debug mode that a primitive writes a value to an array of the kernel or, with None, reads from it."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if on_device(builder):
            return context.get_dummy_value()
        held = arrayobj.make_array(array)(context, builder, arguments[0])
        position = context.cast(builder, arguments[1], signature.args[1], types.intp)
        pointer = cgutils.get_item_pointer(context, builder, array, held, [position], wraparound=False)
        state, size = current(builder), context.get_abi_sizeof(pointer.type.pointee)
        writes = not isinstance(value, types.NoneType)
        kind = kind_of_store(builder, pointer, arguments[2]) if writes else I32(READ)
        call(builder, "rocpy_simt_access", state, pointer, I64(size), kind)
        if writes:
            call(builder, "rocpy_simt_stored", state, pointer, bits_of(builder, arguments[2]), I32(size))
        return context.get_dummy_value()

    return types.none(array, index, value), codegen


def poison_value(context: Any, dtype: types.Type) -> ir.Value:
    """Return the constant that stands for an undefined result."""
    data = context.get_data_type(dtype)
    if dtype in POISON:
        return ir.Constant(ir.IntType(dtype.bitwidth), POISON[dtype]).bitcast(data)
    if isinstance(dtype, types.Complex):
        part = poison_value(context, dtype.underlying_float)
        return ir.Constant.literal_struct([part, part])
    if isinstance(dtype, types.Record):
        return ir.Constant(data, bytearray(b"\xcd" * dtype.size))
    if isinstance(dtype, types.Integer):
        return ir.Constant(data, int.from_bytes(b"\xcd" * (dtype.bitwidth // 8), "little"))
    return ir.Constant(data, None)


def tell_poisoned(builder: ir.IRBuilder, *, result: bool = False) -> None:
    """Tell the debug mode that there are undefined values in the block, and whether the thread's result is one."""
    if not on_device(builder):
        call(builder, "rocpy_simt_poisoned", current(builder))
        if result:
            builder.store(I32(1), field(builder, UNDEFINED_OFFSET, I32))


@intrinsic
def poison(_typing: Any, dtype: Any) -> Any:
    """Return the value that stands for an undefined result of the type."""
    result = dtype_of(dtype)

    def codegen(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
        tell_poisoned(builder, result=True)
        if isinstance(result, types.Record):
            return cgutils.global_constant(builder, "rocpy_poison", poison_value(context, result))
        return ir.Constant(ir.IntType(1), 0) if result == types.boolean else poison_value(context, result)

    return result(dtype), codegen
