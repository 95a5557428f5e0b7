# SPDX-License-Identifier: MIT
"""Accesses to memory as the runtime's debug mode tells them apart: what an instruction of LLVM's reads and writes."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from rocpy.cooperative.numba.llvm_types import I32, I64

READ, WRITE, ATOMIC, WRITE_SAME = 0, 1, 2, 3


def access_of(instruction: Any) -> tuple[int, Any, Any]:
    """Return (kind, pointer, value) of a memory access; the pointer is None for other instructions."""
    if isinstance(instruction, ir.LoadInstr):
        return READ, instruction.operands[0], None
    if isinstance(instruction, ir.StoreInstr):
        return WRITE, instruction.operands[1], instruction.operands[0]
    if isinstance(instruction, (ir.instructions.AtomicRMW, ir.instructions.CmpXchg)):
        return ATOMIC, instruction.operands[0], instruction.operands[-1]
    return READ, None, None


def shared_possibly(pointer: Any, function: Any) -> bool:
    """Return whether a pointer may lead beyond the thread's own stack and the module's constants."""
    root = pointer
    while isinstance(root, (ir.GEPInstr, ir.CastInstr)):
        root = root.operands[0]
    if isinstance(root, ir.instructions.CallInstr):
        return root.callee.name != "rocpy_simt_current"
    outputs = function.args[:2]  # where the result and an exception go
    return not (isinstance(root, (ir.AllocaInstr, ir.GlobalValue, ir.Constant)) or root in outputs)


def kind_of_store(builder: Any, pointer: Any, value: Any, align: int | None = None) -> Any:
    """Return what kind of access a store is: whether it changes what is there."""
    kind = pointer.type.pointee
    if value.type != kind or not isinstance(kind, (ir.IntType, ir.FloatType, ir.DoubleType)):
        return I32(WRITE)
    held = builder.load(pointer, align=align)
    if not isinstance(kind, ir.IntType):
        integer = I32 if isinstance(kind, ir.FloatType) else I64
        held, value = builder.bitcast(held, integer), builder.bitcast(value, integer)
    return builder.select(builder.icmp_unsigned("==", held, value), I32(WRITE_SAME), I32(WRITE))


def bits_of(builder: Any, value: Any) -> Any:
    """Return a 32 or 64-bit value as a 64-bit integer, 0 for other types."""
    integer = {ir.FloatType(): I32, ir.DoubleType(): I64}.get(value.type)
    if integer is not None:
        value = builder.bitcast(value, integer)
    if value.type == I32:
        return builder.zext(value, I64)
    return value if value.type == I64 else I64(0)
