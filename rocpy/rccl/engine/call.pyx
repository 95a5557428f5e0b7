# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""How a call of a collective reaches RCCL, and how its end is awaited with a deadline."""

import threading
from time import monotonic, sleep

cimport abi
from abi cimport ncclResult_t
from libcpp.vector cimport vector

from rocpy._core import has
from rocpy._operand import array_types
from rocpy.errors import InvalidArgumentError
from rocpy.runtime cimport device as _device
from rocpy.runtime.handles.keep_alive cimport hold

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<time.h>" nogil:
    cdef struct timespec:
        long tv_sec
        long tv_nsec
    int nanosleep(const timespec*, timespec*)
    int clock_gettime(int, timespec*)
    int CLOCK_MONOTONIC

cdef extern from "Python.h":
    int PyErr_CheckSignals() except -1
    int check_signals "PyErr_CheckSignals"()
    void* PyErr_Occurred()

cdef int NOT_DONE = -2
cdef int STREAM_FAILED = -3
cdef int NOT_READY = 600  # hipErrorNotReady

NAMES = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter", "send", "recv",
         "all_to_all_v", "put_signal", "signal", "wait_signal", "split", "grow", "window", "barrier")

# ncclDataType_t by hipDataType; -1: RCCL has none.
cdef vector[int] types
for hip, *_, nccl in array_types().values():
    if hip >= types.size():
        types.resize(hip + 1, -1)
    types[hip] = nccl


cdef int type_of(int hip_type) noexcept:
    return types[hip_type] if 0 <= <size_t>hip_type < types.size() else -1


cdef int check_stream(Call call, int rank) except -1:
    cdef int device = call.device
    # The first are HIP's names for a stream of the current device.
    if <size_t>call.stream > 2 and abi.slot_hipStreamGetDevice(call.stream, &device) == 0 and device != call.device:
        raise InvalidArgumentError(
            f"stream: belongs to device {device}, the communicator of rank {rank} to device {call.device}", op=NAMES[call.kind], rank=rank
        )
    return 0


cdef int issue(Call call) noexcept nogil:
    cdef abi.ncclDataType_t type = <abi.ncclDataType_t>call.type
    cdef abi.ncclRedOp_t op = <abi.ncclRedOp_t>call.op
    cdef int kind = call.kind
    if kind == all_reduce:
        if call.bias != NULL:
            return <int>abi.slot_ncclAllReduceWithBias(call.source, call.target, call.count, type, op, call.comm, call.stream, call.bias)
        return <int>abi.slot_ncclAllReduce(call.source, call.target, call.count, type, op, call.comm, call.stream)
    if kind == reduce:
        return <int>abi.slot_ncclReduce(call.source, call.target, call.count, type, op, call.rank_argument, call.comm, call.stream)
    if kind == broadcast:
        return <int>abi.slot_ncclBroadcast(call.source, call.target, call.count, type, call.rank_argument, call.comm, call.stream)
    if kind == all_gather:
        return <int>abi.slot_ncclAllGather(call.source, call.target, call.count, type, call.comm, call.stream)
    if kind == reduce_scatter:
        return <int>abi.slot_ncclReduceScatter(call.source, call.target, call.count, type, op, call.comm, call.stream)
    if kind == all_to_all:
        # Releases before 2.30 have the older spelling alone, later ones both.
        return <int>abi.slot_ncclAllToAll(call.source, call.target, call.count, type, call.comm, call.stream)
    if kind == gather:
        return <int>abi.slot_ncclGather(call.source, call.target, call.count, type, call.rank_argument, call.comm, call.stream)
    if kind == scatter:
        return <int>abi.slot_ncclScatter(call.source, call.target, call.count, type, call.rank_argument, call.comm, call.stream)
    if kind == send:
        return <int>abi.slot_ncclSend(call.source, call.count, type, call.rank_argument, call.comm, call.stream)
    if kind == all_to_all_v:
        return issue_all_to_all_v(call)
    if kind == put_signal:
        return <int>abi.slot_ncclPutSignal(
            call.source, call.count, type, call.rank_argument, call.window, call.offset, 0, 0, 0, call.comm, call.stream
        )
    if kind == signal:
        return <int>abi.slot_ncclSignal(call.rank_argument, 0, 0, 0, call.comm, call.stream)
    if kind == wait_signal:
        return <int>abi.slot_ncclWaitSignal(call.table_size, <abi.ncclWaitSignalDesc_t*>call.table, call.comm, call.stream)
    return <int>abi.slot_ncclRecv(call.target, call.count, type, call.rank_argument, call.comm, call.stream)


cdef int issue_all_to_all_v(Call call) noexcept nogil:
    cdef const size_t* table = <const size_t*>call.table
    cdef int n = call.table_size
    return <int>abi.slot_ncclAllToAllv(
        call.source, table, table + n, call.target, table + 2 * n, table + 3 * n, <abi.ncclDataType_t>call.type, call.comm, call.stream
    )


cdef int state_of(Call call) noexcept nogil:
    cdef ncclResult_t state = abi.ncclSuccess
    cdef ncclResult_t answer = abi.slot_ncclCommGetAsyncError(call.comm, &state)
    if answer != abi.ncclSuccess:
        return <int>answer
    return NOT_DONE if state == abi.ncclInProgress else <int>state


