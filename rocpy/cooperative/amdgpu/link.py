# SPDX-License-Identifier: MIT
"""From a kernel in Python to a code object for AMD GPUs: compile, link with the device library, optimise, emit."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import threading
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba.core import cgutils, errors, sigutils, types
from numba.np import arrayobj, numpy_support

from rocpy._locks import hold_over_forks
from rocpy.cooperative.amdgpu import device_library, library_calls, sort
from rocpy.cooperative.amdgpu import primitives as device_primitives
from rocpy.cooperative.amdgpu.target import GLOBAL, NAME, AMDGPUDispatcher, target, target_machine
from rocpy.cooperative.kernel import fingerprint
from rocpy.cooperative.kernel.kernel import check_parameters
from rocpy.cooperative.kernel.mode import Mode, compiling_in, mode_of
from rocpy.cooperative.numba import floats, functions, lowering, messages, primitives
from rocpy.cooperative.numba.llvm_types import BYTES, I8, I64
from rocpy.cooperative.numba.memory.frames import frame_bytes
from rocpy.cooperative.numba.memory.writes import WRITTEN
from rocpy.errors import InvalidProblemError, KernelTypeError, OutOfMemoryError, RocpyError, UnsupportedError

_ = (primitives, device_primitives, sort)  # registers what GPUs run
_lock = threading.RLock()
hold_over_forks(_lock)
_ALLOCA = re.compile(r'^(\s*)(%"?)([^"\s]+)("?) = alloca (.*)$', re.MULTILINE)
_IN_FLOAT64 = re.compile(r"= (?:f(?:add|sub|mul|div|rem|neg) (?:[a-z]+ )*double|(?:tail )?call (?:[a-z]+ )*double )")
_SLOTS = re.compile(r"rocpy_slots_(\d+)")
_SHARED = re.compile(r"^@\S+ = .*addrspace\(3\) global \[(\d+) x i8\]", re.MULTILINE)
# Intrinsics that LLVM makes calls of, to a library that GPUs lack.
_LIBRARY_CALL = re.compile(
    r"llvm\.(?:(?:exp|exp2|exp10|log|log2|log10|sin|cos|sincos|pow|powi)\.f64|(?:pow|powi)\.f32"
    r"|(?:tan|asin|acos|atan|atan2|sinh|cosh|tanh)\.)"
)
# Functions that LLVM has no instructions for, by what they are for.
_NOTES = {
    "NRT_": "allocates memory, which a GPU thread cannot do: use coop.local.array or coop.shared.array",
    "numba_gil": "prints or creates a string, which a GPU thread cannot do",
    "numba_": "calls into Numba's runtime, which exists only on the CPU",
    "Py": "calls into Python",
}


@dataclass(frozen=True)
class Linked:
    """A kernel as a code object, and the steps on the way."""

    code: bytes
    llvm: str
    assembly: str
    arguments: tuple[tuple[str, str], ...]
    float64_lines: tuple[tuple[str, int], ...]  # of a kernel for float32
    written: tuple[tuple[int, ...], ...]  # paths of the arguments that it may write to


@functions.cached_by_contents
def device_function(function: Any, mode: Mode) -> Any:
    """Return the dispatcher of a Python function that kernels on AMD GPUs call."""
    with functions.compiling(function):
        called = {each: device_function(each, mode) for each in functions.callees(function)}
    return AMDGPUDispatcher(
        functions.with_callees(function, called),
        targetoptions={"nopython": True},
        pipeline_class=lowering.pipeline(mode),
    )


functions.DISPATCHERS[NAME] = lambda function, mode, _counts: device_function(function, mode)


def types_of(kernel: Any, signature: Any) -> tuple[Any, ...]:
    """Return the types of a kernel's arguments."""
    try:
        arguments, result = sigutils.normalize_signature(signature)
    except (TypeError, NameError, SyntaxError, AttributeError, errors.NumbaError) as error:
        raise InvalidProblemError(
            f"signature: {signature!r} cannot be read: {error}; write it as 'void(float32[:,:],float32[:])'"
        ) from None
    if result not in (None, types.none):
        raise InvalidProblemError(
            f"signature: {signature!r} returns {result}; a kernel returns nothing, write void(...)"
        )
    check_parameters(kernel)
    count = kernel.function.__code__.co_argcount
    if len(arguments) != count:
        raise InvalidProblemError(
            f"signature: {signature!r} has {len(arguments)} arguments, kernel {kernel.name} {count}"
        )
    return tuple(arguments)


