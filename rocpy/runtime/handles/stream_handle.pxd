# SPDX-License-Identifier: MIT
"""The owner of a stream's handle for Cython, and what else is taken for a stream."""

from abi cimport hipStream_t

from rocpy.runtime.handles.owner cimport Owner


cdef class StreamHandle(Owner):
    cdef hipStream_t c_stream


# The handle of anything that stands for a stream: ours, hip-python's, torch's, CuPy's, objects with __cuda_stream__, numbers.
cdef int handle_of(object stream, hipStream_t* out) except -1
