# SPDX-License-Identifier: MIT
"""Tile programs as the C ABI has them, for tests: structures by ctypes, opcodes as tile_opcodes.def numbers them."""

import ctypes
import re
from pathlib import Path

_DEFINITION = Path(__file__).parents[3] / "csrc" / "abi" / "tile_opcodes.def"
_ROW = re.compile(r'^ROCPY_TILE_OPCODE\((\w+), (\d+), (\d), "', re.MULTILINE)
OPCODES = {name: int(number) for name, number, _ in _ROW.findall(_DEFINITION.read_text(encoding="utf-8"))}
PAIRS = 1


class Instruction(ctypes.Structure):
    """rocpyExtInstruction_t."""

    _fields_ = (
        ("opcode", ctypes.c_uint16),
        ("destination", ctypes.c_uint16),
        ("sources", ctypes.c_uint16 * 3),
        ("index", ctypes.c_uint16),
        ("reserved", ctypes.c_uint32),
        ("immediate", ctypes.c_double),
    )


class Operand(ctypes.Structure):
    """rocpyExtProgramOperand_t."""

    _fields_ = (
        ("type", ctypes.c_int32),
        ("reserved", ctypes.c_uint32),
        ("row_stride", ctypes.c_int64),
        ("column_stride", ctypes.c_int64),
        ("batch_stride", ctypes.c_int64),
    )


class Program(ctypes.Structure):
    """rocpyExtProgram_t."""

    _fields_ = (
        ("instruction_count", ctypes.c_uint32),
        ("register_count", ctypes.c_uint32),
        ("input_count", ctypes.c_uint32),
        ("output_count", ctypes.c_uint32),
        ("result", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("instructions", ctypes.c_void_p),
        ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
    )


def instruction(name, destination=0, *sources, index=0, immediate=0.0):
    """One instruction, by the name of its opcode or by a number."""
    number = OPCODES[name] if isinstance(name, str) else name
    return Instruction(number, destination, (ctypes.c_uint16 * 3)(*sources), index, 0, immediate)


def program(instructions, *, result, inputs=(), outputs=(), registers=None, flags=0):
    """A program of instructions; operands are (type, row stride, column stride, batch stride)."""
    code = (Instruction * len(instructions))(*instructions)
    arrays = [(Operand * len(group))(*(Operand(x[0], 0, *x[1:]) for x in group)) for group in (inputs, outputs)]
    if registers is None:
        registers = 1 + max(x.destination for x in instructions)
    built = Program(
        len(instructions), registers, len(inputs), len(outputs), result, flags, *map(ctypes.addressof, (code, *arrays))
    )
    built.memory = (code, arrays)  # as long as the program
    return built
