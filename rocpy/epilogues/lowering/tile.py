# SPDX-License-Identifier: MIT
"""The fused lowering on platforms that run tile programs: an expression as straight-line code over registers."""

from __future__ import annotations

import functools
from typing import Any

from rocpy.epilogues.expressions.expression import Expression, Node
from rocpy.epilogues.expressions.resolve import Pending, Resolved
from rocpy.epilogues.expressions.types import category
from rocpy.errors import UnsupportedError

__all__ = ["Code", "encode"]

_OPCODES = {
    "add": "ADD", "sub": "SUB", "mul": "MUL", "div": "DIV", "minimum": "MIN", "maximum": "MAX",
    "clamp_min": "MAX", "clamp_max": "MIN", "neg": "NEG",
    "abs": "ABS", "floor": "FLOOR", "ceil": "CEIL", "round": "RINT", "eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE",
    "gt": "GT", "ge": "GE", "and": "AND", "or": "OR", "not": "NOT", "where": "WHERE", "exp": "EXP", "log": "LOG",
    "sqrt": "SQRT", "rsqrt": "RSQRT", "tanh": "TANH", "erf": "ERF", "relu": "RELU", "sigmoid": "SIGMOID",
    "silu": "SILU", "gelu_tanh": "GELU", "gelu": "GELU_ERF",
}  # fmt: skip
# Whole numbers that an input may hold: each is one of the type that programs compute in.
_INPUTS = ("bool", "uint8", "int8")

Instruction = tuple[Any, ...]


class Code:
    """A tile program as data, and what it reads and writes.

    Parameters
    ----------
    instructions, result, pairs
        As :class:`rocpy.blaslt.engine.program.TileProgram` takes them.
    inputs
        Names, in the program's order.
    outputs
        Types of the results behind the first.
    """

    def __init__(
        self,
        instructions: list[Instruction],
        result: int,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        pairs: bool,
    ) -> None:
        self.instructions = instructions
        self.result = result
        self.inputs = inputs
        self.outputs = outputs
        self.pairs = pairs

    @functools.cached_property
    def program(self) -> Any:
        """The program for the platform."""
        from rocpy.blaslt.engine.program import TileProgram

        return TileProgram(self.instructions, self.result, len(self.inputs), self.outputs, pairs=self.pairs)


@functools.lru_cache(maxsize=256)
def encode(resolved: Resolved) -> Code:
    """Return a resolved expression as a tile program.

    Raises
    ------
    UnsupportedError
        If it computes in a type that programs do not, or casts to whole numbers.
    """
    expression = resolved.expression
    if not resolved.computes_as_product:
        raise UnsupportedError(
            f"epilogue {expression.name!r}: tile programs compute in one floating-point type, that of the product"
        )
    for name, (dtype, _) in resolved.inputs:
        if category(dtype) < 2 and dtype not in _INPUTS:
            raise UnsupportedError(
                f"epilogue {expression.name!r}: input {name} is {dtype}, which tile programs do not read"
            )
    halved = expression.halved
    picked = [node for node in expression.nodes if node.op in ("pick", "interleave")]
    if any(node.op == "interleave" for node in picked) or (picked and not halved):
        raise UnsupportedError(
            f"epilogue {expression.name!r}: a tile program returns either all columns or half of them"
        )
    writer = _Writer(resolved)
    registers = [writer.value(node_index, 0) for node_index in expression.outputs]
    types = resolved.out_types
    for number, register in enumerate(registers[1:]):
        writer.code.append(("OUTPUT", register, number))
    return Code(writer.code, registers[0], expression.used_inputs, tuple(types[1:]), halved)


class _Writer:
    """Writes the instructions of values, each once; values of a pair's two columns are two."""

    def __init__(self, resolved: Resolved) -> None:
        self.resolved = resolved
        self.expression: Expression = resolved.expression
        self.inputs = self.expression.used_inputs
        self.code: list[Instruction] = []
        self.registers: dict[tuple[int, int], int] = {}
        self.halves = self.expression.halves

    def value(self, node_index: int, lane: int) -> int:
        """Return the register of a node, in the first or the second column of a pair."""
        pending = Pending((node_index, lane), self.registers)
        while (one := pending.next()) is not None:
            if not pending.waits_for(self._operands(one)):
                self.registers[one] = self._write(self.expression.nodes[one[0]], *one)
        return self.registers[node_index, lane]

    def _operands(self, key: tuple[int, int]) -> list[tuple[int, int]]:
        node = self.expression.nodes[key[0]]
        return [(arg, node.value if node.op == "pick" else key[1]) for arg in node.args]

    def _write(self, node: Node, node_index: int, lane: int) -> int:
        if node.op == "x":
            return self._put("PARTNER" if lane else "VALUE")
        if node.op == "const":
            return self._put("CONSTANT", float(node.value))
        if node.op == "input":
            return self._put("INPUT", self.inputs.index(node.value))
        if node.op == "pick":
            inner = node.args[0]
            for one in self.expression.uses(inner):
                if self.expression.nodes[one].op == "input":
                    self._check_lanes(self.expression.nodes[one].value)
            return self.value(inner, node.value)
        args = [self.value(arg, lane) for arg in node.args]
        if node.op == "cast":
            return self._cast(node, node_index, args[0])
        if node.op == "clamp":
            return self._put("MIN", self._put("MAX", args[0], args[1]), args[2])
        return self._put(_OPCODES[node.op], *args)

    def _check_lanes(self, name: str) -> None:
        # An input of all columns would be read at every second one.
        raise UnsupportedError(
            f"epilogue {self.expression.name!r}: input {name} has one value per product column, but a tile program of "
            "column pairs reads one value per pair"
        )

    def _cast(self, node: Node, node_index: int, source: int) -> int:
        if category(node.value) == 2:
            return self._put("ROUND", source, node.value)
        last = (
            node_index in self.expression.outputs
            and self.resolved.out_types[self.expression.outputs.index(node_index)] == node.value
        )
        if node.value == "bool":
            return self._put("NE", source, self._put("CONSTANT", 0.0))
        if last and node.value == "int8":
            # As the results of integer products are stored: saturated, and rounded, which leaves whole numbers alone.
            # The largest int32 is no float, and those are what a program's results are stored from.
            return self._put("TRUNC", source)
        raise UnsupportedError(f"epilogue {self.expression.name!r}: a tile program's values are no {node.value}")

    def _put(self, opcode: str, *operands: Any) -> int:
        to = len(self.code)
        self.code.append((opcode, to, *operands))
        return to
