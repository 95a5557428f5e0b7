# SPDX-License-Identifier: MIT
"""The list of objects that streams still use, for Cython."""

from abi cimport hipStream_t

# Keep objects alive until the stream has done what was given to it so far.
cdef int hold(hipStream_t stream, int device, tuple objects) except -1
# Keep an object alive until no stream of the process is captured.
cdef int hold_while_captured(object owner) except -1
# A stream of the device with unfinished work that needs objects; False: there is none.
cdef bint find_busy_stream(int device, hipStream_t* stream) except -1
# Let go of what finished streams no longer use.
cdef int release_finished() except -1
