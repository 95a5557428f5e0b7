# SPDX-License-Identifier: MIT
"""The last calls of a rank, for Cython."""

from libc.stdint cimport uint64_t

cdef enum:
    TRACE_LENGTH = 256


# A call, as the trace has it. `number`: among those that the platform took, or 0.
cdef struct Record:
    uint64_t seq, number
    size_t count
    int kind, type, op, rank_argument
    double when


cdef class Records:
    cdef Record ring[TRACE_LENGTH]
    cdef uint64_t noted
    # Gives the call's index, for `set_number`.
    cdef uint64_t note(self, uint64_t seq, int kind, int type, size_t count, int op, int rank_argument) noexcept
    cdef void set_number(self, uint64_t index, uint64_t number) noexcept
    cdef list rows(self)
