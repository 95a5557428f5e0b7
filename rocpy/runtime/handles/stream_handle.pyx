# SPDX-License-Identifier: MIT
"""What is taken for a stream, and its handle."""

from numbers import Number

from rocpy._integers import integer_of
from rocpy._messages.choices import shown
from rocpy.errors import InvalidOperandError

cimport abi
from abi cimport hipStream_t
from libc.stdint cimport int32_t

from rocpy._core cimport Library, raise_status
from rocpy.runtime._capture cimport refuse_unknown
from rocpy.runtime.handles.owner cimport Owner


cdef class StreamHandle(Owner):
    """The owner of a hipStream_t: what a graph needs of the `Stream` that it captures."""

    def __cinit__(self):
        self.c_stream = NULL

    @property
    def handle(self):
        """The ``hipStream_t`` as a number."""
        self.check()
        return <size_t>self.c_stream


def hold_stream(stream):
    """Return what stands for a stream in a call of several steps: another thread may close a Stream after the first.

    A `Stream` of rocpy's is represented by its handle, which stays good until the last reference to what is returned
    goes; any other stream is returned as it is.

    Raises
    ------
    ClosedError
        If the stream has been closed.
    """
    cdef StreamHandle source, copy
    if not isinstance(stream, StreamHandle):
        return stream
    source = stream
    source.check()
    copy = StreamHandle.__new__(StreamHandle)
    copy.c_stream, copy.use = source.c_stream, source.use
    copy.device_index, copy.generation, copy.closed = source.device_index, source.generation, False
    return copy


_ACCEPTED = "rocpy.Stream, a stream of hip-python, torch or CuPy, an object with __cuda_stream__, or a handle as an int"


cdef int device_of_stream(object stream, hipStream_t c_stream, int* device) except -1:
    cdef int32_t code
    if isinstance(stream, StreamHandle):
        device[0] = (<StreamHandle>stream).device_index
    elif c_stream != NULL:
        code = abi.slot_hipStreamGetDevice(c_stream, device)
        if code != 0:
            abi.slot_hipGetLastError()
            refuse_unknown(c_stream, code)
            raise_status(Library.hip, code, b"hipStreamGetDevice")
    else:
        abi.hipGetDevice(device)
    return 0


def stream_device(stream):
    """Return the number of the device that a stream belongs to."""
    cdef hipStream_t c_stream = NULL
    cdef StreamUse use
    cdef int device = 0
    handle_of(stream, &c_stream, &use)
    device_of_stream(stream, c_stream, &device)
    return device


cdef int handle_of(object stream, hipStream_t* out, StreamUse* use) except -1:
    cdef object handle = None
    if isinstance(stream, StreamHandle):
        (<StreamHandle>stream).check()
        out[0] = (<StreamHandle>stream).c_stream
        use[0] = (<StreamHandle>stream).use
        return 0
    if type(stream) is int:
        handle = stream
    elif hasattr(stream, "__cuda_stream__"):
        pair = stream.__cuda_stream__() if callable(stream.__cuda_stream__) else stream.__cuda_stream__
        try:
            version, handle = pair
        except (TypeError, ValueError):
            version, handle = None, None
        if version != 0 or not isinstance(handle, int):
            raise InvalidOperandError(
                f"stream: {type(stream).__name__}.__cuda_stream__ returned {pair!r}, expected (0, handle)"
            )
    elif isinstance(getattr(stream, "cuda_stream", None), int):
        handle = stream.cuda_stream
    elif isinstance(getattr(stream, "ptr", None), int):
        handle = stream.ptr
    elif isinstance(stream, Number):  # int() of a fraction would drop what follows the point
        handle = integer_of(stream)
    elif hasattr(type(stream), "__int__") and not hasattr(stream, "shape"):
        handle = int(stream)
    if handle is None:
        raise InvalidOperandError(f"stream: got {type(stream).__name__}, expected {_ACCEPTED}")
    if not 0 <= handle < 1 << 64:
        raise InvalidOperandError(f"stream: {shown(handle)} is not a handle")
    out[0] = <hipStream_t><size_t>handle
    return 0
