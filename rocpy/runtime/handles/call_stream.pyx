# SPDX-License-Identifier: MIT
"""The order between the work of a call's stream and what reads the call's operands before its launch.

A launch reads its operands in the order of its stream. What must be copied, packed or looked at before it is read by the CPU, or by a
framework on a stream of its own, and the stream's earlier work may be what writes it: whoever reads so calls await_call_stream() first.
"""

cimport abi
from abi cimport hipStream_t

from rocpy cimport _core
from rocpy._core cimport Status
from rocpy._dlpack cimport kDLCPU, kDLROCM
from rocpy.runtime._capture cimport Capturing, captures
from rocpy.runtime.handles.keep_alive cimport Mark
from rocpy.runtime.handles.stream_handle cimport StreamUse, handle_of

from rocpy.errors import UnsupportedError
from rocpy.platform import current as current_platform


cdef Capturing capture_in_progress(hipStream_t c_stream):
    """Return the capture of rocpy.Graph that a stream is part of, or None."""
    cdef abi.hipStreamCaptureStatus state = abi.hipStreamCaptureStatusNone
    cdef unsigned long long number = 0
    if not captures or c_stream == NULL:
        return None
    if abi.slot_hipStreamGetCaptureInfo(c_stream, &state, &number) != 0:
        abi.slot_hipGetLastError()
        return None
    return captures.get(number) if state == abi.hipStreamCaptureStatusActive else None


cdef int await_handle(hipStream_t c_stream) except -1 nogil:
    return _core.check(wait_for_earlier_work(c_stream))


cpdef int await_stream(object stream) except -1:
    cdef hipStream_t c_stream = NULL
    cdef StreamUse use
    cdef Status status
    cdef Capturing capturing
    cdef Mark before
    if stream is not None:
        handle_of(stream, &c_stream, &use)
    capturing = capture_in_progress(c_stream)
    if capturing is None:
        with nogil:
            status = wait_for_earlier_work(c_stream)
    else:  # the work of the capture itself only follows
        before = capturing.before
        with nogil:
            status = wait_for_event(before.event)
    return _core.check(status)


cdef int note_write(object tensor) except -1:
    cdef hipStream_t c_stream = NULL
    cdef StreamUse use
    cdef Capturing capturing
    cdef void *stream = call_stream_of_thread()
    if not captures or stream == NULL or <object>stream is None:
        return 0
    handle_of(<object>stream, &c_stream, &use)
    capturing = capture_in_progress(c_stream)
    return 0 if capturing is None else capturing.note_write(tensor)


cdef int await_call_stream(int device_type) except -1:
    cdef void *stream = call_stream_of_thread()
    if stream == NULL:
        return 0
    # Without a stream of the call, the framework copies on the current one, which is the product's; where the device has memory of its
    # own, memory of the CPU is copied by the null stream. Work of a stream may write memory of the CPU there too: pinned memory.
    if <object>stream is None and (device_type != kDLCPU or not current_platform().host_memory):
        return 0
    return await_stream(<object>stream)


cdef int device_type_of(object array) except? -1:
    try:
        if hasattr(array, "__dlpack_device__"):
            return array.__dlpack_device__()[0]
        return kDLROCM if hasattr(array, "__cuda_array_interface__") else kDLCPU
    except Exception:  # whoever reads the array says what is wrong with it
        return kDLCPU


def await_operand(array):
    """Wait for the earlier work of the call's stream; for code that is about to copy an operand, or to look at its elements."""
    if call_stream_of_thread() != NULL:
        await_call_stream(device_type_of(array))


def passes_stream():
    """Whether the call names the stream that it runs on, which need not be the current one of the operands' framework."""
    cdef void *stream = call_stream_of_thread()
    return stream != NULL and <object>stream is not None


cdef int refuse_captured_wait(hipStream_t c_stream, str what, str do) except -1:
    cdef abi.hipStreamCaptureStatus state = abi.hipStreamCaptureStatusNone
    if abi.slot_hipStreamIsCapturing(c_stream, &state) != 0:
        abi.slot_hipGetLastError()  # the wait will say what is wrong with the stream
    elif state != abi.hipStreamCaptureStatusNone:
        raise UnsupportedError(
            f"stream: it is being captured into a graph, and {what}, which a graph cannot contain; {do}")
    return 0