def type_of(value: Any) -> Any:
    """Return the type of a number."""
    return numba.typeof(value)


def tuple_type(members: list[Any]) -> Any:
    """Return the type of a tuple."""
    return types.BaseTuple.from_types(members)


def array_type(dtype: Any, ndim: int, *, contiguous: bool) -> Any:
    """Return the type of an array in a device's memory."""
    return types.Array(numpy_support.from_dtype(dtype), ndim, "C" if contiguous else "A")


@functools.cache
def _own_code() -> str:
    """Return a hash of this package's files, which results on disk depend on."""
    digest = hashlib.sha256(f"{numba.__version__} {llvm.llvm_version_info}".encode())
    for path in fingerprint.own_sources().values():
        digest.update(path.read_bytes())
    return digest.hexdigest()


def fingerprint_of(function: Any) -> str:
    """Return a hash of all that a function's code for a GPU depends on, but for types and architecture."""
    return fingerprint.fingerprint_of(function) + _own_code()


def compile_kernel(kernel: Any, arguments: tuple[Any, ...], arch: str, threads: int) -> Linked:
    """Compile a kernel for one architecture.

    Parameters
    ----------
    kernel
        Of ``coop.jit``.
    arguments
        Types of its arguments, as `types_of` gives them.
    arch
        Architecture.
    threads
        Most threads of a block.
    """
    with _lock:
        mode = dataclasses.replace(mode_of(kernel, device_library.wave_size(arch)), debug=False)
        with compiling_in(mode):
            compiled = _front_end(kernel, arguments, mode)
        modules = [
            *map(library_calls.with_library_names, compiled.library.all_modules()),
            _entry(kernel, compiled, arguments, threads),
        ]
        text = "\n".join(modules)
        lanes = _lanes(kernel, mode, arch, text)
        machine = target_machine(arch, "" if lanes == device_library.wave_size(arch) else f"+wavefrontsize{lanes}")
        slots = max((int(each) for each in _SLOTS.findall(text)), default=0) * threads
        modules.append(f"@rocpy_slots = addrspace(3) global [{max(slots, 1)} x i8] undef, align 16\n")
        linked = llvm.parse_bitcode(device_library.bitcode(library_calls.source_for(text, threads), arch, lanes))
        for each in modules:
            linked.link_in(_parsed(each))
        _optimise(linked, machine, kernel.name)
        listing = str(linked)
        _refuse_undefined(kernel, linked, arch)
        _refuse_too_much(kernel, listing, arch)
        _refuse_large_frames(kernel, frame_bytes(linked), arch, lanes)
        assembly, compiled_object = machine.emit_assembly(linked.clone()), machine.emit_object(linked)
        described = tuple((name, str(type_)) for name, type_ in zip(_names(kernel), arguments, strict=True))
        notes = compiled.metadata.get(floats.NOTES, ()) if floats.surprises(arguments) else ()
        # What is rounded at once, LLVM makes float32.
        lines = tuple(notes) if _IN_FLOAT64.search(listing) else ()
        written = compiled.metadata[WRITTEN].written
        return Linked(device_library.link([compiled_object]), listing, assembly, described, lines, written)


def _names(kernel: Any) -> tuple[str, ...]:
    code = kernel.function.__code__
    return code.co_varnames[: code.co_argcount]


