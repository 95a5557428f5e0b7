# SPDX-License-Identifier: MIT
"""The handle of a communicator for Cython."""

from abi cimport ncclComm_t, ncclConfig_t
from libc.stdint cimport uint64_t

from rocpy.rccl.engine.call cimport Call
from rocpy.rccl.engine.records cimport Records


cdef class Handle:
    cdef ncclComm_t comm
    cdef readonly int rank, nranks, device_index
    cdef readonly str name
    cdef double usual_s  # how long calls wait that say nothing else
    cdef uint64_t patience_ns
    # How long finalizing may take, and when it is given up; 0 before it began.
    cdef double patience_s, end_by
    cdef bint closed, aborted, has_patience, has_descriptions, has_times, uses_cpu_memory
    # It takes no more calls. Why, where nobody has asked for that: the arguments of `timeout_error`; None: for no such reason.
    cdef bint revoked
    cdef tuple late
    cdef int forks  # that led to the process which joined
    cdef unsigned long thread  # that called last
    # Windows and registrations that were let go in another thread.
    cdef list dropped
    # Calls that went to the platform; whether others may have called, who asked for RCCL's handle.
    cdef Records records
    cdef bint is_lent
    # What the library may look at as long as it has the communicator.
    cdef bytes c_name
    cdef object settings, settings_owner
    # What calls from here on are to the user, and what the platform knows of that; None: what they are.
    cdef bytes description, described
    # What was known at its end; None before.
    cdef str last_status
    cdef list last_calls
    # Whether all calls had completed by then, or else which of the last ones, by the platform's numbers.
    cdef bint is_finalized
    cdef set completed
    cdef object __weakref__
    cdef int choose(self, ncclConfig_t* config, object settings) except -1
    cdef int adopt(self) except -1
    cdef int check(self) except -1
    # Close what nobody refers to any more: at once in the thread that calls, in another with the next call.
    cdef int close_dropped(self, object owner) except -1
    cdef int set_patience(self, double seconds) except -1
    cdef double seconds_of(self, object timeout_s) except -1
    cdef int rank_of(self, object rank, str what) except -1
    cdef const char* label(self) noexcept
    # Check a call, make its result, and give it to RCCL, or to the group that is open. `how`: timeout_s, stream and block, as the public calls
    # have them. `staged` has copies of what is in CPU memory, and takes the result there when the call is done.
    cdef object run(self, int kind, object x, object out, object op, object root, object bias, tuple how, object staged=?)
    cdef object give(self, Call call, object block)
    # Gives RCCL's code, or NOT_DONE where the call was taken and has not ended yet.
    cdef int launch(self, Call call, double seconds) except -100
    cdef int await_launch(self, Call call) except -100
    # Wait until a moment; a call that blocks has ended then, or never writes its result.
    cdef object await_end(self, Call call, double seconds, double limit, bint is_blocking)
    cdef int stop(self, tuple late) except -1
    cdef object failure(self, int code, Call call)
    # The same where no call of a stream failed: `seq` may be None.
    cdef object failure_of(self, int code, str op, object seq)
    cdef bint has_completed(self, Call call) except -1
    cdef object mark(self, Call call)
    cdef int raise_interrupt(self) except -1
    cdef int remember(self, str state) except -1


cdef class PreMulSum:
    cdef int number, type
    cdef bint is_open
    cdef Handle owner
