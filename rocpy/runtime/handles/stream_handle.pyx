# SPDX-License-Identifier: MIT
"""What is taken for a stream, and its handle."""

from rocpy.errors import InvalidOperandError

from abi cimport hipStream_t

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


_ACCEPTED = "rocpy.Stream, a stream of hip-python, torch or CuPy, an object with __cuda_stream__, or a handle as an int"


cdef int handle_of(object stream, hipStream_t* out, StreamUse* use) except -1:
    cdef object handle
    if isinstance(stream, StreamHandle):
        (<StreamHandle>stream).check()
        out[0] = (<StreamHandle>stream).c_stream
        use[0] = (<StreamHandle>stream).use
        return 0
    if isinstance(stream, int) and not isinstance(stream, bool):
        handle = stream
    elif hasattr(stream, "__cuda_stream__"):
        pair = stream.__cuda_stream__() if callable(stream.__cuda_stream__) else stream.__cuda_stream__
        try:
            version, handle = pair
        except (TypeError, ValueError):
            version, handle = None, None
        if version != 0 or not isinstance(handle, int):
            raise InvalidOperandError(f"stream: {type(stream).__name__}.__cuda_stream__ gave {pair!r}, expected (0, handle)")
    elif isinstance(getattr(stream, "cuda_stream", None), int):
        handle = stream.cuda_stream
    elif isinstance(getattr(stream, "ptr", None), int):
        handle = stream.ptr
    elif hasattr(type(stream), "__int__") and not isinstance(stream, (float, bool)) and not hasattr(stream, "shape"):
        handle = int(stream)
    else:
        raise InvalidOperandError(f"stream: got {type(stream).__name__}, expected {_ACCEPTED}")
    if not 0 <= handle < 1 << 64:
        raise InvalidOperandError(f"stream: {handle} is no handle")
    out[0] = <hipStream_t><size_t>handle
    return 0
