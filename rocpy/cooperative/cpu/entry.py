# SPDX-License-Identifier: MIT
"""Makes machine code of a kernel that Numba has compiled: its entry reads arguments, and what it calls is in line."""

from __future__ import annotations

import uuid
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.environment import lookup_environment
from numba.np import arrayobj

from rocpy.cooperative.cpu.assembly import bring_in_line
from rocpy.cooperative.cpu.library import ENVIRONMENTS
from rocpy.cooperative.cpu.loops import work_item_loops
from rocpy.cooperative.cpu.machine_code import Compiled, Form, undefined_symbols
from rocpy.cooperative.cpu.resumable import resumable
from rocpy.cooperative.kernel.limits import MOST_PRIVATE_BYTES
from rocpy.cooperative.numba.llvm_types import BYTES, I32, I64, VOID
from rocpy.cooperative.numba.memory.frames import frame_bytes
from rocpy.cooperative.numba.memory.writes import WRITTEN
from rocpy.cooperative.numba.runtime import DEBUGGING, call
from rocpy.errors import OutOfMemoryError

_OTHER_BYTES = 16384  # of a stack, beside local arrays
_ENVIRONMENT = "_ZN08NumbaEnv"  # what Numba's names of a function's environment begin with
_DYNAMIC_GLOBALS = "numba.dynamic.globals"  # and those of addresses, as of constant arrays of more than 1 MB
_PICKLED = ".const.pickledata."  # and those of exceptions, without what only a launch knows
_BY_VALUE = "numba.cloudpickle"  # in what is pickled: makes a class that is no module's, or of __main__


def machine_code(result: Any, arguments: tuple[types.Type, ...], name: str, *, together: bool) -> Compiled:
    """Return the machine code of a kernel.

    Parameters
    ----------
    result
        What Numba made of the kernel.
    arguments
        Types of its arguments.
    name
        Of the entry. Code that has classes pickled by value gets a longer one, which is unique: another kernel of equal
        contents raises classes of its own.
    together
        Whether its threads may run in any form: else each on a fiber of its own.
    """
    codegen = result.library.codegen
    linked = result.library._get_module_for_linking()
    has_classes = any(_BY_VALUE in str(each) for each in linked.global_variables if each.name.startswith(_PICKLED))
    if has_classes:
        name = f"{name}_{uuid.uuid4().hex}"
    written = codegen._create_empty_module(name)
    _write_entry(result, written, arguments, name)
    if together:
        _write_no_debugging(written)
    module = llvm.parse_assembly(cgutils.normalize_ir_text(str(written)))
    module.link_in(linked, preserve=True)
    module = _told_of_allocations(module)
    environments = _rename_environments(module, name)
    has_addresses = any(each.name.startswith(_DYNAMIC_GLOBALS) for each in module.global_variables)
    for each in [*module.functions, *module.global_variables]:
        if not each.is_declaration and each.name != name and each.name not in environments:
            each.linkage = llvm.Linkage.internal
    form = Form.FIBERS
    if together:
        bring_in_line(module)
    _optimize(codegen, module, vectors=not together)
    if together:
        for candidate, make in ((Form.LOOPS, work_item_loops), (Form.TURNS, resumable)):
            text = make(module, name)
            if text is not None:
                form = candidate
                module = llvm.parse_assembly(text)
                module.verify()
                break
        _optimize(codegen, module)
    code = codegen._tm.emit_object(module)
    final = str(module)
    used = {symbol: own for symbol, own in environments.items() if final.count(symbol) > 1}  # where it is defined, too
    ENVIRONMENTS.update(used)
    return Compiled(
        name,
        code,
        form,
        undefined_symbols(code),
        _stack_bytes(module),
        result.metadata[WRITTEN].written,
        tuple(used),
        portable=not has_classes and not has_addresses and not any(own.consts for own in used.values()),
    )


def _rename_environments(module: Any, name: str) -> dict[str, Any]:
    """Name the environments of functions after the entry, whose name is unique, and return them by their new names.

    Numba's names of them count the functions of one process, in another one they are those of other functions.
    """
    environments: dict[str, Any] = {}
    for each in module.global_variables:
        own = lookup_environment(each.name) if each.name.startswith(_ENVIRONMENT) else None
        if own is not None:
            each.name = f"{name}_environment_{len(environments)}_"
            environments[each.name] = own
    return environments


