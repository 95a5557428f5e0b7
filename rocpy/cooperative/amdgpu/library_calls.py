# SPDX-License-Identifier: MIT
"""Functions of the device library, as kernels call them: each use is instantiated in C++ under a name of its own."""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.target_extension import current_target
from numba.core.typing import signature as make_signature
from numba.extending import intrinsic

from rocpy.cooperative.numba.llvm_types import BYTES, I64, VOID
from rocpy.cooperative.numba.operators import Operator
from rocpy.cooperative.numba.runtime import LINKERS, WORDS, device_call
from rocpy.cooperative.numba.types import NEEDS_64_LANES

_SOURCES: dict[str, str] = {
    NEEDS_64_LANES: f"COOP_PYTHON void {NEEDS_64_LANES}() {{ static_assert(rocpy::warp_size == 64); }}"
}
_numbers = itertools.count()
_WARP_SIZE_READ = re.compile(rf'@"?rocpy_device_word"?\(i32 {WORDS["warp_size"]}\)')
_USED = re.compile(r"rocpy_coop_\w+")
_SLOTS = re.compile(r"rocpy_slots_(\d+)")
_FUNCTORS = {"+": "Plus", "*": "Times", "min": "Min", "max": "Max", "&": "And", "|": "Or", "^": "Xor"}
_INTEGERS = {8: "char", 16: "short", 32: "int", 64: "long long"}


# Functions of numbers: those that the device library has, of both types or of doubles alone, and LLVM's own.
_OF_BOTH = "erf|expm1|log1p|sinh|cosh|tanh|tan|sin|cos"
_OF_DOUBLES = "exp|exp2|log|log2|log10"
_LIBRARY = (
    (re.compile(rf'@"?(?:llvm\.)?({_OF_BOTH})(?:\.f64)?"?(?=\()'), r"@rocpy_math_\1"),
    (re.compile(rf'@"?(?:llvm\.({_OF_BOTH})\.f32|({_OF_BOTH})f)"?(?=\()'), r"@rocpy_math_\1\2f"),
    (re.compile(rf'@"?(?:llvm\.({_OF_DOUBLES})\.f64|({_OF_DOUBLES}))"?(?=\()'), r"@rocpy_math_\1\2"),
    (re.compile(r'@"?(?:llvm\.pow\.f32|powf)"?(?=\()'), "@rocpy_math_powf"),
    (re.compile(r'@"(sqrt|floor|ceil|trunc)"(?=\()'), r"@llvm.\1.f64"),
    (re.compile(r'@"(sqrt|floor|ceil|trunc)f"(?=\()'), r"@llvm.\1.f32"),
    (re.compile(rf'@"?(?:llvm\.)?({_OF_DOUBLES})f"?(?=\()'), r"@llvm.\1.f32"),
)
_DECLARATION = re.compile(r'^declare [^@\n]*@("[^"]*"|[-\w$.]+)\(.*\n?', re.MULTILINE)
_MATH_USED = re.compile(rf"@rocpy_math_({_OF_BOTH}|{_OF_DOUBLES})f?\(")


def with_library_names(text: str) -> str:
    """Return a module in which functions of numbers have the names of LLVM's intrinsics or of the device library."""
    for pattern, name in _LIBRARY:
        text = pattern.sub(name, text)
    declared: set[str] = set()

    def first(declaration: re.Match[str]) -> str:
        name = declaration[1].strip('"')
        if name in declared:  # under another name, as math.floor and numpy's
            return ""
        declared.add(name)
        return declaration[0]

    return _DECLARATION.sub(first, text)


def names_warp_size(text: str) -> bool:
    """Return whether what modules do may depend on how many threads a warp has."""
    return NEEDS_64_LANES in text or _WARP_SIZE_READ.search(text) is not None


def source_for(text: str, threads: int) -> str:
    """Return the C++ of the functions that a kernel's modules call, for blocks of up to so many threads."""
    lines = [f"COOP_PYTHON_MATH({name})" for name in sorted(set(_MATH_USED.findall(text)))]
    functions = lines + [_SOURCES[name] for name in sorted(set(_USED.findall(text)))]
    return "\n".join([f"#define COOP_MOST_THREADS {threads}", '#include "rocpy_coop_python.h"', *functions])


