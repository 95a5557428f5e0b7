# SPDX-License-Identifier: MIT
"""Communicators made from communicators: parts, what is left when ranks go, what there is when ranks come; revoking, resting, the end."""

from time import monotonic

from rocpy._core import has
from rocpy.errors import InvalidArgumentError, UnsupportedError
from rocpy.rccl.model.arguments import integer_in, is_rank, name_of, unique_id_bytes
from rocpy.rccl.handles.joining import finish_init
from rocpy.rccl.model.failures import error_of, timeout_error

cimport abi
from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from rocpy.rccl.engine.call cimport grow, pause, raise_pending, split
from rocpy.rccl.engine.library cimport last_text, nonblocking_config
from rocpy.rccl.handles.communicator cimport Handle
from rocpy.runtime.handles.keep_alive cimport release_finished


cdef int require(Handle self, str function, str since="2.30") except -1:
    """Refuse what the platform's RCCL has no function for."""
    self.check()
    if not has(function):
        raise UnsupportedError(f"this platform's RCCL has no {function}, which was added in {since}", function=function, library="rccl")
    return 0


cdef int judge(Handle self, int code, str op) except -1:
    """Raise what a call came to; 0 and in progress are good."""
    if code == 0 or code == <int>abi.ncclInProgress:
        return 0
    raise_pending()
    self.check()  # another thread may have aborted it
    raise self.failure_of(code, op, None)


cdef int judge_numbered(Handle self, int code, str op) except -1:
    """The same of a call that has a number: one that RCCL refuses has none."""
    cdef abi.ncclResult_t state = abi.ncclSuccess
    if code == <int>abi.ncclInvalidArgument or code == <int>abi.ncclInvalidUsage:
        # A failure of the communicator's has these codes too, and a revoked one has failed before.
        if not self.closed and not self.revoked:
            abi.ncclCommGetAsyncError(self.comm, &state)
        if state == abi.ncclSuccess or state == abi.ncclInProgress:
            self.records.withdraw_alone()
    return judge(self, code, op)


def withdraw_begun(Handle self not None, seq):
    """Take back the numbers of what was begun in a group after a call: another part of the group was refused, and nothing is done."""
    while self.records.collectives > <uint64_t>seq:
        self.records.withdraw_alone()


cdef int await_communicator(Handle self, int code, str op, double seconds) except -1:
    """Wait for a nonblocking communicator that has taken a call of this kind, and raise what it came to."""
    cdef abi.ncclResult_t state = abi.ncclInProgress
    cdef int turn = 0
    deadline = monotonic() + seconds
    while code == <int>abi.ncclInProgress:
        self.check()  # another thread may have aborted it
        abi.ncclCommGetAsyncError(self.comm, &state)
        code = <int>state
        if code == <int>abi.ncclInProgress:
            if monotonic() > deadline:
                raise timeout_error(op, self.seq if op == "window" else None, self.rank, seconds, self.status())
            turn += 1
            pause(turn)
    judge(self, code, op)
    return self.check()  # the end that abort() makes of it looks like success


def start_split(Handle self not None, Handle child not None, int color, int key, timeout_s, settings, name):
    """Begin the handle of this rank's part, if it has one (ncclCommSplit); `finish_child` waits for it."""
    cdef int code
    cdef double seconds = self.seconds_of(timeout_s)
    cdef abi.ncclConfig_t config = nonblocking_config(begin_child(self, child, name))
    self.check()
    child.choose(&config, self.settings if settings is None else settings)
    self.set_patience(seconds)
    self.records.begin_alone(split)
    with nogil:
        code = <int>abi.slot_ncclCommSplit(self.comm, color, key, &child.comm, &config)
    judge_numbered(self, code, "split")


