# SPDX-License-Identifier: MIT
"""Stream, and the objects that the work on a stream still uses.

CPU arrays are freed at once by their frameworks, not in stream order; a product on a created stream therefore holds its operands
and its result here until an event after it is done. They are dropped under the GIL, by the next call that holds or synchronises.
"""

import atexit
import os
from collections import deque

from rocpy.errors import InvalidOperandError, InvalidProblemError

cimport abi
from abi cimport hipEvent_t, hipStream_t
from cpython.ref cimport Py_INCREF

from rocpy.runtime cimport _capture
from rocpy.runtime cimport device as _device
from rocpy.runtime._owner cimport Owner
from rocpy.runtime.event cimport Event

cdef extern from "context.hpp" namespace "rocpy" nogil:
    void forget_stream(hipStream_t stream)

cdef int NOT_READY = 600  # hipErrorNotReady


cdef class _Held:
    """Objects that a stream uses until an event."""

    cdef hipEvent_t event
    cdef int device
    cdef object objects


# By (device, handle): what each stream holds, oldest first; and by device: events to use again.
cdef dict held_by_stream = {}
cdef dict spare_events = {}


cdef hipEvent_t take_event(int device) except? NULL:
    cdef hipEvent_t event = NULL
    spare = spare_events.get(device)
    if spare:
        return <hipEvent_t><size_t>spare.pop()
    previous = _device.enter(device)
    try:
        abi.hipEventCreateWithFlags(&event, abi.hipEventDisableTiming)
    finally:
        _device.leave(previous)
    return event


cdef int hold(hipStream_t stream, int device, tuple objects) except -1:
    cdef _Held held
    release_finished()
    key = (device, <size_t>stream)
    held = _Held()
    held.device = device
    held.objects = objects
    held.event = take_event(device)
    try:
        abi.hipEventRecord(held.event, stream)
    except BaseException:
        # Without an event nobody would know when the stream is done with the objects: wait for it.
        with nogil:
            abi.slot_hipStreamSynchronize(stream)
        spare_events.setdefault(device, []).append(<size_t>held.event)
        raise
    queue = held_by_stream.get(key)
    if queue is None:
        queue = held_by_stream[key] = deque()
    queue.append(held)
    return 0


cdef int release_finished() except -1:
    # A query may be what a capture forbids; what is held can wait for the capture's end.
    if _capture.captures:
        return 0
    if _capture.foreign_graphs and not _capture.foreign_captures:
        _capture.drop_gone_graphs()
    if not held_by_stream:
        return 0
    cdef abi.hipStreamCaptureMode mode = abi.hipStreamCaptureModeRelaxed
    # Nobody tells when another library's capture is over: there the queries are allowed to this thread.
    cdef bint exchanged = bool(_capture.foreign_captures) and abi.slot_hipThreadExchangeStreamCaptureMode(&mode) == 0
    try:
        return drop_finished()
    finally:
        if exchanged:
            abi.slot_hipThreadExchangeStreamCaptureMode(&mode)


cdef int drop_finished() except -1:
    cdef _Held held
    # Dropping an object may run any code, also code that comes back here: the objects leave the lists first.
    dropped = []
    for key in list(held_by_stream):
        queue = held_by_stream.get(key)
        while queue:
            held = queue[0]
            if abi.slot_hipEventQuery(held.event) == NOT_READY:
                abi.slot_hipGetLastError()
                break
            queue.popleft()
            spare_events.setdefault(held.device, []).append(<size_t>held.event)
            dropped.append(held.objects)
        if queue is not None and not queue:
            held_by_stream.pop(key, None)
    return 0


def hold_objects(Stream stream not None, *objects):
    """Keep objects alive until the stream has done what was given to it so far."""
    stream.check()
    hold(stream.c_stream, stream.device_index, objects)


def held_count():
    """Number of calls whose objects streams still hold."""
    return sum([len(queue) for queue in held_by_stream.values()])


cdef int leak_all() except -1:
    cdef _Held held
    for queue in held_by_stream.values():
        for held in queue:
            Py_INCREF(held.objects)
    held_by_stream.clear()
    return 0


def _at_exit():
    """Memory that a worker may still write must outlive the interpreter: it is leaked to the process's end."""
    leak_all()


def _after_fork():
    """The parent's streams do not run in a child, and its events are not the child's to query."""
    leak_all()
    spare_events.clear()
    _capture.forget_foreign()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)

_ACCEPTED = "rocpy.Stream, a stream of hip-python, torch or CuPy, an object with __cuda_stream__, or a handle as an int"


cdef int handle_of(object stream, hipStream_t* out) except -1:
    cdef object handle
    if isinstance(stream, Stream):
        (<Stream>stream).check()
        out[0] = (<Stream>stream).c_stream
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


