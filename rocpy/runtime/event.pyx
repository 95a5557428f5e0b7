# SPDX-License-Identifier: MIT
"""Event: a mark in a stream, to wait for and to measure time between."""

from rocpy._messages.choices import truth_value
from rocpy._signatures import signature_like
from rocpy.errors import InvalidOperandError, InvalidProblemError

cimport abi
cimport cython

from rocpy._core cimport Library, raise_status
from rocpy.runtime cimport device as _device
from rocpy.runtime.handles.keep_alive cimport release_finished
from rocpy.runtime.handles.owner cimport Owner

cdef int NOT_READY = 600  # hipErrorNotReady
cdef int INVALID_HANDLE = 400  # hipErrorInvalidHandle


cdef class Event(Owner):
    """A point in a stream (hipEventCreateWithFlags, hipEventDestroy).

    Parameters
    ----------
    timing : bool
        Whether the event records the time; an event without timing is cheaper.
    device : Device or int, optional
        Device of the streams on which it will be recorded; the thread's current device by default.

    Attributes
    ----------
    timing : bool
        Whether it records the time.
    device_index : int
        Index of its device.

    Examples
    --------
    >>> import rocpy
    >>> with rocpy.Stream() as stream, rocpy.Event() as start, rocpy.Event() as stop:
    ...     _ = stream.record(start)
    ...     stream.record(stop).synchronize()
    ...     start.elapsed_ms(stop) >= 0
    True
    """

    __signature__ = signature_like(lambda *, timing=True, device=None: None)

    def __cinit__(self):
        self.c_event = NULL

    @cython.embedsignature(False)  # Cython puts the `*` elsewhere
    def __init__(self, *, timing=True, device=None):
        self.device_index = _device.index_of(device)
        self.timing = truth_value("timing", timing, InvalidOperandError)
        cdef int previous = _device.enter(self.device_index)
        try:
            abi.hipEventCreateWithFlags(&self.c_event, abi.hipEventDefault if self.timing else abi.hipEventDisableTiming)
        finally:
            _device.leave(previous)
        self.opened()

    cdef int give_back(self) except -1:
        if self.waiting == 0:  # else the last thread that waits does it
            abi.hipEventDestroy(self.c_event)
        return 0

    @property
    def handle(self):
        """The ``hipEvent_t`` as a number."""
        self.check()
        return <size_t>self.c_event

    def synchronize(self):
        """Wait until the work before the event has finished (hipEventSynchronize); return at once if it was never recorded."""
        cdef abi.hipEvent_t c_event = self.c_event
        self.check()
        self.waiting += 1
        try:
            with nogil:
                abi.hipEventSynchronize(c_event)
        finally:
            self.waiting -= 1
            if self.closed:
                self.give_back()
        release_finished()

    @property
    def done(self):
        """Whether the work before the event has finished (hipEventQuery)."""
        self.check()
        if abi.slot_hipEventQuery(self.c_event) == NOT_READY:
            abi.slot_hipGetLastError()
            return False
        abi.hipEventQuery(self.c_event)
        release_finished()
        return True

    def elapsed_ms(self, later):
        """Milliseconds from this event to a later one (hipEventElapsedTime).

        Parameters
        ----------
        later : Event
            The later event.

        Returns
        -------
        float
            The time, in milliseconds.

        Raises
        ------
        InvalidOperandError
            ``later`` is no event.
        InvalidProblemError
            One of the events does not record the time, was never recorded outside of a capture, or is of another device.
        LibraryError
            One of them has not finished.
        """
        cdef float elapsed = 0
        cdef int code
        cdef Event stop = event_of(later, "later")
        self.check()
        stop.check()
        if not self.timing or not stop.timing:
            raise InvalidProblemError("elapsed_ms: both events must record times; create them with timing=True")
        if self.device_index != stop.device_index:
            raise InvalidProblemError(
                f"later: is an event of device {stop.device_index}, and the earlier one of device {self.device_index}; times of two "
                "devices cannot be compared"
            )
        code = <int>abi.slot_hipEventElapsedTime(&elapsed, self.c_event, stop.c_event)
        if code == INVALID_HANDLE:
            # HIP's word for an event without a time, which one in a capture has not either; asked of one event, it tells which.
            is_recorded = <int>abi.slot_hipEventElapsedTime(&elapsed, self.c_event, self.c_event) != INVALID_HANDLE
            abi.slot_hipGetLastError()
            name = "later" if is_recorded else "the earlier event"
            raise InvalidProblemError(
                f"elapsed_ms: {name} was never recorded; record both with Stream.record, on streams that are not captured"
            )
        if code != 0:
            raise_status(Library.hip, code, b"hipEventElapsedTime")
        return elapsed

    def __repr__(self):
        state = "closed" if self.closed else f"handle={<size_t>self.c_event:#x}"
        return f"rocpy.Event(timing={bool(self.timing)}, {state})"


cdef Event event_of(object event, str name):
    """Return an argument that is an event.

    Raises
    ------
    InvalidOperandError
        It is none.
    """
    if not isinstance(event, Event):
        raise InvalidOperandError(f"{name}: got {type(event).__name__}, expected a rocpy.Event")
    return event
