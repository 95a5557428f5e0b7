# SPDX-License-Identifier: MIT
# Waiting for a stream that the user gave, as a callable.
from abi cimport hipStream_t

from rocpy._operand cimport Operand


cdef class SynchronizeStream:
    cdef hipStream_t c_stream
    cdef int device_type
    cdef int device

    cdef int wait(self) except -1


# For a stream, and operands whose memory is like this one's.
cdef SynchronizeStream synchronization(hipStream_t c_stream, const Operand *like)
