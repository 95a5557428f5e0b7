# SPDX-License-Identifier: MIT
"""Stream for Cython, what else is taken for one, and the list of objects that streams still use."""

from abi cimport hipStream_t

from rocpy.runtime._owner cimport Owner


cdef class Stream(Owner):
    cdef hipStream_t c_stream


# What the capture of a stream into a rocpy.Graph keeps: objects that the graph's launches use, and what the streams were lent.
cdef class Capturing:
    cdef list objects
    cdef dict contexts


# Captures in progress, by HIP's number for each.
cdef dict captures
# The capture of a stream, None where it is not captured. One that another library opened is lent a handle and a workspace for good.
cdef Capturing capture_of(hipStream_t stream, int device)

# The handle of anything that stands for a stream: ours, hip-python's, torch's, CuPy's, objects with __cuda_stream__, numbers.
cdef int handle_of(object stream, hipStream_t* out) except -1
# Keep objects alive until the stream has done what was given to it so far.
cdef int hold(hipStream_t stream, int device, tuple objects) except -1
# Let go of what finished streams no longer use.
cdef int release_finished() except -1
