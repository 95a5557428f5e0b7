# SPDX-License-Identifier: MIT
"""The handle of a communicator for Cython."""

from abi cimport ncclComm_t
from libc.stdint cimport int64_t, uint64_t

from rocpy._dlpack cimport Operand
from rocpy.rccl._call cimport Call


# A call, as the trace has it.
cdef struct Record:
    uint64_t seq
    size_t count
    int kind, type, op, rank_argument
    double when


cdef class Handle:
    cdef ncclComm_t comm
    cdef readonly int rank, nranks, device_index
    cdef readonly str name
    cdef public double timeout_s
    cdef readonly uint64_t seq
    cdef uint64_t patience_ns
    cdef bint closed, has_patience
    cdef int generation
    cdef Record* ring
    cdef uint64_t noted
    cdef bytes c_name
    cdef object __weakref__
    cdef int adopt(self) except -1
    cdef int check(self) except -1
    cdef int set_patience(self, uint64_t nanoseconds) except -1
    cdef double seconds_of(self, object timeout_s) except -1
    cdef int rank_of(self, object rank, str what) except -1
    cdef object give(self, Call call, double seconds, bint block)
    # Gives RCCL's code, or NOT_DONE where the call was taken and has not ended yet.
    cdef int launch(self, Call call, double seconds) except -100
    cdef object await_end(self, Call call, double seconds)
    cdef object failure(self, int code, Call call)
    cdef object mark(self, Call call)
    cdef void note(self, Call call) noexcept


cdef class PreMulSum:
    cdef int number, type
    cdef Handle owner


cdef int64_t elements(const Operand* operand)
cdef int check_contiguous(const Operand* operand, str name) except -1
