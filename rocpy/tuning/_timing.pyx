# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""Time of work on a stream, by events; whether a stream is being captured; which build of the library it is."""

cimport abi
from abi cimport hipStream_t

from rocpy import _core
from rocpy cimport _core as _c_core
from rocpy._core cimport Status
from rocpy.blaslt.engine.launch cimport StreamContext, borrow_context, release_context
from rocpy.runtime._capture cimport forbids_waiting
from rocpy.runtime.event cimport Event


cdef class Stopwatch:
    """Two events on one stream.

    Parameters
    ----------
    device : int
        Number of the stream's device.
    stream : int
        Its handle; 0 for the null stream.
    """

    cdef Event start, stop
    cdef hipStream_t c_stream

    def __init__(self, int device, size_t stream):
        self.start = Event(device=device)
        self.stop = Event(device=device)
        self.c_stream = <hipStream_t>stream

    def time_ms(self, work):
        """Call a function that gives work to the stream, wait for it, and return how long the stream took, in milliseconds."""
        abi.hipEventRecord(self.start.c_event, self.c_stream)
        work()
        abi.hipEventRecord(self.stop.c_event, self.c_stream)
        self.stop.synchronize()
        return self.start.elapsed_ms(self.stop)

    def close(self):
        """Give the events back."""
        self.start.close()
        self.stop.close()


def is_capturing(size_t stream):
    """Whether what is given to a stream goes into a graph (hipStreamIsCapturing), or the capture of another forbids to wait for it."""
    cdef abi.hipStreamCaptureStatus status = abi.hipStreamCaptureStatusNone
    if forbids_waiting():
        return True
    abi.hipStreamIsCapturing(<hipStream_t>stream, &status)
    return status != abi.hipStreamCaptureStatusNone


def library_identity(int device):
    """Return version and revision of hipBLASLt, the revision empty where the library does not tell (hipblasLtGetGitRevision)."""
    cdef StreamContext *context = NULL
    cdef Status status
    cdef int version = 0
    cdef char revision[1024]
    revision[0] = 0
    with nogil:
        status = borrow_context(device, NULL, &context)
    _c_core.check(status)
    try:
        abi.hipblasLtGetVersion(<abi.hipblasLtHandle_t>context.handle, &version)
        if _core.has("hipblasLtGetGitRevision"):
            abi.hipblasLtGetGitRevision(<abi.hipblasLtHandle_t>context.handle, revision)
    finally:
        release_context(context)
    return version, (<bytes>revision).decode("ascii", "replace")
