# SPDX-License-Identifier: MIT
# Tile programs as data, for the planner: code of which the process keeps one of each content.
from libc.stdint cimport int32_t, int64_t, uint32_t
from libcpp cimport bool as c_bool

cdef extern from "tile_program.hpp" namespace "rocpy" nogil:
    cdef cppclass ProgramCode "rocpy::TileProgram":
        ProgramCode()
        uint32_t register_count
        uint32_t input_count
        uint32_t output_count
        uint32_t result
        uint32_t flags
        int64_t id
    const ProgramCode *keep_program(const ProgramCode &program) noexcept


cdef class TileProgram:
    cdef const ProgramCode *cached
    cdef readonly tuple instructions
    cdef readonly object result
    cdef readonly int inputs
    cdef readonly tuple outputs
    cdef readonly bint pairs


# The hipDataType of an input or output by the name of its type.
cdef int32_t operand_type(str name) except -1
# Whether the platform runs tile programs.
cdef bint has_programs() noexcept nogil
# The program in place of the activation of an epilogue that hipBLASLt has no number for; None where there is none.
cdef TileProgram stand_in(object row)
