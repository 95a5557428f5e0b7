# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""The handle of a communicator: checks calls, gives them to RCCL, waits for them with a deadline."""

import json
import warnings

from rocpy._messages.choices import truth_value
from rocpy._messages.pickling import refuse_pickling
from rocpy._signatures import CREATED_BY_METHODS, refuse_construction
from rocpy._messages.suggestions import did_you_mean
from rocpy.errors import ClosedError, InvalidArgumentError, InvalidOperandError, RocpyWarning
from rocpy.platform import current as current_platform
from rocpy.rccl.model.failures import error_of, timeout_error
from rocpy.rccl.engine.pending import release
from rocpy.rccl.engine.library import awaited_elsewhere, handles
from rocpy.rccl.engine.staging import stage_collective
from rocpy.rccl.model.arguments import check_seconds, settings_of

cimport abi
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport uint64_t

from rocpy._core import has
from rocpy._dlpack cimport Operand, kDLCPU
from rocpy._operand cimport stream_of, written
from rocpy.runtime cimport device as _device
from rocpy.runtime.handles.call_stream cimport CallStream
from rocpy.runtime.handles.keep_alive cimport begin_remote_wait, hold, hold_until, mark_stream, release_finished
from rocpy.rccl.engine.call cimport NOT_DONE, STREAM_FAILED, Call, all_reduce, broadcast, check_stream, ends_by, gather, is_refusal, issue, listen_for_signals, now, outcome_of, raise_pending, recv, reduce, reduce_scatter, scatter, send, state_of, wait_for
from rocpy.rccl.engine.library cimport apply_settings, last_text, status_text
from rocpy.rccl.engine.open_group cimport Block, group_count, open_here
from rocpy.rccl.engine.operands cimport has_result, parse_input, rank_in, refuse_replaced, set_bias, set_memory
from rocpy.rccl.engine.records cimport Records
from rocpy.rccl.engine.call import NAMES

OPS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}


cdef class PreMulSum:
    """A sum whose inputs are first multiplied, each by its own rank's scalar: created by `Communicator.premul_sum`."""

    __signature__ = CREATED_BY_METHODS

    def __init__(self, *_, **__):
        refuse_construction("PreMulSum", "Communicator.premul_sum")

    @property
    def handle(self):
        """The ncclRedOp_t as a number."""
        if not self.is_open:
            raise ClosedError("this PreMulSum has been closed")
        return self.number

    def close(self):
        """Release the operator (ncclRedOpDestroy); an operator that is still in use is released afterwards."""
        release(self, self._release)

    def _release(self):
        if self.is_open and not self.owner.closed and self.owner.forks == _device.forks:
            abi.slot_ncclRedOpDestroy(<abi.ncclRedOp_t>self.number, self.owner.comm)
        self.is_open = False

    def __reduce__(self):
        refuse_pickling(self, "call premul_sum() of the other process's communicator")

    def __del__(self):
        if self.is_open:
            self._release()

    def __repr__(self):
        return f"rocpy.rccl.PreMulSum(rank={self.owner.rank}, {'open' if self.is_open else 'closed'})"


