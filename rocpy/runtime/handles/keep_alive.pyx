# SPDX-License-Identifier: MIT
"""The objects that the work on a stream still uses.

CPU arrays are freed at once by their frameworks, not in stream order; a product on a created stream therefore holds its operands
and its result here until an event after it is done. They are dropped under the GIL, by the next call that holds or synchronises, or
when Python collects garbage.
"""

import atexit
import gc
import os
from collections import deque

cimport abi
from abi cimport hipEvent_t, hipStream_t
from cpython.ref cimport Py_INCREF

from rocpy.runtime cimport _capture
from rocpy.runtime cimport device as _device

cdef int NOT_READY = 600  # hipErrorNotReady


cdef class _Held:
    """Objects that a stream uses until an event."""

    cdef hipEvent_t event
    cdef tuple owner  # of the event: the device, and the forks and resets before it was created
    cdef object objects


# By (device, handle): what each stream holds, oldest first; and by their owner: events to use again.
cdef dict held_by_stream = {}
cdef dict spare_events = {}
# What must not be freed while a stream is captured.
cdef list held_by_captures = []


cdef hipEvent_t take_event(int device, tuple owner) except? NULL:
    cdef hipEvent_t event = NULL
    spare = spare_events.get(owner)
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


cdef int hold(hipStream_t stream, int device, tuple objects) except -1:
    cdef _Held held
    cdef _device.Generation generation
    release_finished()
    generation = _device.generation_of(device)
    key = (device, <size_t>stream)
    held = _Held()
    held.owner = (device, generation.forks, generation.resets)
    held.objects = objects
    held.event = take_event(device, held.owner)
    try:
        record(held.event, stream, device)
    except BaseException:
        # Without an event nobody would know when the stream is done with the objects: wait for it.
        with nogil:
            abi.slot_hipStreamSynchronize(stream)
        spare_events.setdefault(held.owner, []).append(<size_t>held.event)
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
    while held_by_captures:
        held_by_captures.pop()
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
            spare_events.setdefault(held.owner, []).append(<size_t>held.event)
            dropped.append(held.objects)
        if queue is not None and not queue and held_by_stream.get(key) is queue:
            del held_by_stream[key]
    return 0


cdef int hold_while_captured(object owner) except -1:
    held_by_captures.append(owner)
    return 0


cdef bint find_busy_stream(int device, hipStream_t* stream) except -1:
    release_finished()
    for owner, handle in held_by_stream:
        if owner == device:
            stream[0] = <hipStream_t><size_t>handle
            return True
    return False


def held_count():
    """Number of calls whose objects streams still hold."""
    return sum([len(queue) for queue in held_by_stream.values()])


cdef int leak_all() except -1:
    cdef _Held held
    for queue in held_by_stream.values():
        for held in queue:
            Py_INCREF(held.objects)
    Py_INCREF(list(held_by_captures))
    held_by_captures.clear()
    held_by_stream.clear()
    return 0


def _on_collection(phase, info):
    """A program that goes on without a further call lets go of its operands too."""
    if phase == "start":
        release_finished()


def _at_exit():
    """Memory that a worker may still write must outlive the interpreter: it is leaked to the process's end."""
    if _on_collection in gc.callbacks:
        gc.callbacks.remove(_on_collection)
    leak_all()


def _after_fork():
    """The parent's streams do not run in a child, and its events are not the child's to query."""
    leak_all()
    spare_events.clear()
    _capture.forget_foreign()


atexit.register(_at_exit)
gc.callbacks.append(_on_collection)
os.register_at_fork(after_in_child=_after_fork)
