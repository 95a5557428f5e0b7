# SPDX-License-Identifier: MIT
"""Graph: work of a stream that is captured once and launched many times."""

import warnings
from threading import get_ident

from rocpy._messages.choices import is_choice, shown
from rocpy._signatures import signature_like
from rocpy.errors import InvalidOperandError, InvalidProblemError, RocpyError, RocpyWarning
from rocpy.runtime._foreign import count_writes

cimport abi
cimport cython
from abi cimport hipStream_t

from rocpy cimport _core
from rocpy._core cimport Library, raise_status
from rocpy.runtime cimport device as _device
from rocpy.runtime._capture cimport Capturing, Lent, capture_of, captures, disown, forbidden_threads
from rocpy.runtime.handles.keep_alive cimport hold, mark_stream
from rocpy.runtime.handles.owner cimport Owner
from rocpy.runtime.handles.stream_handle cimport StreamHandle, StreamUse, device_of_stream, handle_of

_MODES = ("global", "thread_local", "relaxed")  # by HIP's numbers


cdef class Graph(Owner):
    """Work of a stream, captured once and launched many times (hipGraphInstantiate, hipGraphLaunch, hipGraphExecDestroy).

    Created by :meth:`rocpy.Stream.capture`. Nothing runs in the ``with`` block: the work submitted to the stream, and to streams that
    join it through events, becomes the graph. Each launch then reads the operands as they are at that time and writes to the same
    results; the graph keeps them alive.

    Parameters
    ----------
    stream : Stream
        The stream to capture.
    mode : str
        As for :meth:`rocpy.Stream.capture`.

    Raises
    ------
    InvalidOperandError
        The stream is not a :class:`rocpy.Stream`.
    InvalidProblemError
        There is no such mode.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> values = np.zeros(2, np.uint8)
    >>> with rocpy.Buffer(2, "uint8") as buffer, rocpy.Stream(nonblocking=True) as stream:
    ...     with stream.capture() as graph:
    ...         buffer.fill(7, stream=stream)
    ...     graph.launch()
    ...     stream.synchronize()
    ...     graph.node_count
    1
    """

    __signature__ = signature_like(lambda stream, mode="thread_local": None)

    cdef StreamHandle stream
    cdef int mode
    cdef abi.hipGraph_t c_graph
    cdef abi.hipGraphExec_t c_exec
    cdef bint capturing
    cdef unsigned long long number
    cdef list objects, written
    cdef Lent lent

    def __cinit__(self):
        self.c_graph = NULL
        self.c_exec = NULL
        self.capturing = False

    @cython.embedsignature(False)
    def __init__(self, stream, mode="thread_local"):
        if not isinstance(stream, StreamHandle):
            raise InvalidOperandError(f"stream: got {type(stream).__name__}, expected a rocpy.Stream")
        if not is_choice(mode, _MODES):
            raise InvalidProblemError(f"mode: got {shown(mode)}, expected one of {', '.join(_MODES)}")
        self.stream = stream
        self.stream.check()
        self.device_index = self.stream.device_index
        self.mode = _MODES.index(mode)
        self.opened()

    cdef int check(self) except -1:
        Owner.check(self)
        if self.c_exec == NULL:
            raise InvalidProblemError("this Graph has captured nothing yet; use `with stream.capture() as graph:` and launch it after the block")
        return 0

    def __enter__(self):
        cdef Capturing capturing = Capturing()
        cdef abi.hipStreamCaptureStatus state
        Owner.check(self)
        if self.capturing or self.c_exec != NULL:
            raise InvalidProblemError("this Graph has been captured; ask the stream for another one with stream.capture()")
        self.stream.check()
        capturing.before = mark_stream(self.stream.c_stream, self.stream.device_index)
        abi.hipStreamBeginCapture(self.stream.c_stream, <abi.hipStreamCaptureMode>self.mode)
        self.capturing = True
        try:
            abi.hipStreamGetCaptureInfo(self.stream.c_stream, &state, &self.number)
            captures[self.number] = capturing
            if self.mode != abi.hipStreamCaptureModeRelaxed:
                forbidden_threads[self.number] = None if self.mode == abi.hipStreamCaptureModeGlobal else get_ident()
            # The stream's handle and workspace for this capture, made before the first product asks.
            capture_of(self.stream.c_stream, self.stream.device_index)
        except BaseException:
            self.end(discard=True)
            raise
        return self

    cdef int end(self, bint discard) except -1:
        """End the capture and take what it kept; without a graph where that is not wanted."""
        cdef Capturing capturing
        cdef abi.hipStreamCaptureStatus state = abi.hipStreamCaptureStatusNone
        cdef int previous
        cdef int code = <int>abi.slot_hipStreamEndCapture(self.stream.c_stream, &self.c_graph)
        if code != 0:
            self.c_graph = NULL
            # Where the call was not this thread's to make, the capture goes on, and is still to be ended.
            abi.slot_hipStreamIsCapturing(self.stream.c_stream, &state)
            abi.slot_hipGetLastError()
            if state != abi.hipStreamCaptureStatusNone:
                raise_status(Library.hip, code, b"hipStreamEndCapture")
        self.capturing = False
        capturing = captures.pop(self.number, None)
        forbidden_threads.pop(self.number, None)
        if capturing is not None:
            self.objects, self.written = capturing.objects, capturing.written
            for key in list(capturing.contexts):
                capturing.end(key)
            self.lent = capturing.lent
        if discard or code != 0:
            self.let_go()
            return 0 if discard else raise_status(Library.hip, code, b"hipStreamEndCapture")
        previous = _device.enter(self.device_index)
        try:
            abi.hipGraphInstantiate(&self.c_exec, self.c_graph, NULL, NULL, 0)
        except BaseException:
            self.c_exec = NULL
            self.let_go()
            raise
        finally:
            _device.leave(previous)
        return 0

    cdef int let_go(self) except -1:
        Owner.close(self)
        self.objects = self.written = self.lent = None
        return 0

    def __exit__(self, kind, error, traceback):
        if self.capturing:
            self.end(discard=kind is not None)

    def __del__(self):
        failure = None
        if self.capturing and _device.is_lost(self.generation, self.device_index):
            self.capturing = False  # the capture is the parent's of a fork, or was ended by a reset
        if self.capturing:
            try:
                self.end(discard=True)
            except RocpyError as error:
                self.capturing = False
                disown(self.number, self.stream.c_stream)
                failure = error
        Owner.__del__(self)
        if failure is not None:  # once all is given back, since warnings may be errors
            warnings.warn(f"Graph: it was dropped in its block, and its stream is still captured: {failure}", RocpyWarning, stacklevel=1)

    @property
    def handle(self):
        """The ``hipGraphExec_t`` as a number.

        Whoever launches it by other means waits for these launches before the graph is closed or dropped.
        """
        self.check()
        return <size_t>self.c_exec

    @property
    def is_captured(self):
        """Whether it can be launched: it has captured work, has not been closed, and its device has not been reset."""
        return self.c_exec != NULL and not _device.is_lost(self.generation, self.device_index)

    @property
    def node_count(self):
        """Number of nodes: what the library of each call queues, which are kernels, fills, copies and host functions."""
        cdef size_t count = 0
        self.check()
        abi.hipGraphGetNodes(self.c_graph, NULL, &count)
        return count

    def launch(self, stream=None):
        """Queue the work once on a stream (hipGraphLaunch); the host does not wait.

        What calls of rocpy write in it is written: the versions of torch's tensors rise, by which autograd and a Weight notice that.

        Parameters
        ----------
        stream : stream, optional
            Where to run it; the stream that was captured by default. It may be of another device that can use the graph's memory. Launches
            of one graph run one after another.

        Raises
        ------
        ClosedError
            After `close`, or if the capture failed.
        """
        cdef hipStream_t c_stream
        cdef StreamUse use
        cdef int device
        cdef Capturing capturing
        self.check()
        device = self.device_index
        stream = self.stream if stream is None else stream
        handle_of(stream, &c_stream, &use)
        if <size_t>c_stream > 2:  # the null stream, and HIP's numbers for it and for the thread's own, are those of the graph's device
            device_of_stream(stream, c_stream, &device)
        capturing = capture_of(c_stream, device) if c_stream != NULL else None
        self.check()  # the stream's own code may have let another thread close it
        previous = _device.enter(device)
        try:
            abi.hipGraphLaunch(self.c_exec, c_stream)
        finally:
            _device.leave(previous)
        written = self.written or ()
        if capturing is not None:
            capturing.objects.append((self.objects, self.lent))
            for tensor in written:
                capturing.note_write(tensor)
        else:
            hold(c_stream, device, (self.objects, self.lent))
        if written:
            count_writes(written)

    def close(self):
        """Release the graph. Launches that were queued still run; calling it again has no effect."""
        if self.capturing:
            raise InvalidProblemError("this Graph is being captured; exit its with block first")
        self.let_go()

    cdef int give_back(self) except -1:
        cdef abi.hipGraph_t c_graph = self.c_graph
        cdef abi.hipGraphExec_t c_exec = self.c_exec
        self.c_graph = NULL
        self.c_exec = NULL
        if c_exec != NULL:
            abi.hipGraphExecDestroy(c_exec)
        if c_graph != NULL:
            abi.hipGraphDestroy(c_graph)
        return 0

    def __repr__(self):
        if self.closed:
            return "rocpy.Graph(closed)"
        state = "being captured" if self.capturing else f"{self.node_count} nodes" if self.c_exec != NULL else "not captured yet"
        return f"rocpy.Graph({state})"


def is_captured(stream):
    """Whether the work of a stream becomes a graph now."""
    cdef hipStream_t c_stream = NULL
    cdef StreamUse use
    cdef int device = 0
    _core.ensure()
    handle_of(stream, &c_stream, &use)
    device_of_stream(stream, c_stream, &device)
    return c_stream != NULL and capture_of(c_stream, device) is not None
