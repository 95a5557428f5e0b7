# SPDX-License-Identifier: MIT
"""The owner of a stream's handle for Cython, and what else is taken for a stream."""

from abi cimport hipStream_t

from rocpy._core cimport Status
from rocpy.runtime.handles.owner cimport Owner

cdef extern from "owned_stream.hpp" namespace "rocpy" nogil:
    # A local variable of this type keeps the stream that handle_of() filled it with from being destroyed before the function returns.
    cppclass StreamUse:
        StreamUse()
    Status own_stream(hipStream_t stream, int device, StreamUse* use)
    Status end_use(StreamUse* use)


cdef class StreamHandle(Owner):
    cdef hipStream_t c_stream
    cdef StreamUse use


# The handle of anything that stands for a stream: ours, hip-python's, torch's, CuPy's, objects with __cuda_stream__, numbers.
# Of ours, `use` keeps the handle good: another thread may close the Stream meanwhile.
cdef int handle_of(object stream, hipStream_t* out, StreamUse* use) except -1

# The device that a stream, of which handle_of() gave the handle, belongs to; the null stream is the current device's.
cdef int device_of_stream(object stream, hipStream_t c_stream, int* device) except -1
