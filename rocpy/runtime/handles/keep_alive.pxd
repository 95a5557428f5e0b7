# SPDX-License-Identifier: MIT
"""The lists of objects that streams still use, and the collectives that may wait for other ranks, for Cython."""

from abi cimport hipEvent_t, hipStream_t


# A point of a stream: its event, which is used again once nobody refers to the mark.
cdef class Mark:
    cdef hipEvent_t event
    # Of the event: the device, and the forks and resets before it was created.
    cdef int device, forks, resets
    # What the stream uses until then, while it is listed.
    cdef object objects


# The point at which the stream has done what was given to it so far.
cdef Mark mark_stream(hipStream_t stream, int device)
# Keep objects alive until then; gives the point.
cdef Mark hold(hipStream_t stream, int device, tuple objects)
# Keep them alive until a point of the stream that nothing is kept for yet.
cdef int hold_until(Mark mark, hipStream_t stream, tuple objects) except -1
# Let go of what finished streams no longer use, and free what waited for collectives that have ended.
cdef int release_finished() except -1


# A collective that may wait for other ranks, as long as it exists.
cdef class RemoteWait:
    cdef int forks


# Note, before a collective is queued, that it may wait for other ranks.
cdef RemoteWait begin_remote_wait()