cdef bint is_refusal(Call call, int code) noexcept nogil:
    if code != <int>abi.ncclInvalidArgument and code != <int>abi.ncclInvalidUsage:
        return False
    code = state_of(call)
    return code == 0 or code == NOT_DONE


cdef bint is_complete(Call call) noexcept nogil:
    cdef uint64_t begin = 0, end = 0
    return call.is_timed and abi.slot_rocpyExtCommTimes(call.comm, call.number, &begin, &end) == abi.ncclSuccess and end != 0


cdef bint ends_by(Call call, double limit) noexcept nogil:
    cdef uint64_t begin = 0, end = 0
    if not call.is_limited or not call.is_timed:
        return call.is_limited
    abi.slot_rocpyExtCommTimes(call.comm, call.number, &begin, &end)
    return begin != 0 and begin * 1e-9 + call.seconds < limit


cdef int outcome_of(Call call) noexcept nogil:
    # In this order: the operation's last deed before its stream went on may have been to fail.
    cdef int query = -1, state
    if call.end_event != NULL:
        query = <int>abi.slot_hipEventQuery(call.end_event)
    if query != 0 and query != NOT_READY:  # there is no event, or it was recorded by a capture
        query = <int>abi.slot_hipStreamQuery(call.stream)
    if query == NOT_READY:
        abi.slot_hipGetLastError()
        # The calls of a group are one operation of the stream, and the event is behind all of them.
        if call.end_event != NULL and is_complete(call):
            return 0
    state = state_of(call)
    if state != 0:
        return 0 if is_complete(call) else state  # a later call may have failed
    if query == 0:
        return 0
    return NOT_DONE if query == NOT_READY else STREAM_FAILED


cdef double now() noexcept nogil:
    cdef timespec time
    clock_gettime(CLOCK_MONOTONIC, &time)
    return time.tv_sec + time.tv_nsec * 1e-9


cdef int wait_for(Call call, Look look, object deadline) except? -1:
    """Poll the call's stream and its communicator: neither has a wait that ends."""
    cdef int turn = 0, previous, outcome
    cdef timespec nap
    nap.tv_sec = 0
    previous = _device.enter(call.device)
    try:
        while True:
            with nogil:
                outcome = look(call)
                if outcome == NOT_DONE:
                    turn += 1
                    if turn < 50:
                        sched_yield()
                    else:
                        nap.tv_nsec = 20000 if turn < 500 else 500000
                        nanosleep(&nap, NULL)
            if outcome == STREAM_FAILED:
                abi.hipStreamQuery(call.stream)
            elif outcome != NOT_DONE:
                return outcome
            if turn % 50 == 0:
                PyErr_CheckSignals()
                if deadline is not None and monotonic() > deadline:
                    return NOT_DONE
    finally:
        _device.leave(previous)


cdef int is_interrupted(void* context) noexcept nogil:
    """Run the handlers of signals that have come; what they raise stays pending."""
    with gil:
        return check_signals()


cdef int listen_for_signals() except -1:
    # Python runs handlers in the main thread alone.
    if has("rocpyExtThreadSetInterrupt") and threading.current_thread() is threading.main_thread():
        abi.rocpyExtThreadSetInterrupt(is_interrupted, NULL)
    return 0


cdef int raise_pending() except -1:
    return -1 if PyErr_Occurred() != NULL else 0


cdef int pause(int turn) except -1:
    PyErr_CheckSignals()  # sleep() itself notices only a signal that comes while it sleeps
    sleep(0 if turn < 20 else 0.0005 if turn < 200 else 0.005)
    return 0


cdef class Call:
    """A call that has been checked."""

    def __cinit__(self):
        self.bias = NULL
        self.source = NULL
        self.target = NULL
        self.window = NULL
        self.table = NULL
        self.end_event = NULL
        self.rank_argument = -1

    cdef int set_end(self, Mark end) except -1:
        self.end, self.end_event = end, end.event
        return 0

    cdef int stage(self, object staged) except -1:
        """Have the result copied to an array in CPU memory; the call is then waited for as one on CPU memory."""
        self.staged, self.on_device, self.result, self.in_cpu_memory = staged, self.result, staged.target, True
        return 0

    cdef int unstage(self) except -1:
        """Copy the result: the call is done."""
        staged, self.staged = self.staged, None
        on_device, self.on_device = self.on_device, None
        staged.finish(on_device)
        return 0

    def drop(self):
        """Note that it was not launched. For `group`."""
        self.remote_wait = None

    cdef int shown_kind(self):
        if self.description is None:
            return self.kind
        name = self.description.partition(b"(")[0].decode()
        return NAMES.index(name) if name in NAMES else self.kind

    @property
    def op_name(self):
        """The collective's name, or that of the call that it stands for."""
        return NAMES[self.shown_kind()]

    @property
    def elements(self):
        """The count that RCCL was given."""
        return self.count


def hold_calls(calls):
    """Keep what calls use until their streams are through with them, an event for each stream. For `group`."""
    cdef Call call
    by_stream = {}
    for call in calls:
        by_stream.setdefault((call.device, <size_t>call.stream), []).append(call)
    for together in by_stream.values():
        objects = []
        for call in together:
            objects.append((call.owners, call.remote_wait))
            call.remote_wait = None
        end = hold(call.stream, call.device, tuple(objects))
        for call in together:
            call.set_end(end)