def start_shrink(Handle self not None, Handle child not None, excluded, bint abort, timeout_s, settings, name):
    """Begin the handle of a communicator without some ranks (ncclCommShrink); `finish_child` waits for it."""
    cdef int code, count = len(excluded)
    cdef int ranks[1024]
    cdef int flags = abi.NCCL_SHRINK_ABORT if abort else abi.NCCL_SHRINK_DEFAULT
    cdef double seconds = self.seconds_of(timeout_s)
    cdef abi.ncclConfig_t config = nonblocking_config(begin_child(self, child, name))
    require(self, "ncclCommShrink", "2.27")
    if not 0 < count < min(self.nranks, 1024) or any(not is_rank(rank, self.nranks) for rank in excluded):
        raise InvalidArgumentError(
            f"exclude_ranks: got {list(excluded)}, expected some of the ranks 0 to {self.nranks - 1}"
        )
    for i, rank in enumerate(excluded):
        ranks[i] = rank
    child.choose(&config, self.settings if settings is None else settings)
    self.set_patience(seconds)
    with nogil:
        code = <int>abi.slot_ncclCommShrink(self.comm, ranks, count, &child.comm, &config, flags)
    judge(self, code, "shrink")


def growth_id(Handle self not None):
    """The 128 bytes that new ranks join by (ncclCommGetUniqueId)."""
    cdef abi.ncclUniqueId unique_id
    cdef int code
    require(self, "ncclCommGetUniqueId")
    with nogil:
        code = <int>abi.slot_ncclCommGetUniqueId(self.comm, &unique_id)
    judge(self, code, "growth_id")
    return (<char*>unique_id.internal)[:128]


def start_grow(Handle self not None, Handle child not None, nranks, unique_id, timeout_s, settings, name):
    """Begin the handle of a communicator with more ranks (ncclCommGrow); `finish_child` waits for it."""
    cdef abi.ncclUniqueId ident
    cdef const abi.ncclUniqueId* id_pointer = NULL
    cdef const unsigned char[:] raw
    cdef int code, c_nranks
    cdef double seconds = self.seconds_of(timeout_s)
    cdef abi.ncclConfig_t config = nonblocking_config(begin_child(self, child, name))
    require(self, "ncclCommGrow")
    c_nranks = integer_in("nranks", nranks, self.nranks + 1, 2**31 - 1, f"more than the current {self.nranks}, as an integer")
    if unique_id is not None:
        raw = unique_id_bytes(unique_id)
        memcpy(&ident, &raw[0], sizeof(ident))
        id_pointer = &ident
    child.choose(&config, self.settings if settings is None else settings)
    self.set_patience(seconds)
    self.records.begin_alone(grow)
    with nogil:
        code = <int>abi.slot_ncclCommGrow(self.comm, c_nranks, id_pointer, -1, &child.comm, &config)
    judge_numbered(self, code, "grow")


def revoke(Handle self not None):
    """Take back what runs, for good (ncclCommRevoke)."""
    cdef int code
    require(self, "ncclCommRevoke")
    if self.late is not None:  # that has been done
        self.late = None
        return
    if self.revoked:
        raise InvalidArgumentError("revoke: this communicator has already been revoked", rank=self.rank)
    with nogil:
        code = <int>abi.slot_ncclCommRevoke(self.comm, 0)
    await_communicator(self, code, "revoke", self.timeout_s)
    self.revoked = True


def suspend(Handle self not None):
    """Give device memory back for now (ncclCommSuspend)."""
    cdef int code
    require(self, "ncclCommSuspend")
    self.set_patience(self.timeout_s)
    with nogil:
        code = <int>abi.slot_ncclCommSuspend(self.comm, 1)
    await_communicator(self, code, "suspend", self.timeout_s)


def resume(Handle self not None):
    """Take device memory again (ncclCommResume)."""
    cdef int code
    require(self, "ncclCommResume")
    with nogil:
        code = <int>abi.slot_ncclCommResume(self.comm)
    await_communicator(self, code, "resume", self.timeout_s)