# Of Numba's runtime: what arrays lie in, and what frees it.
_ALLOCATE, _FREE = "NRT_MemInfo_alloc_aligned", "NRT_MemInfo_call_dtor"
_TELLING = f"""
define internal ptr @rocpy_allocate(i64 %bytes, i32 %align) {{
  %memory = call ptr @{_ALLOCATE}(i64 %bytes, i32 %align)
  call void @rocpy_kernel_allocated(ptr %memory, ptr @{_FREE})
  ret ptr %memory
}}
define internal void @rocpy_free(ptr %memory) {{
  call void @rocpy_kernel_freed(ptr %memory)
  call void @{_FREE}(ptr %memory)
  ret void
}}
"""
# Code that copies operands of whole arrays declares them, too.
_TOLD = {"rocpy_kernel_allocated": "ptr, ptr", "rocpy_kernel_freed": "ptr"}
_CALLS = ((f"call ptr @{_ALLOCATE}(", "call ptr @rocpy_allocate("), (f"call void @{_FREE}(", "call void @rocpy_free("))


def _told_of_allocations(module: Any) -> Any:
    """Return a module that tells the runtime of arrays that its functions allocate and free."""
    text = str(module)
    if _CALLS[0][0] not in text or f"@{_FREE}(" not in text:
        return module
    for old, new in _CALLS:
        text = text.replace(old, new)
    missing = [name for name in _TOLD if f"declare void @{name}(" not in text]
    declarations = "".join(f"declare void @{name}({_TOLD[name]})\n" for name in missing)
    return llvm.parse_assembly(text + _TELLING + declarations)


def _stack_bytes(module: Any) -> int:
    """Return the stack that a thread needs, as its local arrays do not go by what the user knew of stacks."""
    used = frame_bytes(module)
    if used > MOST_PRIVATE_BYTES:
        raise OutOfMemoryError(
            f"the kernel's local arrays have {used} bytes per thread, and {MOST_PRIVATE_BYTES} are supported: make "
            "them smaller, or pass an array with a row for each thread"
        )
    return used + _OTHER_BYTES


def _optimize(codegen: Any, module: Any, *, vectors: bool = True) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = vectors
    builder = llvm.create_pass_builder(codegen._tm, options)
    builder.getModulePassManager().run(module, builder)


def _write_entry(result: Any, module: ir.Module, arguments: tuple[types.Type, ...], name: str) -> None:
    """Write a function of packed arguments and a thread's state that calls the kernel and reports its exception."""
    context = result.target_context
    function = ir.Function(module, ir.FunctionType(VOID, [BYTES, BYTES]), name)
    packed, state = function.args
    packed.name, state.name = "arguments", "state"
    builder = ir.IRBuilder(function.append_basic_block("begin"))
    words = _Words(context, builder, packed)
    values = [words.take(each) for each in arguments]
    callee = context.declare_function(module, result.fndesc)
    # In line: else its arguments go by the stack for each thread.
    status, _ = context.call_conv.call_function(
        builder, callee, result.signature.return_type, arguments, values, attrs=("alwaysinline",)
    )
    with cgutils.if_unlikely(builder, status.is_error):
        call(builder, "rocpy_simt_raise", state, status.code, status.excinfoptr)
        builder.unreachable()
    builder.ret_void()


def _write_no_debugging(module: ir.Module) -> None:
    """Write what tells the code that it is not in debug mode, so that nothing of that mode is left in it."""
    function = ir.Function(module, ir.FunctionType(I32, []), DEBUGGING)
    function.attributes.add("alwaysinline")
    ir.IRBuilder(function.append_basic_block()).ret(I32(0))


class _Words:
    """Reads arguments in the order that _simt.cpp packs them in."""

    def __init__(self, context: Any, builder: Any, packed: ir.Value) -> None:
        self._context, self._builder, self._packed = context, builder, packed
        self._next = 0

    def _next_argument(self, type_: ir.Type, words: int) -> ir.Value:
        pointer = self._builder.gep(self._packed, [I64(8 * self._next)])
        self._next += words
        return self._builder.bitcast(pointer, type_.as_pointer())

    def _word(self, type_: ir.Type) -> ir.Value:
        return self._builder.load(self._next_argument(type_, 1))

    def take(self, type_: types.Type) -> ir.Value:
        """Return the next argument."""
        context, builder = self._context, self._builder
        if isinstance(type_, types.BaseTuple):
            return context.make_tuple(builder, type_, [self.take(each) for each in type_])
        if isinstance(type_, types.Record):
            return self._word(context.get_value_type(type_))
        if isinstance(type_, types.Array):
            array = arrayobj.make_array(type_)(context, builder)
            data = self._word(array.data.type)
            shape = [self._word(I64) for _ in range(type_.ndim)]
            strides = [self._word(I64) for _ in range(type_.ndim)]
            arrayobj.populate_array(
                array,
                data=data,
                shape=cgutils.pack_array(builder, shape, I64),
                strides=cgutils.pack_array(builder, strides, I64),
                itemsize=context.get_abi_sizeof(context.get_data_type(type_.dtype)),
                meminfo=None,
            )
            return array._getvalue()
        model = context.data_model_manager[type_]
        data_type = model.get_data_type()
        words = max(1, -(-context.get_abi_sizeof(data_type) // 8))
        return model.load_from_data_pointer(builder, self._next_argument(data_type, words))