def _lanes(kernel: Any, mode: Mode, arch: str, text: str) -> int:
    """Return the lanes of the waves that a kernel is compiled for: as its warps, if it depends on those."""
    if device_library.has_waves_of(arch, mode.warp_size):
        return mode.warp_size
    native = device_library.wave_size(arch)
    if library_calls.names_warp_size(text):
        raise UnsupportedError(
            f"kernel {kernel.name} is written for warps of {mode.warp_size} threads, and {arch} only has warps of "
            f"{native}: use coop.jit(warp_size={native}), or warp_size='native' if the kernel works with both"
        )
    return native


def _front_end(kernel: Any, arguments: tuple[Any, ...], mode: Mode) -> Any:
    try:
        dispatcher = device_function(kernel.function, mode)
        dispatcher.compile(arguments)
        compiled = dispatcher.overloads[arguments]
        functions.returns_nothing(compiled)
    except RocpyError:
        raise
    except Exception as error:  # whatever Numba fails with, the kernel is why
        shown = ", ".join(f"{name}: {type_}" for name, type_ in zip(_names(kernel), arguments, strict=True))
        code = kernel.function.__code__
        reason, line = messages.explain(error, code, on_device=True)
        location = f"{code.co_filename}:{line or code.co_firstlineno}"
        raise KernelTypeError(
            f"kernel {kernel.name} cannot be compiled for ({shown}): {reason} ({location})"
        ) from error
    return compiled


class _Parameters:
    """The flat arguments of a kernel, and Numba's values made of them.

    An array is its address, its extents and its strides in bytes, each of 8 bytes; a number is itself, a complex number
    two of them, a tuple its members.
    """

    def __init__(self, context: Any) -> None:
        self._context = context
        self.types: list[Any] = []

    def add(self, type_: Any) -> Any:
        """Add an argument; return a function of a builder and of all flat arguments that gives its value."""
        context, at = self._context, len(self.types)
        if isinstance(type_, types.BaseTuple):
            members = [self.add(each) for each in type_]
            return lambda builder, flat: context.make_tuple(builder, type_, [make(builder, flat) for make in members])
        if isinstance(type_, types.Array):
            self.types += [ir.PointerType(I8, GLOBAL)] + [I64] * (2 * type_.ndim)
            return lambda builder, flat: self._array(builder, type_, flat[at : at + 1 + 2 * type_.ndim])
        if isinstance(type_, types.Complex):
            self.types += [context.get_value_type(type_.underlying_float)] * 2

            def number(builder: Any, flat: Any) -> Any:
                value = context.make_complex(builder, type_)
                value.real, value.imag = flat[at : at + 2]
                return value._getvalue()

            return number
        if isinstance(type_, (types.Number, types.Boolean)):
            self.types.append(context.get_data_type(type_))
            model = context.data_model_manager[type_]
            return lambda builder, flat: model.from_data(builder, flat[at])
        raise InvalidProblemError(
            f"signature: {type_} cannot be an argument of a kernel; arrays, numbers and tuples can"
        )

    def _array(self, builder: Any, type_: Any, flat: Any) -> Any:
        array = arrayobj.make_array(type_)(self._context, builder)
        intp = self._context.get_value_type(types.intp)
        pointer = builder.addrspacecast(flat[0], BYTES)
        shape, strides = list(flat[1 : 1 + type_.ndim]), list(flat[1 + type_.ndim :])
        size = self._context.get_abi_sizeof(self._context.get_data_type(type_.dtype))
        if type_.layout == "C" and type_.ndim:
            strides[-1] = intp(size)
        if type_.layout == "F" and type_.ndim:
            strides[0] = intp(size)
        arrayobj.populate_array(
            array,
            data=builder.bitcast(pointer, array.data.type),
            shape=cgutils.pack_array(builder, shape, intp),
            strides=cgutils.pack_array(builder, strides, intp),
            itemsize=intp(size),
            meminfo=None,
        )
        return array._getvalue()