def memory_stats(Handle self not None):
    """Bytes, and whether they are given back for now (ncclCommMemStats)."""
    cdef uint64_t value = 0
    cdef int number
    require(self, "ncclCommMemStats")
    stats = {}
    for number, name in enumerate(("suspendable", "suspended", "persistent", "total")):
        judge(self, <int>abi.slot_ncclCommMemStats(self.comm, <abi.ncclCommMemStat_t>number, &value), "memory_stats")
        stats[name] = value
    return stats


cdef const char* begin_child(Handle self, Handle child, object name) except? NULL:
    """Give a handle what it has of its parent from the beginning; returns its label."""
    child.device_index, child.rank = self.device_index, self.rank  # until it has a rank of its own
    child.name = self.name if name is None else name_of(name)
    child.c_name = child.name.encode()
    return child.label()


def finish_child(Handle self not None, Handle child not None, timeout_s, op):
    """Wait for a handle that an operation began; gives False where this rank has none."""
    cdef int value = 0, turn = 0
    cdef abi.ncclResult_t state = abi.ncclInProgress
    cdef double seconds = self.seconds_of(timeout_s)
    deadline = monotonic() + seconds
    seq = None if op == "shrink" else self.seq
    # RCCL gives the handle of a nonblocking communicator's child when that one's state has changed, not before.
    while child.comm == NULL and state == abi.ncclInProgress:
        self.check()
        abi.ncclCommGetAsyncError(self.comm, &state)
        if state == abi.ncclInProgress:
            if monotonic() > deadline:
                raise timeout_error(op, seq, self.rank, seconds, self.status())
            turn += 1
            pause(turn)
    if child.comm == NULL:
        if not self.revoked:
            judge(self, <int>state, op)
        return False
    child.adopt()
    child.timeout_s = self.timeout_s
    finish_init(child, deadline, seconds, op, seq, self)
    abi.ncclCommCount(child.comm, &value)
    child.nranks = value
    abi.ncclCommUserRank(child.comm, &value)
    child.rank = value
    return True


def start_finalize(Handle self not None, timeout_s):
    """Begin to wait until all ranks are through with their work (ncclCommFinalize); `finish_finalize` goes on.

    Nothing is begun where it was aborted since: it has its end. One that was to be aborted before it existed gets it here.
    """
    cdef int code
    if self.aborted:
        self.abort()
    if self.closed:
        return
    self.check()
    self.patience_s = self.seconds_of(timeout_s)
    self.end_by = monotonic() + self.patience_s
    with nogil:
        code = <int>abi.slot_ncclCommFinalize(self.comm)
    if code != 0 and code != <int>abi.ncclInProgress:
        raise error_of(code, op="finalize", seq=None, rank=self.rank, text=last_text(self.comm), status=self.status())


def finish_finalize(Handle self not None):
    """Wait until all ranks are through with their work, then give the communicator back (ncclCommDestroy)."""
    cdef int code = <int>abi.ncclInProgress, turn = 0
    cdef abi.ncclResult_t state = abi.ncclInProgress
    if self.end_by == 0:
        return
    while code == <int>abi.ncclInProgress:
        self.check()
        abi.ncclCommGetAsyncError(self.comm, &state)
        code = <int>state
        if code == <int>abi.ncclInProgress:
            if monotonic() > self.end_by:
                status = self.status()
                missing = [row["rank"] for row in status["ranks"] if row["state"] == "present" and row["rank"] != self.rank]
                raise timeout_error("finalize", None, self.rank, self.patience_s, status, missing)
            turn += 1
            pause(turn)
    if code != 0:
        raise error_of(code, op="finalize", seq=None, rank=self.rank, text=last_text(self.comm), status=self.status())
    self.closed = self.is_finalized = True
    self.remember("finalized")
    with nogil:
        code = <int>abi.slot_ncclCommDestroy(self.comm)
    self.comm = NULL
    release_finished()
    if code != 0:
        raise error_of(code, op="destroy", seq=None, rank=self.rank, text=last_text(NULL))
