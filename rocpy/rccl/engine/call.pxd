# SPDX-License-Identifier: MIT
"""One call of a collective: what it was given, from checking to waiting for its end."""

from abi cimport hipEvent_t, hipStream_t, ncclComm_t, ncclWindow_t
from libc.stdint cimport int32_t, int64_t, uint64_t

from rocpy.runtime.handles.keep_alive cimport Mark, RemoteWait
from rocpy.runtime.handles.stream_handle cimport StreamUse

cdef enum Kind:
    all_reduce
    reduce
    broadcast
    all_gather
    reduce_scatter
    all_to_all
    gather
    scatter
    send
    recv
    all_to_all_v
    put_signal
    signal
    wait_signal
    # Noted in the trace; they are calls of their own.
    split
    grow
    window
    # What an all_reduce may be to the user.
    barrier


cdef class Call:
    cdef ncclComm_t comm
    cdef hipStream_t stream
    cdef StreamUse use
    cdef int kind
    cdef int device
    cdef int type
    cdef int op
    cdef int rank_argument
    cdef size_t count
    cdef const void* source
    cdef void* target
    cdef const void* bias
    cdef ncclWindow_t window
    cdef size_t offset
    # Counts and displacements of an all-to-all-v, descriptors of a wait.
    cdef const void* table
    cdef int table_size
    # What must stay alive, and the result of the call.
    cdef object owners
    cdef readonly object result
    cdef readonly bint in_cpu_memory
    # The copies of arrays in CPU memory that it works on, and its result there.
    cdef object staged, on_device
    # Its number among the collectives of this rank, or among the calls between two ranks; 0 before its launch.
    cdef readonly uint64_t seq
    # What it is to the user, for the ranks to compare; None: what it is.
    cdef bytes description
    # Its name to the user, by its index: its own, or that by which the description begins.
    cdef int shown_kind(self)
    # The state of the group that it was called in; None: there was none.
    cdef readonly object group
    # When it was called, and its number among those of this rank that take a stream.
    cdef double when
    cdef uint64_t number
    # Whether the platform tells by that number when it ended, and whether it refused the call.
    cdef bint is_timed, is_refused
    # The point of its stream behind it, once that was asked for; and whether it is known to be done.
    cdef Mark end
    cdef hipEvent_t end_event
    cdef bint is_done
    # Whether the platform ends it when its time is over.
    cdef bint is_limited
    # How long it may take: what the caller said, or None, and that in seconds.
    cdef object timeout_s
    cdef double seconds
    # From its launch until it has ended, or its stream holds it.
    cdef RemoteWait remote_wait
    cdef int set_end(self, Mark end) except -1
    cdef int stage(self, object target) except -1
    cdef int unstage(self) except -1


# Give the call to its stream, or to the group that is open. Gives RCCL's code.
cdef int issue(Call call) noexcept nogil
# Whether RCCL did not take the call, although its communicator goes on.
cdef bint is_refusal(Call call, int code) noexcept nogil
# What the launch of a call that RCCL took has come to: 0 once its stream has it, RCCL's code, or NOT_DONE.
cdef int state_of(Call call) noexcept nogil
# What a call that its stream has came to, whatever was given to the stream later, on the thread's current device: 0, RCCL's code, NOT_DONE, or STREAM_FAILED, which a captured
# stream seems to have.
cdef int outcome_of(Call call) noexcept nogil
# Whether the platform says that it has completed, whatever the communicator came to since.
cdef bint is_complete(Call call) noexcept nogil
# Whether the platform ends it by then, by the call's own deadline: that begins with the operation.
cdef bint ends_by(Call call, double limit) noexcept nogil
ctypedef int (*Look)(Call) noexcept nogil
# Look until it is done, or failed; NOT_DONE where neither came within the time.
cdef int wait_for(Call call, Look look, object deadline) except? -1
cdef int NOT_DONE, STREAM_FAILED
cdef int type_of(int hip_type) noexcept
# Refuse a stream of another device.
cdef int check_stream(Call call, int rank) except -1
# Have calls that wait in the main thread hear Ctrl-C, and raise what a signal's handler raised meanwhile.
cdef int listen_for_signals() except -1
cdef int raise_pending() except -1
# Let others run between two looks at a communicator's state, longer after many; hears Ctrl-C.
cdef int pause(int turn) except -1
# Seconds, as time.monotonic has them.
cdef double now() noexcept nogil
