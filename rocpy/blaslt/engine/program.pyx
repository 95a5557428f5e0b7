# SPDX-License-Identifier: MIT
"""Tile programs: straight-line code that the platform applies to a product while it is in cache, made of plain data."""

from libc.stdint cimport int32_t, uint32_t

from rocpy cimport _core

from rocpy.dtypes import lookup as _dtype
from rocpy.errors import InvalidProblemError, OutOfMemoryError

cdef extern from *:
    """
    #include "table.hpp"
    #include "tile_program.hpp"
    namespace {
    struct Opcode {
      const char *name;
      int number, sources;
    };
    const Opcode opcodes[] = {
    #define ROCPY_TILE_OPCODE(name, number, sources, meaning) {#name, number, sources},
    #include "tile_opcodes.def"
    #undef ROCPY_TILE_OPCODE
    };
    const int opcode_count = sizeof opcodes / sizeof opcodes[0];

    void add_instruction(rocpy::TileProgram *program, int opcode, unsigned destination, const unsigned *sources, unsigned index,
                         double immediate) {
      rocpyExtInstruction_t made{};
      made.opcode = static_cast<uint16_t>(opcode);
      made.destination = static_cast<uint16_t>(destination);
      for (int i = 0; i < 3; i++) made.sources[i] = static_cast<uint16_t>(sources[i]);
      made.index = static_cast<uint16_t>(index);
      made.immediate = immediate;
      program->code.push_back(made);
    }
    // Where the library lacks the row, its trampoline answers so; where it does not, there is no such descriptor.
    bool runs_programs() { return rocpy::table.rocpyExtMatmulDescSetProgram(nullptr, nullptr) != HIPBLAS_STATUS_NOT_SUPPORTED; }
    }  // namespace
    """
    struct Opcode:
        const char *name
        int number
        int sources
    const Opcode opcodes[1]
    const int opcode_count
    void add_instruction(ProgramCode *program, int opcode, unsigned destination, const unsigned *sources, unsigned index,
                         double immediate) except +
    bint runs_programs() noexcept nogil

cdef extern from "types_extension.h" nogil:
    enum:
        ROCPY_EXT_PROGRAM_PAIRS
        ROCPY_EXT_PROGRAM_MOST_INSTRUCTIONS
        ROCPY_EXT_PROGRAM_MOST_INPUTS
        ROCPY_EXT_PROGRAM_MOST_OUTPUTS

cdef int _MOST = ROCPY_EXT_PROGRAM_MOST_INSTRUCTIONS  # and of registers
cdef int _MOST_INPUTS = ROCPY_EXT_PROGRAM_MOST_INPUTS, _MOST_OUTPUTS = ROCPY_EXT_PROGRAM_MOST_OUTPUTS
cdef dict _BYTES = {"uint8": 8, "bool": 8}  # HIP_R_8U: of types that no product takes
# Number and sources of each opcode by its name.
OPCODES = {opcodes[i].name.decode(): (opcodes[i].number, opcodes[i].sources) for i in range(opcode_count)}


cdef bint has_programs() noexcept nogil:
    return runs_programs()


cdef int32_t operand_type(str name) except -1:
    return _BYTES[name] if name in _BYTES else _dtype(name).hip


def available():
    """Return whether the platform runs tile programs."""
    _core.ensure()
    return bool(runs_programs())


cdef unsigned whole(object value, int most, str what, object instruction) except? 0xffffffff:
    if not isinstance(value, int) or not 0 <= value < most:
        raise InvalidProblemError(
            f"tile program, {instruction!r}: {what} is {value!r}, expected an integer below {most}"
        )
    return <unsigned>value