def _entry(kernel: Any, compiled: Any, arguments: tuple[Any, ...], threads: int) -> str:
    """Return a module with the kernel itself: it takes flat arguments and calls what Numba compiled."""
    context = target.target_context
    library = context.codegen().create_library(f"{kernel.name}.entry")
    module = library.create_ir_module(kernel.name)
    parameters = _Parameters(context)
    makers = [parameters.add(type_) for type_ in arguments]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), parameters.types), kernel.name)
    function.calling_convention = "amdgpu_kernel"
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    values = [make(builder, function.args) for make in makers]
    with context.push_code_library(library):
        callee = context.declare_function(module, compiled.fndesc)
        context.call_conv.call_function(builder, callee, types.none, arguments, values)
    builder.ret_void()
    group = f'"amdgpu-flat-work-group-size"="1,{threads}" "uniform-work-group-size"="true"'
    head, brace, body = str(module).partition("\n{")
    return f"{head} #0{brace}{body}\nattributes #0 = {{ {group} }}\n"


def _parsed(text: str) -> Any:
    """Parse a module of Numba's: its stack variables lie in the thread's private memory."""
    text = _ALLOCA.sub(
        r"\1\2\3.private\4 = alloca \5, addrspace(5)\n\1\2\3\4 = addrspacecast ptr addrspace(5) \2\3.private\4 to ptr",
        text,
    )
    text = _SLOTS.sub("rocpy_slots", text)
    return llvm.parse_assembly(text)


def _refuse_undefined(kernel: Any, module: Any, arch: str) -> None:
    """Refuse what the kernel calls and no GPU has: LLVM would end the process. What is unused has gone by now."""
    declared = [each.name for each in module.functions if each.is_declaration]
    names = [name for name in declared if not name.startswith("llvm.") or _LIBRARY_CALL.match(name)]
    if not names:
        return
    code = kernel.function.__code__
    reason = next(
        (f"it {note}" for start, note in _NOTES.items() if names[0].startswith(start)), "not available on AMD GPUs"
    )
    location = f"{code.co_filename}:{messages.line_of(reason, code) or code.co_firstlineno}"
    raise KernelTypeError(
        f"kernel {kernel.name} cannot be compiled for {arch}: {reason}: {', '.join(names)} ({location})"
    )


def _refuse_too_much(kernel: Any, listing: str, arch: str) -> None:
    used = sum((int(each) + 15) // 16 * 16 for each in _SHARED.findall(listing))
    limit = device_library.shared_limit_bytes(arch)
    if used > limit:
        raise OutOfMemoryError(
            f"kernel {kernel.name} ({kernel.function.__code__.co_filename}:{kernel.function.__code__.co_firstlineno}) "
            f"needs {used} bytes of shared memory, and a block has {limit} on {arch}: make "
            "shared arrays smaller, or compile for fewer threads="
        )


def _refuse_large_frames(kernel: Any, used: int, arch: str, lanes: int) -> None:
    """Refuse local arrays that no thread has memory for: LLVM would end the process."""
    limit = device_library.private_limit_bytes(arch, lanes)
    if used > limit:
        raise OutOfMemoryError(
            f"kernel {kernel.name} ({kernel.function.__code__.co_filename}:{kernel.function.__code__.co_firstlineno}) "
            f"needs {used} bytes of local arrays per thread, and {limit} are supported on {arch}: make them smaller, "
            "or pass an array with a row for each thread"
        )


def _optimise(module: Any, machine: Any, name: str) -> None:
    for function in module.functions:
        if function.is_declaration or function.name == name:
            continue
        function.linkage = "internal"
        function.add_function_attribute("alwaysinline")
    for variable in module.global_variables:
        if not variable.is_declaration and not variable.name.startswith("llvm."):
            variable.linkage = "internal"
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
