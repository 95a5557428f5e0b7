# SPDX-License-Identifier: MIT
"""Stream for Cython, what else is taken for one, and the list of objects that streams still use."""

from abi cimport hipStream_t

from rocpy.runtime._owner cimport Owner


cdef class Stream(Owner):
    cdef hipStream_t c_stream


# The handle of anything that stands for a stream: ours, hip-python's, torch's, CuPy's, objects with __cuda_stream__, numbers.
cdef int handle_of(object stream, hipStream_t* out) except -1
# Keep objects alive until the stream has done what was given to it so far.
cdef int hold(hipStream_t stream, int device, tuple objects) except -1
# Let go of what finished streams no longer use.
cdef int release_finished() except -1
