# SPDX-License-Identifier: MIT
"""Stream: a queue of work on a device."""

from rocpy._integers import integer_of
from rocpy._messages.choices import truth_value
from rocpy._signatures import signature_like
from rocpy.errors import InvalidOperandError, InvalidProblemError
from rocpy.runtime.graph import Graph

cimport abi
cimport cython
from abi cimport hipStream_t
from rocpy cimport _core

from rocpy.runtime cimport device as _device
from rocpy.runtime.event cimport Event, event_of
from rocpy.runtime.handles.call_stream cimport refuse_captured_wait
from rocpy.runtime.handles.keep_alive cimport hold, release_finished
from rocpy.runtime.handles.stream_handle cimport StreamHandle, StreamUse, end_use, handle_of, own_stream

cdef int NOT_READY = 600  # hipErrorNotReady
cdef str _AFTER_CAPTURE = "call it outside of the capture"


cdef class Stream(StreamHandle):
    """An in-order queue of work on a device (hipStreamCreateWithPriority, hipStreamDestroy).

    After `close`, which waits for nothing, queued work still runs, and a call that another thread has begun on it finishes first.
    The next stream of the device takes over the hipBLASLt handle and workspace of an idle one; `rocpy.plan_cache.clear` frees them.

    Parameters
    ----------
    device : Device or int, optional
        Device of the stream; the thread's current device by default.
    nonblocking : bool
        Whether the stream ignores the device's null stream; otherwise the two wait for each other.
    priority : int
        Lower numbers have priority; numbers outside of the device's range are clamped.

    Attributes
    ----------
    device_index : int
        Number of the device.
    nonblocking : bool
        Whether it ignores the device's null stream.
    priority : int
        Its priority, as the device clamped it.

    Raises
    ------
    ClosedError
        A method was called after `close`.
    LibraryError
        HIP refused the call.

    Examples
    --------
    >>> import rocpy
    >>> with rocpy.Stream() as stream:
    ...     stream.synchronize()
    ...     stream.done
    True
    """

    __signature__ = signature_like(lambda device=None, *, nonblocking=False, priority=0: None)

    @cython.embedsignature(False)  # Cython puts the `*` elsewhere
    def __init__(self, device=None, *, nonblocking=False, priority=0):
        cdef object wanted = integer_of(priority)
        if wanted is None:
            raise InvalidProblemError(f"priority: got {priority!r}, expected an integer")
        nonblocking = truth_value("nonblocking", nonblocking, InvalidOperandError)
        wanted = min(max(wanted, -(1 << 31)), (1 << 31) - 1)  # HIP clamps further
        self.device_index = _device.index_of(device)
        cdef _core.Status status
        cdef int previous = _device.enter(self.device_index)
        try:
            abi.hipStreamCreateWithPriority(&self.c_stream, abi.hipStreamNonBlocking if nonblocking else abi.hipStreamDefault, wanted)
        finally:
            _device.leave(previous)
        status = own_stream(self.c_stream, self.device_index, &self.use)
        if not status.ok():
            abi.hipStreamDestroy(self.c_stream)
        _core.check(status)
        self.opened()
        self.nonblocking = nonblocking
        abi.hipStreamGetPriority(self.c_stream, &self.priority)  # as the device clamped it

    cdef int give_back(self) except -1:
        cdef _core.Status status
        with nogil:
            status = end_use(&self.use)
        _core.check(status)
        return 0

    def synchronize(self):
        """Wait until all work queued so far has finished (hipStreamSynchronize), and release the objects that it kept alive.

        Raises
        ------
        UnsupportedError
            The stream is being captured: nothing runs meanwhile.
        """
        cdef hipStream_t c_stream = self.c_stream
        cdef StreamUse use
        self.check()
        refuse_captured_wait(c_stream, "synchronize waits for it", _AFTER_CAPTURE)
        use = self.use  # no-cython-lint: it keeps the stream
        with nogil:
            abi.hipStreamSynchronize(c_stream)
        release_finished()

    @property
    def done(self):
        """Whether all work queued so far has finished (hipStreamQuery); refused while the stream is captured."""
        self.check()
        refuse_captured_wait(self.c_stream, "done asks what has run", _AFTER_CAPTURE)
        if abi.slot_hipStreamQuery(self.c_stream) == NOT_READY:
            abi.slot_hipGetLastError()
            return False
        abi.hipStreamQuery(self.c_stream)
        release_finished()
        return True

    def wait(self, event):
        """Make later work of this stream wait for an event (hipStreamWaitEvent); the host does not wait.

        Parameters
        ----------
        event : Event
            An event, recorded on any stream.

        Raises
        ------
        InvalidOperandError
            It is no event.
        """
        cdef Event awaited = event_of(event, "event")
        self.check()
        awaited.check()
        abi.hipStreamWaitEvent(self.c_stream, awaited.c_event, 0)

    def record(self, event=None):
        """Record an event after the work queued so far (hipEventRecord).

        Parameters
        ----------
        event : Event, optional
            The event, of the stream's device; a new one, without timing, by default.

        Returns
        -------
        Event
            The event.

        Raises
        ------
        InvalidOperandError
            It is no event.
        InvalidProblemError
            The event is of another device.
        """
        cdef Event recorded
        self.check()
        if event is None:
            recorded = Event(timing=False, device=self.device_index)
            self.check()  # the above may have let another thread close it
        else:
            recorded = event_of(event, "event")
        recorded.check()
        if recorded.device_index != self.device_index:
            raise InvalidProblemError(
                f"event: is of device {recorded.device_index}, and the stream of device {self.device_index}; create it with "
                f"Event(device={self.device_index})"
            )
        abi.hipEventRecord(recorded.c_event, self.c_stream)
        return recorded

    def capture(self, mode="thread_local"):
        """Return a graph that captures the work submitted to this stream inside a ``with`` block (hipStreamBeginCapture).

        Parameters
        ----------
        mode : str
            Which calls HIP refuses meanwhile, because they might wait for the device: ``"thread_local"`` those of this thread,
            ``"global"`` those of every thread, ``"relaxed"`` none. A wait for the whole device is refused in every mode and to every
            thread, and invalidates the capture (`Device.synchronize`; ``numpy.asarray`` and ``from_dlpack`` of a `Buffer`).

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
        return Graph(self, mode)

    def __cuda_stream__(self):
        """Version and handle, as other libraries ask for them."""
        return (0, self.handle)

    def __repr__(self):
        state = "closed" if self.closed else f"handle={<size_t>self.c_stream:#x}"
        return f"rocpy.Stream(device={self.device_index}, {state})"


def synchronize_stream(stream):
    """Wait until the work of anything that counts as a stream has finished (hipStreamSynchronize)."""
    cdef hipStream_t c_stream = NULL
    cdef StreamUse use
    handle_of(stream, &c_stream, &use)
    with nogil:
        abi.hipStreamSynchronize(c_stream)
    release_finished()


def hold_objects(Stream stream not None, *objects):
    """Keep objects alive until the work queued so far has finished."""
    stream.check()
    hold(stream.c_stream, stream.device_index, objects)
