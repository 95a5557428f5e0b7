# SPDX-License-Identifier: MIT
# Waiting for a stream that the user gave, as a callable.
from abi cimport hipStream_t


cdef class SynchronizeStream:
    cdef hipStream_t c_stream
