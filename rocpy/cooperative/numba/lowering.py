# SPDX-License-Identifier: MIT
"""How kernels are compiled: each call of the runtime knows its source line; in debug mode each access does."""

from __future__ import annotations

import functools
import operator
from typing import Any

from llvmlite import ir as llvm_ir
from numba.core import cgutils, ir, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering, NativeLowering, NopythonRewrites, NopythonTypeInference

from rocpy.cooperative.kernel.mode import Mode
from rocpy.cooperative.numba import runtime
from rocpy.cooperative.numba.floats import NarrowInference, NotingInference
from rocpy.cooperative.numba.llvm_types import BYTES, I32, I64
from rocpy.cooperative.numba.memory.access import WRITE, access_of, bits_of, kind_of_store, shared_possibly
from rocpy.cooperative.numba.memory.writes import FindWrites
from rocpy.cooperative.numba.runtime import call, current
from rocpy.cooperative.numba.types import ThreadDataType, refuse

_DIVISIONS = (operator.floordiv, operator.mod, operator.ifloordiv, operator.imod, divmod)
_PACKAGE = "rocpy.cooperative"


class SiteLower(Lower):
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
        if self.every_line:
            if inst.loc.line != self._line and not isinstance(inst, ir.Del):
                self._line = inst.loc.line
                self._mark(inst.loc)
        elif isinstance(inst, ir.Assign) and isinstance(inst.value, ir.Expr) and inst.value.op == "call":
            function = self.typeof(inst.value.func.name)
            stub = getattr(function, "typing_key", None)
            if getattr(stub, "__module__", "") is not None and str(getattr(stub, "__module__", "")).startswith(
                _PACKAGE
            ):
                self._mark(inst.loc)
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

    def _mark(self, location: Any) -> None:
        text = self.context.insert_const_string(self.module, f"{location.filename}:{location.line}")
        self.builder.store(text, runtime.field(self.builder, runtime.SITE_OFFSET, BYTES))


class CheckedLower(SiteLower):
    """The same for each line, and tells the runtime of each access to memory beyond the thread's own stack."""

    every_line = True

    def lower_inst(self, inst: Any) -> None:
        """Lower one instruction; one that divides integers asks for the divisor first."""
        super_lower = super().lower_inst
        divisor = self._divisor(inst)
        if divisor is not None:
            if inst.loc.line != self._line:
                self._line = inst.loc.line
                self._mark(inst.loc)
            value = self.loadvar(divisor.name)
            with cgutils.if_unlikely(self.builder, self.builder.icmp_signed("==", value, value.type(0))):
                call(self.builder, "rocpy_simt_divided_by_zero", current(self.builder))
        super_lower(inst)

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

    def lower_normal_function(self, fndesc: Any) -> None:
        """Lower the function, then put the calls in."""
        super().lower_normal_function(fndesc)
        for block in self.function.blocks:
            for instruction in list(block.instructions):
                self._check(block, instruction)

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
        bits = bits_of(builder, value) if kind == WRITE else None
        if bits is not None:
            call(builder, "rocpy_simt_stored", state, pointer, bits, I32(size))


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


@functools.cache
def pipeline(mode: Mode, *, on_device: bool = False) -> Any:
    """Return how functions are compiled: for the CPU with or without checks, or for a GPU."""
    replaced: dict[Any, Any] = {}
    if not on_device:
        replaced[NativeLowering] = CheckedLowering if mode.debug else SiteLowering
    if mode.float_type:
        replaced[NopythonTypeInference] = NarrowInference
    elif on_device or mode.debug:
        replaced[NopythonTypeInference] = NotingInference

    class Compiler(CompilerBase):
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