cdef class TileProgram:
    """A tile program, in place of an epilogue's activation.

    Parameters
    ----------
    instructions
        In their order, each a tuple that begins with the name of an opcode of ``csrc/abi/tile_opcodes.def``: ``("VALUE", to)``,
        ``("PARTNER", to)``, ``("AUX", to)``, ``("INPUT", to, which)``, ``("CONSTANT", to, number)``, ``("ROUND", to, x, dtype)``,
        ``("OUTPUT", x, which)``, and for the others ``(name, to, *sources)``. ``to`` and sources are registers, from 0 on.
    result
        The register that holds the result after the last instruction.
    inputs
        Number of inputs.
    outputs
        Element types of what is written beside the result; ``"bool"`` and ``"uint8"`` too, for truth values.
    pairs
        Whether two neighbouring columns of the product, ``VALUE`` and ``PARTNER``, make one of the result.

    Raises
    ------
    InvalidProblemError
        If an instruction is none, or there is too much of something. What only the platform can tell, it tells when it plans.

    Examples
    --------
    >>> from rocpy.blaslt.engine.program import TileProgram
    >>> TileProgram([("VALUE", 0), ("SILU", 0, 0), ("INPUT", 1, 0), ("ADD", 0, 0, 1)], result=0, inputs=1)
    TileProgram([('VALUE', 0), ('SILU', 0, 0), ('INPUT', 1, 0), ('ADD', 0, 0, 1)], result=0, inputs=1)
    """

    def __init__(self, instructions, result, inputs=0, outputs=(), *, pairs=False):
        cdef ProgramCode fresh
        cdef unsigned sources[3]
        cdef unsigned to, index, registers = 0
        cdef double immediate
        cdef int i
        self.instructions = tuple([tuple(one) for one in instructions])
        self.outputs = tuple([one if one in _BYTES else _dtype(one).name for one in outputs])
        if not 0 < len(self.instructions) <= _MOST or not 0 <= inputs <= _MOST_INPUTS or len(self.outputs) > _MOST_OUTPUTS:
            raise InvalidProblemError(
                f"tile program: {len(self.instructions)} instructions, {inputs} inputs, {len(self.outputs)} outputs; "
                f"expected 1 to {_MOST}, at "
                f"most {_MOST_INPUTS} and at most {_MOST_OUTPUTS}"
            )
        self.inputs = inputs
        self.pairs = pairs
        for one in self.instructions:
            opcode = OPCODES.get(one[0]) if one else None
            if opcode is None:
                raise InvalidProblemError(
                    f"tile program, {one!r}: unknown opcode; the opcodes are {', '.join(OPCODES)}"
                )
            name, number, count = one[0], opcode[0], opcode[1]
            more = 1 if name in ("INPUT", "CONSTANT", "ROUND", "OUTPUT") else 0
            wanted = 1 + (name != "OUTPUT") + count + more
            if len(one) != wanted:
                raise InvalidProblemError(
                    f"tile program, {one!r}: got {len(one)} members, expected {wanted} for {name}"
                )
            operands = one[1:]
            to = index = 0
            immediate = 0.0
            sources[0] = sources[1] = sources[2] = 0
            if name != "OUTPUT":
                to = whole(operands[0], _MOST, "register", one)
                registers = max(registers, to + 1)
                operands = operands[1:]
            for i in range(count):
                sources[i] = whole(operands[i], _MOST, "register", one)
                registers = max(registers, sources[i] + 1)
            if name == "CONSTANT":
                immediate = float(operands[0])
            elif name == "ROUND":
                index = _dtype(operands[1]).hip
            elif more:
                index = whole(operands[-1], inputs if name == "INPUT" else len(self.outputs), "number", one)
            add_instruction(&fresh, number, to, sources, index, immediate)
        self.result = result
        fresh.result = whole(result, registers, "result", "result")
        fresh.register_count = registers
        fresh.input_count = inputs
        fresh.output_count = <uint32_t>len(self.outputs)
        fresh.flags = ROCPY_EXT_PROGRAM_PAIRS if pairs else 0
        self.cached = keep_program(fresh)
        if self.cached == NULL:
            raise OutOfMemoryError("no memory for a tile program")

    @property
    def id(self):
        """A number that programs of the same content share, and no others."""
        return self.cached.id

    def __repr__(self):
        more = "".join([f", {name}={value!r}" for name, value in (("inputs", self.inputs), ("outputs", self.outputs), ("pairs", self.pairs)) if value])
        return f"TileProgram({list(self.instructions)!r}, result={self.result}{more})"

    def __eq__(self, other):
        return type(other) is TileProgram and (<TileProgram>other).cached == self.cached and (<TileProgram>other).outputs == self.outputs

    def __hash__(self):
        return hash(self.cached.id)


cdef dict _STAND_INS = {}


cdef TileProgram stand_in(object row):
    cdef TileProgram program
    if not row.program:
        return None
    program = _STAND_INS.get(row.name)
    if program is None:
        if row.aux == "load":
            code = [("VALUE", 0), ("AUX", 1), (row.program, 1, 1), ("MUL", 0, 0, 1)]
        else:
            code = [("VALUE", 0), (row.program, 0, 0)]
        program = _STAND_INS[row.name] = TileProgram(code, 0)
    return program
