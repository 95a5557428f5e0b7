# SPDX-License-Identifier: MIT
"""The objects that the work on a stream still uses, and when memory whose device waits for other ranks is freed.

CPU arrays are freed at once by their frameworks, not in stream order; a product on a created stream therefore holds its operands
and its result here until an event after it is done. They are dropped under the GIL, by the next call that holds or synchronises, or
when Python collects garbage.

Freeing memory waits for all work of its device. While a collective may wait for other ranks, that would have no deadline: csrc/core lists
the memory instead, and it is freed in the same moments once the collectives have ended.
"""

import atexit
import gc
import os
import warnings
from collections import deque

from rocpy.errors import RocpyWarning

cimport cython
from cpython.ref cimport Py_INCREF

cimport abi
from abi cimport hipEvent_t, hipStream_t

from rocpy._core cimport Status

from rocpy.runtime cimport _capture, _resources
from rocpy.runtime cimport device as _device

cdef int NOT_READY = 600  # hipErrorNotReady


@cython.freelist(16)
cdef class Mark:
    """A point of a stream."""

    def __cinit__(self):
        self.event = NULL

    def __dealloc__(self):
        cdef _device.Generation generation
        if self.event == NULL or self.forks != _device.forks:
            return
        try:
            spare_events.setdefault((self.device, self.forks, self.resets), []).append(<size_t>self.event)
        except MemoryError:
            generation.forks, generation.resets = self.forks, self.resets
            if not _device.is_reset(generation, self.device):  # which destroys events
                abi.slot_hipEventDestroy(self.event)


# By (device, handle): what each stream holds, oldest first; and by what events belong to: those to use again.
cdef dict held_by_stream = {}
cdef dict spare_events = {}


@cython.freelist(16)
cdef class RemoteWait:
    """A collective that may wait for other ranks: from before it is queued until it has ended."""

    def __dealloc__(self):
        if self.forks == _device.forks:
            _resources.end_remote_wait()


cdef RemoteWait begin_remote_wait():
    cdef RemoteWait wait = RemoteWait.__new__(RemoteWait)
    wait.forks = -1  # of no process until it is counted
    with nogil:
        _resources.begin_remote_wait()
    wait.forks = _device.forks
    return wait


cdef hipEvent_t take_event(int device, _device.Generation generation) except? NULL:
    cdef hipEvent_t event = NULL
    spare = spare_events.get((device, generation.forks, generation.resets))
    if spare:
        return <hipEvent_t><size_t>spare.pop()
    previous = _device.enter(device)
    try:
        abi.hipEventCreateWithFlags(&event, abi.hipEventDisableTiming)
    finally:
        _device.leave(previous)
    return event


cdef int record(hipEvent_t event, hipStream_t stream, int device) except -1:
    # The null stream, and HIP's numbers for it and for the thread's own, are the current device's.
    if <size_t>stream > 2:
        abi.hipEventRecord(event, stream)
        return 0
    cdef int previous = _device.enter(device)
    try:
        abi.hipEventRecord(event, stream)
    finally:
        _device.leave(previous)
    return 0


cdef Mark mark_stream(hipStream_t stream, int device):
    cdef _device.Generation generation = _device.generation_of(device)
    cdef Mark mark = Mark.__new__(Mark)
    mark.device, mark.forks, mark.resets = device, generation.forks, generation.resets
    mark.event = take_event(device, generation)
    record(mark.event, stream, device)
    return mark


cdef Mark hold(hipStream_t stream, int device, tuple objects):
    cdef Mark mark
    try:
        release_finished()
        mark = mark_stream(stream, device)
        hold_until(mark, stream, objects)
    except BaseException:
        # The objects would be dropped while the stream still uses them: wait for it.
        with nogil:
            abi.slot_hipStreamSynchronize(stream)
        raise
    return mark


cdef int hold_until(Mark mark, hipStream_t stream, tuple objects) except -1:
    key = (mark.device, <size_t>stream)
    mark.objects = objects
    queue = held_by_stream.get(key)
    if queue is None:
        queue = held_by_stream[key] = deque()
    queue.append(mark)
    return 0


cdef int release_finished() except -1:
    # A query may be what a capture forbids; what is held can wait for the capture's end.
    if _capture.captures:
        return 0
    if _capture.foreign_graphs:
        _capture.drop_gone_graphs()
    if held_by_stream:
        release_held()
    if _resources.deferred_count():
        free_deferred()
    return 0


cdef int free_deferred() except -1:
    cdef Status status
    with nogil:
        status = _resources.free_deferred()
    if not status.ok():
        warnings.warn("memory or a handle of a device could not be freed; it is leaked", RocpyWarning, stacklevel=1)
    return 0


cdef int release_held() except -1:
    cdef abi.hipStreamCaptureMode mode = abi.hipStreamCaptureModeRelaxed
    # Nobody tells when another library's capture is over: there the queries are allowed to this thread.
    cdef bint exchanged = bool(_capture.foreign_captures) and abi.slot_hipThreadExchangeStreamCaptureMode(&mode) == 0
    try:
        return drop_finished()
    finally:
        if exchanged:
            abi.slot_hipThreadExchangeStreamCaptureMode(&mode)


cdef int drop_finished() except -1:
    cdef Mark mark
    # Dropping an object may run any code, also code that comes back here: the objects leave the lists first.
    dropped = []
    for key in list(held_by_stream):
        queue = held_by_stream.get(key)
        while queue:
            mark = queue[0]
            if abi.slot_hipEventQuery(mark.event) == NOT_READY:
                abi.slot_hipGetLastError()
                break
            queue.popleft()
            dropped.append(mark.objects)
            mark.objects = None
        if queue is not None and not queue and held_by_stream.get(key) is queue:
            del held_by_stream[key]
    return 0


def held_count():
    """Number of calls whose objects streams still hold, and of what is to be freed later."""
    return sum([len(queue) for queue in held_by_stream.values()]) + _resources.deferred_count()


cdef int leak_all() except -1:
    cdef Mark mark
    for queue in held_by_stream.values():
        for mark in queue:
            Py_INCREF(mark.objects)
    held_by_stream.clear()
    return 0


def _on_collection(phase, info):
    """A program that goes on without a further call lets go of its operands too."""
    if phase == "start":
        release_finished()


def _at_exit():
    """Memory that a worker may still write must outlive the interpreter: it is leaked to the process's end.

    So is what would be freed from here on: that waits for the device's work, and work that needs the GIL never ends once the interpreter
    has ended the workers.
    """
    if _on_collection in gc.callbacks:
        gc.callbacks.remove(_on_collection)
    leak_all()
    _resources.leak_resources()


def _after_fork():
    """The parent's streams do not run in a child, and its events are not the child's to query."""
    leak_all()
    spare_events.clear()
    _capture.forget_captures()


_device.after_wait = release_finished
atexit.register(_at_exit)
gc.callbacks.append(_on_collection)
os.register_at_fork(after_in_child=_after_fork)
