# SPDX-License-Identifier: MIT
"""The last calls of a rank, for Cython."""

from libc.stdint cimport uint64_t

from rocpy.rccl.engine.call cimport Call

cdef enum:
    TRACE_LENGTH = 256


# A call, as the trace has it. `number`: among those that the platform took, or 0 where that may differ.
cdef struct Record:
    uint64_t seq, number
    size_t count
    int kind, type, op, rank_argument
    double when


cdef class Records:
    cdef Record ring[TRACE_LENGTH]
    cdef uint64_t noted
    # How many collectives there were, how many calls between two ranks, and how many of either that take a stream: as the
    # platform counts them.
    cdef uint64_t collectives, transfers, numbered
    # Number a call that goes to the platform, and list it.
    cdef int begin(self, Call call) except -1
    # The same for one that takes no stream.
    cdef void begin_alone(self, int kind) noexcept
    cdef void add(
        self, uint64_t seq, int kind, int type, size_t count, int op, int rank_argument, double when, uint64_t number
    ) noexcept
    # Take the last call back: the platform refused it.
    cdef void refuse(self, Call call) noexcept
    # Take the last call back: the platform took it, and refused its group.
    cdef void withdraw(self, Call call) noexcept
    # Take the last call back, which takes no stream.
    cdef void withdraw_alone(self) noexcept
    cdef list rows(self)
