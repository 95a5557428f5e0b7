# SPDX-License-Identifier: MIT
"""The lists of objects that streams still use and of memory to be freed later, for Cython."""

from abi cimport hipStream_t

cdef extern from "<sched.h>" nogil:
    int sched_yield()

# Keep objects alive until the stream has done what was given to it so far.
cdef int hold(hipStream_t stream, int device, tuple objects) except -1
# Keep an object alive until no stream of the process is captured.
cdef int hold_while_captured(object owner) except -1
# Let go of what finished streams no longer use.
cdef int release_finished() except -1


# A collective that may wait for other ranks, as long as it exists.
cdef class RemoteWait:
    cdef int device, forks


# Note, before a collective is queued, that it may wait for other ranks.
cdef RemoteWait begin_remote_wait(int device)
# Whether memory of a device may be freed now, which waits for the device; `end_free` follows.
cdef bint begin_free(int device) except -1
cdef int end_free(int device) except -1
# Drop an owner of memory when no collective of its device waits for other ranks.
cdef int free_later(int device, object owner) except -1
