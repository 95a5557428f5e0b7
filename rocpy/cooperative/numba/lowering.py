# SPDX-License-Identifier: MIT
"""How kernels are compiled: each call of the runtime knows its source line; in debug mode each access does."""

from __future__ import annotations

import functools
import hashlib
import operator
import re
from typing import Any

from llvmlite import ir as llvm_ir
from numba.core import cgutils, ir, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering, NativeLowering, NopythonRewrites, NopythonTypeInference
from numba.core.typing import signature as make_signature
from numba.core.untyped_passes import InlineClosureLikes, MakeFunctionToJitFunction, TranslateByteCode
from numba.np import arrayobj

from rocpy.cooperative.kernel.mode import Mode
from rocpy.cooperative.numba import functions, runtime
from rocpy.cooperative.numba.arithmetic.context import in_own_types, kernel_context
from rocpy.cooperative.numba.arithmetic.operands import IntegerInference
from rocpy.cooperative.numba.floats import NarrowInference, NotingInference
from rocpy.cooperative.numba.llvm_types import BYTES, I32, I64
from rocpy.cooperative.numba.memory import checks, whole
from rocpy.cooperative.numba.memory.access import READ, WRITE, access_of, bits_of, kind_of_store, shared_possibly
from rocpy.cooperative.numba.memory.undefined import Undefined
from rocpy.cooperative.numba.memory.writes import FindWrites
from rocpy.cooperative.numba.runtime import call, current
from rocpy.cooperative.numba.types import ThreadDataType, refuse

_PACKAGE = "rocpy.cooperative"
# Numba names what an instruction computes by its offset in the bytecode; in a function that it has put in line, too.
_OFFSET = re.compile(r"(?:^\$|_v)(\d+)[a-z_]+[._]\d+")


class KernelLower(Lower):
    """Numba's lowering, and numpy's meaning of what it leaves undefined or raises.

    These are arithmetic, also of numpy's functions and of whole arrays, and indices of ``flat``.
    """

    _unpacks = False  # whether an array is being unpacked

    def __init__(self, context: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(context, *arguments, **options)
        base: Any = type(context)
        kind: Any = kernel_context(base)
        self.context.__class__ = kind  # of a copy, for this function
        self.context.cached_internal_func = kind.compiled[bool(self.context.enable_boundscheck)]

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        """Lower an expression."""
        if expr.op == "call" and whole.method_of(self.typeof(expr.func.name)) == whole.FILL:
            whole.check_filled(expr, self.typeof)
        self._unpacks = expr.op == "exhaust_iter"
        result = super().lower_expr(resty, in_own_types(expr, self.typeof) if expr.op == "arrayexpr" else expr)
        self._unpacks = False
        return result

    def return_exception(self, exc_class: Any, exc_args: Any = None, loc: Any = None) -> None:
        """Raise an exception; Numba's has no text where an array is unpacked into another number of names."""
        if self._unpacks:
            exc_args = ("the number of values to unpack is not that of the names",)
        super().return_exception(exc_class, exc_args, loc)

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
        if (self.every_line and not isinstance(inst, ir.Del)) or self._may_be_of_wrong_shape(inst):
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

    def _may_be_of_wrong_shape(self, inst: Any) -> bool:
        """Return whether an instruction combines whole arrays, whose shapes only the launch knows."""
        if isinstance(inst, ir.SetItem):
            return checks.has_mask(self.typeof(inst.index.name))
        if not isinstance(inst, ir.Assign) or not isinstance(inst.value, ir.Expr):
            return False
        value = inst.value
        if value.op == "call":
            whole_arrays = any(isinstance(self.typeof(each.name), types.Array) for each in value.args)
            return whole_arrays and checks.may_fail(getattr(self.typeof(value.func.name), "typing_key", None))
        if value.op == "getitem":
            return checks.has_mask(self.typeof(value.index.name))
        combines = value.op in ("arrayexpr", "binop", "inplace_binop")
        return combines and isinstance(self.typeof(inst.target.name), types.Array)

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
        """Prepare the body, and read the line that the caller is at; of a generator, the caller of each step."""
        super().pre_lower()
        self._site_of_caller = self.builder.load(self._site())
        self._undefined = Undefined(self)

    def lower_inst(self, inst: Any) -> None:
        """Lower one instruction between what the runtime is to know before and after it."""
        call_of_whole = self._is_call(inst)
        if call_of_whole or isinstance(inst, (ir.SetItem, ir.StaticSetItem)):
            self._mark_line(inst)
        method = whole.method_of(self.typeof(inst.value.func.name)) if call_of_whole else ""
        if call_of_whole:
            for variable, kind in whole.arrays_read(inst.value, self.typeof):
                self._tell_elements(variable, kind, READ)
            if method == whole.FILL:
                self._fill(inst.value)
            elif method == whole.SORT:
                self._tell_elements(inst.value.func, self.typeof(inst.value.func.name).this, READ)
        self._undefined.before(inst)
        yields = isinstance(inst, ir.Assign) and isinstance(inst.value, ir.Yield)
        if yields:
            self._mark_line(inst)
        if yields or isinstance(inst, ir.Return):
            self.builder.store(self._site_of_caller, self._site())
        super().lower_inst(inst)
        if yields:
            self._line = -1  # goes on in another step, whose caller was at a line of its own
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


class KernelCompiler(CompilerBase):
    """What compiles kernels and the functions that they call."""


@functools.cache
def pipeline(mode: Mode, native_lowering: Any = DeviceLowering) -> Any:
    """Return how functions are compiled, with a pass that lowers them: that for GPUs, or one for the CPU."""
    replaced: dict[Any, Any] = {
        TranslateByteCode: functions.Translation,
        InlineClosureLikes: functions.InlinedFunctions,
        MakeFunctionToJitFunction: functions.NestedFunctions,
        NativeLowering: native_lowering,
        NopythonTypeInference: IntegerInference,
    }
    if mode.float_type:
        replaced[NopythonTypeInference] = NarrowInference
    elif native_lowering is DeviceLowering or mode.debug:
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
