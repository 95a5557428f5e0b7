# SPDX-License-Identifier: MIT
"""Captures in progress and the graphs of other libraries, for Cython."""

from abi cimport hipStream_t
from libcpp.vector cimport vector


# Handles and workspaces that a graph's products use, given back with the last reference.
cdef class Lent:
    cdef vector[size_t] contexts
    cdef int forks  # that led to the process which was lent them


# What the capture of a stream into a graph keeps: objects that the graph's launches use, and what the streams were lent.
cdef class Capturing:
    cdef list objects
    cdef dict contexts
    cdef Lent lent
    cdef bint keeps_operands
    cdef list written  # tensors of torch's whose memory a launch writes
    cdef object before  # the point of the stream at which a capture of rocpy.Graph began
    cdef int keep(self, object objects, object tensor=*) except -1
    cdef int note_write(self, object tensor) except -1
    cdef int end(self, tuple key) except -1


# Captures in progress, by HIP's number for each: of rocpy.Graph, and of other libraries, of which nobody tells when they end.
cdef dict captures
cdef dict foreign_captures
# By a number of rocpy's own: graphs of other libraries that may still be launched.
cdef dict foreign_graphs

# Refuse a handle for which HIP gave this status, if it says that there is no such stream.
cdef int refuse_unknown(hipStream_t stream, int code) except -1
# The capture of a stream, None where it is not captured.
cdef Capturing capture_of(hipStream_t stream, int device)
# By HIP's number: the thread that a capture of rocpy.Graph forbids to wait for work, None for every thread; relaxed ones forbid nothing.
cdef dict forbidden_threads
# Whether a capture forbids this thread to wait for any work: HIP would end it.
cdef bint forbids_waiting() except -1
# Whether a capture was opened by another library.
cdef bint is_foreign(Capturing capturing)
# Keep memory of rocpy's own where another library captures a stream: its graph may be launched at any time.
cdef int keep_with_foreign_graph(hipStream_t stream, int device, object owner) except -1
# Leave a capture of rocpy.Graph, by its number, to whoever can end it.
cdef int disown(unsigned long long number, hipStream_t stream) except -1
# Drop what belonged to graphs of other libraries that are gone.
cdef int drop_gone_graphs() except -1
# Leave what belongs to a parent process as it is.
cdef int forget_captures() except -1
