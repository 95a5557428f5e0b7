# SPDX-License-Identifier: MIT
"""How kernels are compiled: each call of the runtime knows its source line; in debug mode each access does."""

from __future__ import annotations

import functools
import hashlib
import operator
import re
from typing import Any, ClassVar

import numpy as np
from llvmlite import ir as llvm_ir
from numba.core import cgutils, ir, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering, NativeLowering, NopythonRewrites, NopythonTypeInference
from numba.core.typing import signature as make_signature
from numba.core.untyped_passes import MakeFunctionToJitFunction
from numba.np import arrayobj

from rocpy.cooperative.kernel.mode import Mode
from rocpy.cooperative.numba import functions, runtime
from rocpy.cooperative.numba.floats import NarrowInference, NotingInference
from rocpy.cooperative.numba.llvm_types import BYTES, I32, I64
from rocpy.cooperative.numba.memory import whole
from rocpy.cooperative.numba.memory.access import READ, WRITE, access_of, bits_of, kind_of_store, shared_possibly
from rocpy.cooperative.numba.memory.undefined import Undefined
from rocpy.cooperative.numba.memory.writes import FindWrites
from rocpy.cooperative.numba.runtime import call, current
from rocpy.cooperative.numba.types import ThreadDataType, refuse

_DIVISIONS = (operator.floordiv, operator.mod, operator.ifloordiv, operator.imod, divmod)
_INTEGERS = re.compile("[bBhHiIlLqQ]+->[bBhHiIlLqQ]+$")  # loops of numpy's
_COMPLEX = re.compile("([FD])\\1->\\1$")
_PACKAGE = "rocpy.cooperative"
# Numba names what an instruction computes by its offset in the bytecode; in a function that it has put in line, too.
_OFFSET = re.compile(r"(?:^\$|_v)(\d+)[a-z_]+[._]\d+")


