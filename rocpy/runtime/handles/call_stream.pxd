# SPDX-License-Identifier: MIT
"""The stream that orders a call of this thread, for Cython."""

from abi cimport hipEvent_t, hipStream_t

from rocpy._core cimport Status

cdef extern from "call_stream.hpp" namespace "rocpy" nogil:
    # A local variable of this type names the stream of a call until the function returns: a stream as stream= takes it, or None for the
    # current one of the operands' framework. The caller keeps the object.
    cppclass CallStream:
        CallStream()
        void enter(void *stream)
        # The same for what may be a part of another call, whose stream it keeps.
        void enter_outside(void *stream)
    void *call_stream_of_thread()
    Status wait_for_earlier_work(hipStream_t stream)
    Status wait_for_event(hipEvent_t event)


# Before elements of an operand are read ahead of the launch, here or by a framework: wait for the earlier work of the call's stream.
# Without a call there is nothing to wait for.
cdef int await_call_stream(int device_type) except -1
# Wait for the earlier work of a stream, or for None of the null stream, in whose order arrays in CPU memory are.
cpdef int await_stream(object stream) except -1
# Note that the call writes a tensor of torch's: where it is captured, each launch of the graph does.
cdef int note_write(object tensor) except -1
# Wait for the earlier work of a stream; where others are captured, so that their captures go on.
cdef int await_handle(hipStream_t c_stream) except -1 nogil
# DLPack's type of the device where an array lies, as far as it tells.
cdef int device_type_of(object array) except? -1
# Refuse a copy that waits for its stream, where that is captured: waiting would end the capture.
cdef int refuse_captured_wait(hipStream_t c_stream, str what, str do) except -1