cdef class Handle:
    """What a Communicator holds of RCCL."""

    def __cinit__(self, *args, **kwargs):
        self.comm = NULL
        self.closed = True
        self.records = Records()
        self.dropped = []
        self.completed = set()

    def __dealloc__(self):
        if not self.closed and self.forks == _device.forks:  # Ctrl-C came in its destructor
            abi.slot_ncclCommAbort(self.comm)

    cdef int choose(self, abi.ncclConfig_t* config, object settings) except -1:
        """Take a caller's settings; kept, because the library may look at their text, and because children inherit them."""
        self.settings = settings_of(settings)
        self.settings_owner = apply_settings(config, self.settings)
        return 0

    cdef int adopt(self) except -1:
        self.closed, self.forks = False, _device.forks
        handles.add(self)
        self.has_patience = has("rocpyExtCommSetPatience")
        self.has_descriptions, self.has_times = has("rocpyExtCommDescribe"), has("rocpyExtCommTimes")
        self.described = self.last_status = self.last_calls = None
        self.uses_cpu_memory = current_platform().host_memory
        self.patience_ns = 0
        listen_for_signals()
        return 0

    cdef int check(self) except -1:
        if self.closed:
            raise ClosedError(
                "this Communicator has been closed, finalized or aborted" if self.nranks != 0 else
                "this Communicator does not exist until its group ends, or could not be created"
            )
        if self.forks != _device.forks:
            raise ClosedError(
                "this Communicator was created before a fork and belongs to the parent process; create a new one here"
            )
        self.thread = PyThread_get_thread_ident()
        while self.dropped:
            self.close_dropped(self.dropped.pop())
        return 0

    cdef int close_dropped(self, object owner) except -1:
        if self.thread != PyThread_get_thread_ident():
            self.dropped.append(owner)  # a communicator is one thread's at a time, and the collector runs in any
            return 0
        try:
            owner._release()
        except Exception as error:
            warnings.warn(f"{type(owner).__name__}: it could not be released and is leaked: {error}", RocpyWarning, stacklevel=1)
        return 0

    cdef int set_patience(self, double seconds) except -1:
        cdef uint64_t nanoseconds = <uint64_t>(seconds * 1e9) if seconds < 1e9 else <uint64_t>-1
        if self.has_patience and nanoseconds != self.patience_ns:
            abi.rocpyExtCommSetPatience(self.comm, nanoseconds)
            self.patience_ns = nanoseconds
        return 0

    def describe_calls(self, text):
        """Say what later calls are to the user, where they stand for another call or for arrays of another type.

        The ranks compare it, and errors show it. It follows the call's name if it begins with a parenthesis. ``None``: it is none.
        """
        self.description = None if text is None else text.encode()

    cdef object run(self, int kind, object x, object out, object op, object root, object bias, tuple how, object staged=None):
        cdef Operand operand_x, operand_out
        cdef Call call = Call.__new__(Call)
        cdef CallStream order
        timeout_s, stream, block = how
        order.enter(<void*>stream)
        self.check()
        call.timeout_s, call.seconds = timeout_s, self.seconds_of(timeout_s)
        call.comm = self.comm
        call.kind = kind
        call.device = self.device_index
        if kind in (reduce, broadcast, gather, scatter, send, recv):
            call.rank_argument = self.rank_of(root, "peer" if kind in (send, recv) else "root")
        bias_owner = None
        owner = parse_input(call, x, out, self.rank, &operand_x)
        call.in_cpu_memory = operand_x.device_type == kDLCPU
        # All that may be refused is looked at before a result is allocated.
        if kind in (all_reduce, reduce, reduce_scatter):
            set_op(self, call, op)
        if call.in_cpu_memory and not self.uses_cpu_memory:
            x, out, bias, staged = stage_collective(self, NAMES[kind], x, out, bias, has_result(call, self.rank))
            return self.run(kind, x, out, op, root, bias, how, staged)
        if not call.in_cpu_memory and operand_x.device_id != self.device_index:
            raise InvalidOperandError(f"x: is on device {operand_x.device_id}, the communicator on device {self.device_index}")
        if bias is not None:
            bias_owner = set_bias(call, bias, &operand_x)
        stream_of(stream, &operand_x, &call.stream, &call.use)
        out_owner = set_memory(call, x, out, self.rank, self.nranks, &operand_x, &operand_out)
        refuse_replaced(&operand_x, x, call.bias, bias, out, stream, op)
        if kind == recv:
            written(x, operand_x.provider)
        call.owners = (owner, bias_owner, out_owner, op)
        if out is not None and has_result(call, self.rank):
            written(out, operand_out.provider)
        if staged is not None:
            call.stage(staged)
        return self.give(call, block)

    @property
    def timeout_s(self):
        """How long calls wait by default, in seconds."""
        return self.usual_s

    @timeout_s.setter
    def timeout_s(self, value):
        self.usual_s = check_seconds(value)

    def check_open(self):
        """Raise where it was closed. For `group`."""
        self.check()

    def seconds_to_wait(self, timeout_s):
        """A given deadline in seconds, or this communicator's; of a communicator that is open."""
        self.check()
        return self.seconds_of(timeout_s)

    cdef double seconds_of(self, object timeout_s) except -1:
        return self.usual_s if timeout_s is None else check_seconds(timeout_s)

    cdef int rank_of(self, object rank, str what) except -1:
        return rank_in(rank, self.nranks, what, self.rank)

    cdef const char* label(self) noexcept:
        return <const char*>self.c_name if self.c_name else NULL

    cdef object give(self, Call call, object block):
        """Give a checked call to RCCL, or to the group that is open; wait for it where its memory is the CPU's."""
        cdef bint waits = block if type(block) is bool else truth_value("block", block, InvalidArgumentError)
        cdef int code
        self.check()  # what an argument ran when it was read may have closed it
        cdef Block group = open_here() if group_count() != 0 else None
        if group is not None:
            check_stream(call, self.rank)
        call.when = now()
        if call.description is None:
            call.description = self.description
        if group is not None:
            call.group = group.pending.state
            group.pending.add(self, call, call.seconds, waits)
            return call.result if waits else call
        code = self.launch(call, call.seconds if waits else 0)
        if code != 0 and code != NOT_DONE:
            self.raise_interrupt()
            raise self.failure(code, call)
        call.is_done = code == 0
        if not (waits and call.in_cpu_memory):
            if code == NOT_DONE:
                self.mark(call)
            return call.result if waits else call
        if code == NOT_DONE:
            self.await_end(call, call.seconds, now() + call.seconds, True)
        elif call.staged is not None:
            call.unstage()
        return call.result

    cdef int launch(self, Call call, double seconds) except -100:
        """Give a call to RCCL; a nonblocking communicator may need time to take it."""
        cdef int code, previous
        cdef bint is_refused, is_grouped = call.group is not None
        cdef const char* text = NULL
        call.is_timed = self.has_times and not self.is_lent
        self.records.begin(call)
        release_finished()  # before this call, for which memory that is freed would wait too
        self.set_patience(seconds)
        call.is_limited = self.has_patience and seconds != 0
        if call.description is not self.described and self.has_descriptions:
            if call.description is not None:
                text = call.description
            code = abi.rocpyExtCommDescribe(self.comm, text)
            if code != 0:  # the text is too long to be compared
                self.records.refuse(call)
                return code
            self.described = call.description
        call.remote_wait = begin_remote_wait()
        previous = _device.enter(self.device_index)
        try:
            with nogil:
                code = issue(call)
                is_refused = code != 0 and is_refusal(call, code)
                if code == 0 and not is_grouped:
                    code = outcome_of(call)
            if is_grouped:
                if code == 0 or code == <int>abi.ncclInProgress:
                    code = NOT_DONE  # it begins with the group's end
            else:
                if code == <int>abi.ncclInProgress:
                    code = self.await_launch(call)
                    if code == 0:
                        with nogil:
                            code = outcome_of(call)
                if code == STREAM_FAILED:
                    code = NOT_DONE  # whoever waits for it is told
        finally:
            _device.leave(previous)
        if code != NOT_DONE:
            call.remote_wait = None
        if is_refused:
            self.records.refuse(call)
        return code

    cdef int await_launch(self, Call call) except -100:
        """Wait until RCCL has given to its stream what it took; gives its code.

        A nonblocking communicator does so in a thread of its own: until then the stream may seem idle, what is queued on it
        would come before the call, and the communicator refuses others.
        """
        cdef int code
        try:
            code = wait_for(call, state_of, now() + call.seconds)
            if code == NOT_DONE:
                raise timeout_error(call.op_name, call.seq, self.rank, call.seconds, self.status())
        except BaseException:
            self.abort()  # the call is not to begin later
            raise
        return code

    cdef object await_end(self, Call call, double seconds, double limit, bint is_blocking):
        cdef int code = 0
        try:
            if not call.is_done:
                if call.end is None:
                    call.set_end(mark_stream(call.stream, call.device))
                code = wait_for(call, outcome_of, limit)
                # The platform says more than this process can: where it keeps the same deadline, it goes first.
                if code == NOT_DONE and ends_by(call, limit + 0.1):
                    code = wait_for(call, outcome_of, limit + 0.4)
        except BaseException:
            self.abort()  # the call is not to write its result later
            raise
        if code != 0 and call.remote_wait is not None and not self.closed:  # its stream may go on with it
            hold_until(call.end, call.stream, (call.owners, call.remote_wait))
        call.remote_wait = None
        if code == NOT_DONE:
            late = call.op_name, call.seq, self.rank, seconds, self.status(), None, awaited_elsewhere(self)
            if is_blocking and call.staged is None:
                self.stop(late)
            raise timeout_error(*late)
        if code != 0:
            raise self.failure(code, call)
        call.is_done = True
        if call.staged is not None:
            call.unstage()

    cdef int stop(self, tuple late) except -1:
        """End all calls, because one is late; others can still be made of this communicator where RCCL is able to."""
        cdef int code = <int>abi.ncclInvalidUsage
        if self.closed:
            return 0
        if has("ncclCommRevoke"):
            with nogil:
                code = <int>abi.slot_ncclCommRevoke(self.comm, 0)
        if code == 0 or code == <int>abi.ncclInProgress:
            self.revoked, self.late = True, late
        else:
            self.abort()
        return 0

    cdef object failure(self, int code, Call call):
        return self.failure_of(code, call.op_name, call.seq)

    cdef object failure_of(self, int code, str op, object seq):
        if self.closed:
            return ClosedError(f"rank {self.rank}: {op} was aborted: abort() was called while it ran")
        if self.late is not None and code == <int>abi.ncclInvalidUsage:  # as a revoked one answers
            return timeout_error(*self.late)
        return error_of(code, op=op, seq=seq, rank=self.rank, text=last_text(self.comm), status=self.status())

    cdef object mark(self, Call call):
        """Keep what the call uses until its stream is through with it."""
        cdef int previous = _device.enter(self.device_index)  # the null stream is that of the current device
        try:
            call.set_end(hold(call.stream, self.device_index, (call.owners, call.remote_wait)))
        finally:
            _device.leave(previous)
        call.remote_wait = None
        return call

    cdef int raise_interrupt(self) except -1:
        """Raise what a signal's handler raised while a call was made, and end the communicator."""
        try:
            raise_pending()
        except BaseException:
            self.abort()
            raise
        return 0

    def await_call(self, Call call not None, timeout_s):
        """Wait for a call that was launched; expiry and failures raise. For `Work`."""
        cdef double seconds = self.seconds_of(call.timeout_s if timeout_s is None else timeout_s)
        if not self.has_completed(call):
            self.check()
        self.await_end(call, seconds, now() + seconds, False)
        return call.result

    def call_done(self, Call call not None):
        """Whether a call that was launched is done. For `Work`."""
        if self.has_completed(call):
            return True
        self.check()
        code = wait_for(call, outcome_of, 0.0)
        call.is_done = code == 0
        if code not in (0, NOT_DONE):
            raise self.failure(code, call)
        return code == 0

    cdef bint has_completed(self, Call call) except -1:
        """Whether a call is known to have completed: a communicator that is closed has told so at its end."""
        if not call.is_done and self.closed:
            call.is_done = self.is_finalized or (call.is_timed and call.number in self.completed)
        return call.is_done

    cdef int remember(self, str state) except -1:
        """Note what can still be asked for when RCCL's communicator is gone."""
        calls, status = self.calls(), self.status()
        self.completed = {number for (*_, number), (*_, end) in zip(self.records.rows(), calls) if end != 0}
        if "state" in status:
            status["state"] = state
        self.last_calls, self.last_status = calls, json.dumps(status)
        return 0

    def status(self):
        """What is known of the communicator, as a dict; what was known at its end once it is closed."""
        text = self.last_status or status_text(self.comm)
        known = {"name": self.name, "rank": self.rank, "nranks": self.nranks, "device": self.device_index, "ranks": [], "failure": None}
        return json.loads(text) if text else known

    def calls(self):
        """The last calls: number, kind, type, count, op, root or peer, when called, and when it began and ended, or 0."""
        if self.last_calls is not None:
            return self.last_calls
        cdef uint64_t begin, end
        cdef bint tells = self.comm != NULL and self.forks == _device.forks and self.has_times
        rows = []
        for *known, number in self.records.rows():
            begin = end = 0
            if tells and number != 0:
                abi.rocpyExtCommTimes(self.comm, number, &begin, &end)
            rows.append((*known, begin * 1e-9, end * 1e-9))
        return rows

    @property
    def seq(self):
        """Number of the last collective."""
        return self.records.collectives

    def async_error(self):
        """RCCL's code for the state of what runs (ncclCommGetAsyncError)."""
        cdef abi.ncclResult_t state = abi.ncclSuccess
        self.check()
        abi.ncclCommGetAsyncError(self.comm, &state)
        return <int>state

    @property
    def is_closed(self):
        """Whether it was closed, finalized or aborted."""
        return self.closed

    @property
    def is_aborted(self):
        """Whether it was aborted, by `abort` or because finalizing it failed."""
        return self.aborted

    @property
    def is_revoked(self):
        """Whether it was revoked, by `revoke` or because a call was late."""
        return self.revoked

    @property
    def handle(self):
        """The ncclComm_t as a number."""
        self.check()
        self.is_lent = True
        return <size_t>self.comm

    @property
    def device(self):
        """The Device of this rank."""
        return _device.Device(self.device_index)

    def abort(self):
        """Abort it at once, with all running operations (ncclCommAbort)."""
        cdef int code
        if self.closed:
            self.aborted = self.aborted or self.nranks == 0  # one that its group has yet to create is aborted then
            return
        self.closed = self.aborted = True
        if self.forks != _device.forks:
            return
        self.remember("aborted")
        with nogil:
            code = <int>abi.slot_ncclCommAbort(self.comm)
        self.comm = NULL
        release_finished()
        if code != 0:
            raise error_of(code, op="abort", seq=None, rank=self.rank, text=last_text(NULL))


cdef int set_op(Handle self, Call call, object op) except -1:
    cdef PreMulSum reduction
    if isinstance(op, PreMulSum):
        reduction = op
        if reduction.owner is not self:
            raise InvalidArgumentError("op: was created by another communicator; create one with this one's premul_sum")
        if not reduction.is_open:
            raise ClosedError("op: this PreMulSum has been closed")
        if reduction.type != call.type:
            raise InvalidArgumentError("op: was created for another dtype than that of x")
        call.op = reduction.number
        return 0
    number = (<dict>OPS).get(op) if isinstance(op, str) else None
    if number is None:
        raise InvalidArgumentError(
            f"op: got {op!r}, expected one of {', '.join(OPS)}, or the result of premul_sum{did_you_mean(op, OPS)}"
        )
    call.op = number
    return 0