cdef class Stream(Owner):
    """An in-order queue of work on a device (hipStreamCreateWithPriority, hipStreamDestroy). After `close` its work is still done.

    Parameters
    ----------
    device : Device or int
        Device to run on.
    nonblocking : bool
        Whether the stream ignores the device's null stream; otherwise the two wait for each other.
    priority : int
        Lower numbers go first; numbers outside of the device's range are clamped by it.

    Attributes
    ----------
    device_index : int
        Number of the device.

    Raises
    ------
    ClosedError
        A method was called after `close`.
    LibraryError
        HIP refused.

    Examples
    --------
    >>> import rocpy
    >>> with rocpy.Stream() as stream:
    ...     stream.synchronize()
    ...     stream.done
    True
    """

    def __cinit__(self):
        self.c_stream = NULL

    def __init__(self, device=0, *, nonblocking=False, priority=0):
        if not isinstance(priority, int) or not -(1 << 31) <= priority < 1 << 31:
            raise InvalidProblemError(f"priority: got {priority!r}, expected a small whole number")
        self.device_index = _device.index_of(device)
        cdef int previous = _device.enter(self.device_index)
        try:
            abi.hipStreamCreateWithPriority(&self.c_stream, abi.hipStreamNonBlocking if nonblocking else abi.hipStreamDefault, priority)
        finally:
            _device.leave(previous)
        self.opened()

    cdef int give_back(self) except -1:
        with nogil:
            forget_stream(self.c_stream)
        abi.hipStreamDestroy(self.c_stream)
        return 0

    @property
    def handle(self):
        """The ``hipStream_t`` as a number."""
        self.check()
        return <size_t>self.c_stream

    @property
    def nonblocking(self):
        """Whether it ignores the device's null stream."""
        cdef unsigned int flags = 0
        self.check()
        abi.hipStreamGetFlags(self.c_stream, &flags)
        return bool(flags & abi.hipStreamNonBlocking)

    @property
    def priority(self):
        """Its priority, as the device clamped it."""
        cdef int value = 0
        self.check()
        abi.hipStreamGetPriority(self.c_stream, &value)
        return value

    def synchronize(self):
        """Wait until all work given to the stream so far is done (hipStreamSynchronize), and let go of what it held."""
        cdef hipStream_t c_stream = self.c_stream
        self.check()
        with nogil:
            abi.hipStreamSynchronize(c_stream)
        release_finished()

    @property
    def done(self):
        """Whether all work given to the stream so far is done (hipStreamQuery)."""
        self.check()
        if abi.slot_hipStreamQuery(self.c_stream) == NOT_READY:
            abi.slot_hipGetLastError()
            return False
        abi.hipStreamQuery(self.c_stream)
        release_finished()
        return True

    def wait(self, Event event not None):
        """Let later work of this stream wait for an event (hipStreamWaitEvent); the host does not wait.

        Parameters
        ----------
        event : Event
            An event, recorded on any stream.
        """
        self.check()
        event.check()
        abi.hipStreamWaitEvent(self.c_stream, event.c_event, 0)

    def record(self, Event event=None):
        """Record an event after the work given so far (hipEventRecord).

        Parameters
        ----------
        event : Event, optional
            The event; a new one, without timing, by default.

        Returns
        -------
        Event
            The event.
        """
        self.check()
        if event is None:
            event = Event(timing=False, device=self.device_index)
        event.check()
        abi.hipEventRecord(event.c_event, self.c_stream)
        return event

    def capture(self, mode="thread_local"):
        """Return a graph that captures what is given to this stream inside a ``with`` block (hipStreamBeginCapture).

        Parameters
        ----------
        mode : str
            Which calls HIP refuses meanwhile, because they might wait for the device: ``"thread_local"`` those of this thread,
            ``"global"`` those of every thread, ``"relaxed"`` none.

        Returns
        -------
        Graph
            The graph, which begins the capture when its block is entered and is ready to be launched after it.

        Raises
        ------
        InvalidProblemError
            There is no such mode.
        LibraryError
            On entering or leaving the block: HIP refused, or something in the block is not allowed in a capture.

        Examples
        --------
        >>> import numpy as np, rocpy
        >>> a, b, d = np.ones((2, 3)), np.ones((3, 2)), np.zeros((2, 2))
        >>> with rocpy.Stream(nonblocking=True) as stream, rocpy.Matmul(a, b) as mm:
        ...     with stream.capture() as graph:
        ...         _ = mm.execute(out=d, stream=stream)
        ...     a[:] = 2
        ...     graph.launch()
        ...     stream.synchronize()
        ...     graph.close()
        >>> d
        array([[6., 6.],
               [6., 6.]])
        """
        from rocpy.runtime.graph import Graph

        return Graph(self, mode)

    def __cuda_stream__(self):
        """Version and handle, as other libraries ask for them."""
        return (0, self.handle)

    def __repr__(self):
        state = "closed" if self.closed else f"handle={<size_t>self.c_stream:#x}"
        return f"rocpy.Stream(device={self.device_index}, {state})"