def source_of(name: str, threads: int) -> str:
    """Return the C++ of one function that calls name, or of all those that are the same in every kernel."""
    if slots := _SLOTS.fullmatch(name):
        size = int(slots[1]) * threads
        return f'extern "C" {{ __attribute__((device)) __attribute__((shared)) unsigned char {name}[{size}]; }}\n'
    if name in _SOURCES:
        return f"#define COOP_PYTHON_PART\n{source_for(name, threads)}"
    return source_for("", threads)


def cpp_type(context: Any, dtype: types.Type) -> str:
    """Return the C++ type of an element: a number's own, or bytes of its size."""
    if isinstance(dtype, types.Integer):
        return f"{'signed' if dtype.signed else 'unsigned'} {_INTEGERS[dtype.bitwidth]}"
    if dtype in (types.float32, types.float64):
        return "float" if dtype == types.float32 else "double"
    data = context.get_data_type(dtype)
    return f"rocpy::python::Bytes<{context.get_abi_sizeof(data)}, {min(16, context.get_abi_alignment(data))}>"


def word_of(cpp_type: str) -> str:
    """Return a C++ type as a part of a name."""
    return re.sub(r"\W+", "_", cpp_type.replace("rocpy::python::", "")).strip("_")


@functools.cache
def _operator_number(_operator: Operator, _dtype: types.Type, _module: str) -> int:
    return next(_numbers)


def _operator(context: Any, builder: Any, chosen: Operator, dtype: types.Type, cpp_type: str) -> tuple[str, str, str]:
    """Return the word, the C++ expression and the declaration of an operator; define it, if Python does."""
    if chosen.name in _FUNCTORS and isinstance(dtype, (types.Integer, types.Float)):
        functor = _FUNCTORS[chosen.name]
        return functor, f"rocpy::{functor}{{}}", ""
    name = linked_function(context, builder, chosen, make_signature(dtype, dtype, dtype))
    declared = (
        f'extern "C" __attribute__((device)) void {name}({cpp_type} *, const {cpp_type} *, const {cpp_type} *);\n'
    )
    return name, f"rocpy::python::Operator<{cpp_type}, {name}>{{}}", declared


def linked_function(context: Any, builder: Any, chosen: Operator, signature: Any) -> str:
    """Define a function of two values that Python gives; return its name. It takes where the result goes, and them."""
    dtype = signature.args[0]
    # Where modules are linked by others, each has a function of its own.
    module = builder.module.name if current_target() in LINKERS else ""
    name = f"rocpy_operator_{_operator_number(chosen, dtype, module)}"
    if name not in builder.module.globals:
        function = ir.Function(builder.module, ir.FunctionType(VOID, [BYTES] * 3), name)
        function.linkage = "linkonce_odr"
        body = ir.IRBuilder(function.append_basic_block())
        model = context.data_model_manager[dtype]
        returned = context.data_model_manager[signature.return_type]
        pointer = body.bitcast(function.args[0], returned.get_data_type().as_pointer())
        operands = [
            model.load_from_data_pointer(body, body.bitcast(each, model.get_data_type().as_pointer()))
            for each in function.args[1:]
        ]
        compiled = context.compile_subroutine(body, chosen.combine, signature)
        _, result = context.call_internal_no_propagate(body, compiled.fndesc, signature, operands)
        body.store(returned.as_data(body, result), pointer)
        body.ret_void()
    return name


def _in_memory(context: Any, builder: Any, dtype: types.Type, value: Any = None) -> Any:
    """Return a place for an element in the frame, with the value in it."""
    model = context.data_model_manager[dtype]
    address = cgutils.alloca_once(builder, model.get_data_type())
    if value is not None:
        builder.store(model.as_data(builder, value), address)
    return address


def _value_at(context: Any, builder: Any, dtype: types.Type, address: Any) -> Any:
    return context.data_model_manager[dtype].load_from_data_pointer(builder, address)