class KernelLower(Lower):
    """Numba's lowering, and numpy's meaning of what it leaves undefined or raises.

    These are arithmetic, also of numpy's functions and of whole arrays, and indices of ``flat``.
    """

    def __init__(self, context: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(context, *arguments, **options)
        base: Any = type(context)
        kind: Any = _kernel_context(base)
        self.context.__class__, self.context.cached_internal_func = kind, kind.compiled  # a copy, of this function

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        """Lower the read of an element."""
        if not isinstance(self.typeof(value.name), types.NumpyFlatType):
            return super().lower_getitem(resty, expr, value, index, signature)
        read = self._function(operator.getitem, signature.args)
        result = read(self.builder, (self.loadvar(value.name), self._flat_index(value, index)))
        return self.context.cast(self.builder, result, signature.return_type, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        """Lower the write of an element."""
        if not isinstance(self.typeof(target_var.name), types.NumpyFlatType):
            return super().lower_setitem(target_var, index_var, value_var, signature)
        value = self.context.cast(
            self.builder, self.loadvar(value_var.name), self.typeof(value_var.name), signature.args[2]
        )
        write = self._function(operator.setitem, signature.args)
        return write(self.builder, (self.loadvar(target_var.name), self._flat_index(target_var, index_var), value))

    def _function(self, function: Any, arguments: Any) -> Any:
        """Return the code of an operator for arguments of some types."""
        known = self.context.typing_context.resolve_value_type(function)
        return self.context.get_function(known, known.get_call_type(self.context.typing_context, arguments, {}))

    def _flat_index(self, flat: Any, index: Any) -> Any:
        """Return an index of ``x.flat``: a negative one counts from the end, and debug mode checks it."""
        length = self.context.get_function(len, make_signature(types.intp, self.typeof(flat.name)))
        size = length(self.builder, (self.loadvar(flat.name),))
        position = self.loadvar(index.name)
        fixed = arrayobj.fix_integer_index(self.context, self.builder, self.typeof(index.name), position, size)
        if self.context.enable_boundscheck:
            cgutils.do_boundscheck(self.context, self.builder, fixed, size)
        return fixed


@functools.cache
def _kernel_context(base: Any) -> Any:
    """Return the class of the contexts of kernels: operators, numpy's functions and expressions of arrays agree."""
    if hasattr(base, "compiled"):
        return base

    class Context(base):
        """Numba's, with the arithmetic of this package, also in what it compiles for parts of a kernel."""

        compiled: ClassVar[dict[Any, Any]] = {}  # such parts, which Numba shares with all that it compiles

        def get_function(self, function: Any, signature: Any, *arguments: Any, **options: Any) -> Any:
            """Return the code of a function."""
            own = _operation(getattr(function, "typing_key", function), signature)
            if own is None:
                return super().get_function(function, signature, *arguments, **options)
            return lambda builder, operands, loc=None: own(self, builder, signature, operands)

        def get_ufunc_info(self, ufunc_key: Any) -> Any:
            """Return the code of a function of numpy's, by its loops."""
            loops = super().get_ufunc_info(ufunc_key)
            own = _complex_quotient if ufunc_key is np.true_divide else _OF_INTEGERS.get(ufunc_key)
            which = _COMPLEX if ufunc_key is np.true_divide else _INTEGERS
            return loops if own is None else {loop: own if which.match(loop) else loops[loop] for loop in loops}

    return Context


def _operation(function: Any, signature: Any) -> Any:
    """Return the code of an operation on two numbers where Numba's does not do what numpy does; None elsewhere."""
    if len(signature.args) != 2:
        return None
    result, integer = signature.return_type, [isinstance(each, types.Integer) for each in signature.args]
    if all(integer) and isinstance(_number(signature), types.Integer):
        return _OF_INTEGERS.get(_UFUNCS.get(function))
    if isinstance(result, types.Complex) and function is operator.truediv:
        return _complex_quotient
    if function is operator.pow and result in (types.float32, types.float64) and integer[1]:
        return None if getattr(signature.args[1], "literal_value", -1) >= 0 else _power
    return None


def _as_result(context: Any, builder: Any, signature: Any, operands: Any) -> list[Any]:
    pairs = zip(operands, signature.args, strict=True)
    return [context.cast(builder, value, kind, _number(signature)) for value, kind in pairs]


def _number(signature: Any) -> Any:
    """Return the type of the result, or of each of two."""
    return getattr(signature.return_type, "dtype", signature.return_type)


def _truncated(builder: Any, signed: bool, left: Any, right: Any) -> tuple[Any, Any]:
    """Return quotient and remainder, rounded towards 0; by zero both are 0, and the quotient by -1 wraps around.

    No divisor is 0 or -1, for which LLVM's division is undefined, and undefined in 32 bits where a GPU divides in them.
    """
    kind = left.type
    # By 0 and -1 the quotient is the product: 0, and the negative of the dividend.
    quotients, remainders = cgutils.alloca_once(builder, kind), cgutils.alloca_once(builder, kind)
    builder.store(builder.mul(left, right), quotients)
    builder.store(kind(0), remainders)
    lowest = builder.add(right, kind(1)) if signed else right
    usual = builder.icmp_unsigned(">", lowest, kind(1 if signed else 0))
    with cgutils.if_likely(builder, usual):
        builder.store((builder.sdiv if signed else builder.udiv)(left, right), quotients)
        builder.store((builder.srem if signed else builder.urem)(left, right), remainders)
    return builder.load(quotients), builder.load(remainders)


def _rounded_down(context: Any, builder: Any, signature: Any, operands: Any) -> tuple[Any, Any]:
    """Return quotient and remainder, rounded down."""
    left, right = _as_result(context, builder, signature, operands)
    kind, signed = left.type, _number(signature).signed
    quotient, remainder = _truncated(builder, signed, left, right)
    if not signed:
        return quotient, remainder
    differs = builder.icmp_signed("<", builder.xor(remainder, right), kind(0))
    lower = builder.and_(builder.icmp_signed("!=", remainder, kind(0)), differs)
    return (
        builder.add(quotient, builder.sext(lower, kind)),
        builder.add(remainder, builder.select(lower, right, kind(0))),
    )


def _both(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return cgutils.pack_array(builder, _rounded_down(context, builder, signature, operands))


def _fmod(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    return _truncated(builder, signature.return_type.signed, *_as_result(context, builder, signature, operands))[1]


def _shift(leftwards: bool, context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    """Return a number shifted; by its width or more, or by a negative amount, 0, or to the right the sign."""
    value, amount = _as_result(context, builder, signature, operands)
    kind, width, signed = value.type, value.type.width, signature.return_type.signed
    usual = builder.icmp_unsigned("<", amount, kind(width))
    if leftwards or not signed:
        shifted = (builder.shl if leftwards else builder.lshr)(value, builder.select(usual, amount, kind(0)))
        return builder.select(usual, shifted, kind(0))
    return builder.ashr(value, builder.select(usual, amount, kind(width - 1)))


_OF_INTEGERS: dict[Any, Any] = {
    np.floor_divide: lambda *arguments: _rounded_down(*arguments)[0],
    np.remainder: lambda *arguments: _rounded_down(*arguments)[1],
    np.divmod: _both,
    np.fmod: _fmod,
    np.left_shift: functools.partial(_shift, True),
    np.right_shift: functools.partial(_shift, False),
}
# The functions of numpy's that operators are.
_UFUNCS = {
    operator.floordiv: np.floor_divide,
    operator.mod: np.remainder,
    divmod: np.divmod,
    operator.lshift: np.left_shift,
    operator.rshift: np.right_shift,
}


def _call_inline(context: Any, builder: Any, function: Any, signature: Any, operands: Any) -> Any:
    """Call a function whose operations are Numba's, but for a float's division by zero, which is numpy's."""
    flags = Flags()
    flags.error_model, flags.forceinline = "numpy", True
    plain = context.subtarget()
    plain.__class__ = type(context).__base__
    compiled = plain.compile_subroutine(builder, function, signature, flags=flags)
    return context.call_internal(builder, compiled.fndesc, signature, operands)


def _complex_quotient(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    def quotient(a: Any, b: Any) -> Any:
        if b.real == 0 and b.imag == 0:
            return complex(a.real / abs(b.real), a.imag / abs(b.real))
        return a / b

    result = signature.return_type
    operands = _as_result(context, builder, signature, operands)
    return _call_inline(context, builder, quotient, make_signature(result, result, result), operands)


_MOST_FACTORS = 2**16  # beyond, Numba calls the mathematical library


def _power(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    """Return a float to an integer's power, which for a negative one is the reciprocal of the power."""
    result, exponent = signature.return_type, signature.args[1]
    (base, power), kinds = operands, (signature.args[0], types.unliteral(exponent))
    base, power = context.cast(builder, base, kinds[0], result), context.cast(builder, power, exponent, kinds[1])
    least = getattr(exponent, "literal_value", None)  # Numba writes a known number of products one after the other

    def of_known(a: Any, b: Any) -> Any:
        return result(1) / a**factors

    def of_any(a: Any, b: Any) -> Any:
        return result(1) / a**-b if -_MOST_FACTORS <= b < 0 else a**b

    factors = 0 if least is None or least < -_MOST_FACTORS else -least
    function = of_known if factors else of_any
    return _call_inline(context, builder, function, make_signature(result, result, kinds[1]), (base, power))


class SiteLower(KernelLower):
    """Stores the source line in the thread's state before each call into this package."""

    every_line = False

    def lower_normal_function(self, fndesc: Any) -> None:
        """Lower the function, unless it would return what is gone when it has returned."""
        returned = fndesc.restype
        parts = returned if isinstance(returned, types.BaseTuple) else (returned,)
        if any(isinstance(each, ThreadDataType) for each in parts):
            raise refuse(
                f"{fndesc.qualname} returns a ThreadData, which is valid only during the call; let the caller create "
                "it and pass it"
            )
        super().lower_normal_function(fndesc)

    def pre_block(self, block: Any) -> None:
        """Forget the line: a block may be entered from several."""
        super().pre_block(block)
        self._line = -1

    def lower_inst(self, inst: Any) -> None:
        """Lower one instruction of Numba's."""
        if self.every_line and not isinstance(inst, ir.Del):
            self._mark_line(inst)
        if self._is_call(inst) and self._may_wait(self.typeof(inst.value.func.name)):
            self._mark(inst.loc, self._identity(inst))
        if self._is_next_of_range(inst):
            self._lower_next_of_range(inst)
        else:
            super().lower_inst(inst)

    def _is_next_of_range(self, inst: Any) -> bool:
        if not isinstance(inst, ir.Assign) or not isinstance(inst.value, ir.Expr) or inst.value.op != "iternext":
            return False
        kind = self.typeof(inst.value.value.name)
        return isinstance(kind, types.RangeIteratorType) and kind.yield_type.signed

    def _lower_next_of_range(self, inst: Any) -> None:
        """Lower the step of a range, whose indices do not overflow before its end: negative ones can be ruled out."""
        blocks = self.function.blocks
        first, begin = len(blocks) - 1, {each: len(each.instructions) for each in blocks}
        super().lower_inst(inst)
        for block in blocks[first:]:
            for each in block.instructions[begin.get(block, 0) :]:
                if isinstance(each, llvm_ir.Instruction) and each.opname == "add" and "nsw" not in each.flags:
                    each.flags = [*each.flags, "nsw"]

    @staticmethod
    def _is_call(inst: Any) -> bool:
        return isinstance(inst, ir.Assign) and isinstance(inst.value, ir.Expr) and inst.value.op == "call"

    @staticmethod
    def _may_wait(function: Any) -> bool:
        """Return whether a function is this package's, or one that Numba compiled, which stores no line itself."""
        if isinstance(function, types.Dispatcher):
            return not issubclass(function.dispatcher._compiler.pipeline_class, KernelCompiler)
        module = getattr(getattr(function, "typing_key", None), "__module__", None)
        return str(module or "").startswith(_PACKAGE)

    def _identity(self, inst: Any) -> str:
        """Return what tells a call from others of its line: where it is in that, and its types."""
        expression = inst.value
        offsets = (_OFFSET.search(each) for each in (inst.target.name, expression.func.name))
        offset = next((int(each[1]) for each in offsets if each), -1)
        position = functions.position_of(self.func_ir.func_id.code, offset, inst.loc.line)
        text = f"{position} {self.typeof(expression.func.name)} {self.fndesc.calltypes[expression]}"
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def _mark_line(self, inst: Any) -> None:
        if inst.loc.line != self._line:
            self._line = inst.loc.line
            self._mark(inst.loc)

    def _mark(self, location: Any, identity: str = "") -> None:
        site = f"{location.filename}:{location.line}" + (f"#{identity}" if identity else "")
        text = self.context.insert_const_string(self.module, site)
        self.builder.store(text, self._site())

    def _site(self) -> Any:
        return runtime.field(self.builder, runtime.SITE_OFFSET, BYTES)


class CheckedLower(SiteLower):
    """The same for each line, and tells the runtime of each access to memory beyond the thread's own stack."""

    every_line = True

    def pre_lower(self) -> None:
        """Prepare the body."""
        super().pre_lower()
        self._undefined = Undefined(self)

    def extract_function_arguments(self) -> Any:
        """Read the arguments, and the line that the caller is at."""
        arguments = super().extract_function_arguments()
        self._site_of_caller = self.builder.load(self._site())
        return arguments

    def lower_inst(self, inst: Any) -> None:
        """Lower one instruction between what the runtime is to know before and after it."""
        divisor = self._divisor(inst)
        call_of_whole = self._is_call(inst)
        if divisor is not None or call_of_whole or isinstance(inst, (ir.SetItem, ir.StaticSetItem)):
            self._mark_line(inst)
        if divisor is not None:
            value = self.loadvar(divisor.name)
            with cgutils.if_unlikely(self.builder, self.builder.icmp_signed("==", value, value.type(0))):
                call(self.builder, "rocpy_simt_divided_by_zero", current(self.builder))
        method = whole.method_of(self.typeof(inst.value.func.name)) if call_of_whole else ""
        if call_of_whole:
            for variable, kind in whole.arrays_read(inst.value, self.typeof):
                self._tell_elements(variable, kind, READ)
            if method == whole.FILL:
                self._fill(inst.value)
            elif method == whole.SORT:
                self._tell_elements(inst.value.func, self.typeof(inst.value.func.name).this, READ)
        self._undefined.before(inst)
        if isinstance(inst, ir.Return):
            self.builder.store(self._site_of_caller, self._site())
        super().lower_inst(inst)
        self._undefined.after(inst)
        if method == whole.SORT:
            self._tell_elements(inst.value.func, self.typeof(inst.value.func.name).this, WRITE)

    def _tell_elements(self, variable: Any, kind: types.Array, access: int) -> None:
        """Tell the runtime of an access to each element of an array."""
        context, builder = self.context, self.builder
        view = arrayobj.make_array(kind)(context, builder, self.loadvar(variable.name))
        shape = cgutils.unpack_tuple(builder, view.shape, count=kind.ndim)
        size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
        with cgutils.loop_nest(builder, shape, I64) as indices:
            pointer = cgutils.get_item_pointer(context, builder, kind, view, list(indices))
            call(builder, "rocpy_simt_access", current(builder), pointer, I64(size), I32(access))

    def _fill(self, expression: Any) -> None:
        """Write to each element what ``fill`` writes again, in code that is checked."""
        array = self.typeof(expression.func.name).this
        variable = [*expression.args, *(each for _, each in expression.kws)][0]
        signature = make_signature(types.none, array, types.ellipsis, array.dtype)
        value = self.context.cast(
            self.builder, self.loadvar(variable.name), self.typeof(variable.name), signature.args[2]
        )
        write = self._function(operator.setitem, signature.args)
        write(self.builder, (self.loadvar(expression.func.name), self.context.get_dummy_value(), value))

    def _divisor(self, inst: Any) -> Any:
        """Return the variable that integers are divided by; None where nothing is."""
        expression = getattr(inst, "value", None)
        if not isinstance(inst, ir.Assign) or not isinstance(expression, ir.Expr):
            return None
        if expression.op in ("binop", "inplace_binop") and expression.fn in _DIVISIONS:
            operands = [expression.lhs, expression.rhs]
        elif expression.op == "call" and getattr(self.typeof(expression.func.name), "typing_key", None) in _DIVISIONS:
            operands = list(expression.args)
        else:
            return None
        integers = all(isinstance(self.typeof(each.name), types.Integer) for each in operands)
        return operands[1] if len(operands) == 2 and integers else None

    def lower_function_body(self) -> Any:
        """Lower the body, then put the calls in."""
        result = super().lower_function_body()
        for block in self.function.blocks:
            for instruction in list(block.instructions):
                self._check(block, instruction)
        return result

    def _check(self, block: llvm_ir.Block, instruction: llvm_ir.Instruction) -> None:
        kind, pointer, value = access_of(instruction)
        if pointer is None or not shared_possibly(pointer, self.function):
            return
        builder = llvm_ir.IRBuilder(block)
        builder.position_before(instruction)
        state = current(builder)
        size = self.context.get_abi_sizeof(pointer.type.pointee)
        told = kind_of_store(builder, pointer, value, instruction.align) if kind == WRITE else I32(kind)
        call(builder, "rocpy_simt_access", state, pointer, I64(size), told)
        if value is not None:
            call(builder, "rocpy_simt_stored", state, pointer, bits_of(builder, value), I32(size))


@register_pass(mutates_CFG=True, analysis_only=False)
class DeviceLowering(BaseNativeLowering):
    """Lowering for GPUs."""

    _name = "rocpy_device_lowering"

    @property
    def lowering_class(self) -> Any:
        """What lowers."""
        return KernelLower


@register_pass(mutates_CFG=True, analysis_only=False)
class SiteLowering(BaseNativeLowering):
    """Lowering for ordinary launches."""

    _name = "rocpy_site_lowering"

    @property
    def lowering_class(self) -> Any:
        """What lowers."""
        return SiteLower


@register_pass(mutates_CFG=True, analysis_only=False)
class CheckedLowering(BaseNativeLowering):
    """Lowering for debug mode."""

    _name = "rocpy_checked_lowering"

    @property
    def lowering_class(self) -> Any:
        """What lowers."""
        return CheckedLower


class KernelCompiler(CompilerBase):
    """What compiles kernels and the functions that they call."""


@functools.cache
def pipeline(mode: Mode, *, on_device: bool = False) -> Any:
    """Return how functions are compiled: for the CPU with or without checks, or for a GPU."""
    on_cpu = CheckedLowering if mode.debug else SiteLowering
    replaced: dict[Any, Any] = {
        MakeFunctionToJitFunction: functions.NestedFunctions,
        NativeLowering: DeviceLowering if on_device else on_cpu,
    }
    if mode.float_type:
        replaced[NopythonTypeInference] = NarrowInference
    elif on_device or mode.debug:
        replaced[NopythonTypeInference] = NotingInference

    class Compiler(KernelCompiler):
        """Numba's own passes, but for those that are replaced."""

        def define_pipelines(self) -> list[Any]:
            """Return the one pipeline."""
            manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
            manager.add_pass_after(FindWrites, NopythonRewrites)
            for old, new in replaced.items():
                manager.add_pass_after(new, old)
            manager.passes = [each for each in manager.passes if each[0] not in replaced]
            manager.finalize()
            return [manager]

    return Compiler