def call(builder: Any, name: str, text: str, *arguments: Any) -> None:
    """Call a function of the device library whose C++ is `text`."""
    _SOURCES[name] = text
    passed = [builder.bitcast(each, BYTES) if isinstance(each.type, ir.PointerType) else each for each in arguments]
    device_call(builder, name, VOID, *passed)


@functools.cache
def reduce_in_group(dtype: types.Type, chosen: Operator) -> Any:
    """Return a function of group, value and number of ranks: their combination, in every thread."""

    @intrinsic
    def function(_typing: Any, group: Any, value: Any, valid: Any) -> Any:
        def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            kind = cpp_type(context, dtype)
            word, expression, declared = _operator(context, builder, chosen, dtype, kind)
            name = f"rocpy_coop_reduce_{word_of(kind)}_{word}"
            text = f"{declared}COOP_PYTHON void {name}({kind} *value, int width, long long valid) {{"
            text += f" rocpy::python::reduce(value, width, valid, {expression}); }}"
            address = _in_memory(context, builder, dtype, arguments[1])
            call(builder, name, text, address, arguments[0], arguments[2])
            return _value_at(context, builder, dtype, address)

        return dtype(group, dtype, types.int64), codegen

    return function


@functools.cache
def scan_in_group(dtype: types.Type, chosen: Operator) -> Any:
    """Return a function of group and value: the inclusive scan, that of the rank before, the combination of all."""

    @intrinsic
    def function(_typing: Any, group: Any, value: Any) -> Any:
        result = types.UniTuple(dtype, 3)

        def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            kind = cpp_type(context, dtype)
            word, expression, declared = _operator(context, builder, chosen, dtype, kind)
            name = f"rocpy_coop_scan_{word_of(kind)}_{word}"
            text = f"{declared}COOP_PYTHON void {name}({kind} *value, {kind} *before, {kind} *total, int width) {{"
            text += f" rocpy::python::scan(value, before, total, width, {expression}); }}"
            addresses = [_in_memory(context, builder, dtype, value) for value in (arguments[1], None, None)]
            call(builder, name, text, *addresses, arguments[0])
            return context.make_tuple(builder, result, [_value_at(context, builder, dtype, each) for each in addresses])

        return result(group, dtype), codegen

    return function


@functools.cache
def move_in_group(what: str, dtype: types.Type) -> Any:
    """Return a function of group, value and a rank: that rank's value. `what` is ``shuffle`` or ``broadcast``."""

    @intrinsic
    def function(_typing: Any, group: Any, value: Any, source: Any) -> Any:
        def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            kind = cpp_type(context, dtype)
            name = f"rocpy_coop_{what}_{word_of(kind)}"
            text = f"COOP_PYTHON void {name}({kind} *value, int width, long long source) {{"
            text += f" rocpy::python::{what}(value, width, source); }}"
            address = _in_memory(context, builder, dtype, arguments[1])
            call(builder, name, text, address, arguments[0], arguments[2])
            return _value_at(context, builder, dtype, address)

        return dtype(group, dtype, types.int64), codegen

    return function


@functools.cache
def match_in_warp(dtype: types.Type) -> Any:
    """Return a function of group and value: the mask of the ranks whose value is the thread's own."""

    @intrinsic
    def function(_typing: Any, group: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            kind = cpp_type(context, dtype)
            name = f"rocpy_coop_match_{word_of(kind)}"
            text = f"COOP_PYTHON void {name}(const {kind} *value, unsigned long long *mask, int width) {{"
            text += " *mask = rocpy::warp_match(rocpy::python::warp(width), *value); }"
            mask = cgutils.alloca_once(builder, I64)
            call(builder, name, text, _in_memory(context, builder, dtype, arguments[1]), mask, arguments[0])
            return builder.load(mask)

        return types.uint64(group, dtype), codegen

    return function


def _vote(name: str, result: types.Type, llvm_type: Any) -> Any:
    @intrinsic
    def function(_typing: Any, group: Any, condition: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return device_call(builder, f"rocpy_device_{name}", llvm_type, *arguments)

        return result(group, types.boolean), codegen

    return function


any_in_group = _vote("any", types.boolean, ir.IntType(1))
all_in_group = _vote("all", types.boolean, ir.IntType(1))
ballot_in_warp = _vote("ballot", types.uint64, I64)
