# SPDX-License-Identifier: MIT
"""Memory of RCCL (ncclMemAlloc), its registration, windows, and the calls that need them; all-to-all with counts."""

import warnings
from time import monotonic, sleep

from rocpy.errors import ClosedError, InvalidArgumentError, InvalidOperandError, InvalidProblemError, RocpyWarning, UnsupportedError
from rocpy.rccl._failures import error_of, timeout_error

cimport abi
from abi cimport ncclWindow_t
from libc.stdint cimport uint64_t

from rocpy._core import has
from rocpy._dlpack cimport Operand, array_type_of_hip, kDLCPU
from rocpy._operand cimport allocate, parse, parse_output, stream_of, written
from rocpy.rccl._call cimport Call, all_to_all_v, put_signal, raise_pending, signal, type_of, wait_signal
from rocpy.rccl._library cimport last_text
from rocpy.rccl.communicator cimport Handle, check_contiguous, elements
from rocpy.runtime cimport device as _device
from rocpy.runtime.memory cimport buffer_on, bytes_of as array_bytes, type_of as array_type


cdef class PeerMemory:
    """Another rank's memory, as long as an array of it lives."""

    cdef void* lease
    cdef object window

    def __cinit__(self):
        self.lease = NULL

    def __dealloc__(self):
        if self.lease != NULL:
            abi.slot_rocpyExtWinEndLease(self.lease)


cdef class Registration:
    """Memory that a communicator may use as it lies (ncclCommRegister), until it is closed."""

    cdef void* handle
    cdef Handle comm
    cdef object kept

    def close(self):
        """Take the registration back (ncclCommDeregister); calling it again does nothing."""
        cdef void* handle = self.handle
        self.handle = NULL
        self.kept = None
        if handle != NULL and not self.comm.closed and self.comm.generation == _device.generation:
            abi.ncclCommDeregister(self.comm.comm, handle)

    def __repr__(self):
        return f"rocpy.rccl.Registration({'closed' if self.handle == NULL else 'open'})"


cdef class Memory:
    """What ncclMemAlloc gave, until the last array that uses it lets go."""

    cdef void* data
    cdef int generation
    cdef Registration registration

    def __cinit__(self):
        self.data = NULL

    def __del__(self):
        cdef void* data = self.data
        cdef int code
        if self.registration is not None:
            self.registration.close()
        self.data = NULL
        if data == NULL or self.generation != _device.generation:
            return
        with nogil:
            code = <int>abi.slot_ncclMemFree(data)
        if code != 0:
            warnings.warn(f"memory of ncclMemAlloc could not be given back: {last_text(NULL)}", RocpyWarning, stacklevel=1)


cdef Registration register_memory(Handle comm, void* data, size_t nbytes, object kept):
    cdef Registration made = Registration.__new__(Registration)
    made.comm, made.kept = comm, kept
    abi.ncclCommRegister(comm.comm, data, nbytes, &made.handle)
    return made


def empty(Handle comm not None, shape, dtype, bint registered):
    """Make a Buffer in memory of ncclMemAlloc."""
    cdef Memory memory = Memory.__new__(Memory)
    cdef int type = array_type(dtype)
    cdef size_t nbytes = array_bytes(type, shape)
    cdef int previous, code
    comm.check()
    memory.generation = _device.generation
    previous = _device.enter(comm.device_index)
    try:
        with nogil:
            code = <int>abi.slot_ncclMemAlloc(&memory.data, nbytes if nbytes else 1)
    finally:
        _device.leave(previous)
    if code != 0:
        raise error_of(code, op="mem_alloc", seq=None, rank=comm.rank, text=last_text(comm.comm))
    if registered and nbytes:
        memory.registration = register_memory(comm, memory.data, nbytes, None)
    return buffer_on(memory.data, type, shape, comm.device_index, memory)


def register(Handle comm not None, array):
    """Register an array's memory."""
    cdef Operand given
    kept = parse_output(array, "array", &given)
    check_contiguous(&given, "array")
    comm.check()
    return register_memory(comm, given.data, bytes_of(&given), (array, kept))


cdef size_t bytes_of(const Operand* operand):
    return <size_t>elements(operand) << array_type_of_hip(operand.type).shift


cdef class WindowHandle:
    """What a Window holds of RCCL."""

    cdef ncclWindow_t window
    cdef readonly Handle comm
    cdef readonly object array
    cdef object kept
    cdef int type
    cdef tuple shape
    cdef size_t nbytes

    def __cinit__(self, *args, **kwargs):
        self.window = NULL

    def open(self, Handle comm not None, array, int flags, double seconds):
        """Make the array's memory a window; every rank calls this (ncclCommWindowRegister)."""
        cdef Operand given
        cdef int code
        cdef size_t nbytes
        cdef void* data
        kept = parse_output(array, "array", &given)
        check_contiguous(&given, "array")
        comm.check()
        nbytes, data = bytes_of(&given), given.data
        self.comm, self.array, self.kept = comm, array, kept
        self.type = given.type
        self.shape = tuple([given.shape[i] for i in range(given.ndim)])
        self.nbytes = nbytes
        comm.set_patience(<uint64_t>(seconds * 1e9))
        comm.seq += 1
        with nogil:
            code = <int>abi.slot_ncclCommWindowRegister(comm.comm, data, nbytes, &self.window, flags)
        self.settle(code, seconds)
        if self.window == NULL:
            raise UnsupportedError(
                "window: RCCL made none of this memory; use memory of comm.empty(..., window=True) on every rank (between processes "
                "of the host platform nothing else can be seen; AMD GPUs need NCCL_CUMEM_ENABLE=1)",
                library="rccl",
            )

    cdef int settle(self, int code, double seconds) except -1:
        """Wait for a nonblocking communicator that has taken the call."""
        cdef abi.ncclResult_t state = abi.ncclInProgress
        cdef Handle comm = self.comm
        deadline = monotonic() + seconds
        while code == <int>abi.ncclInProgress:
            abi.ncclCommGetAsyncError(comm.comm, &state)
            code = <int>state
            if code == <int>abi.ncclInProgress:
                if monotonic() > deadline:
                    raise timeout_error("window", comm.seq, comm.rank, seconds, comm.status())
                sleep(0.0005)
        if code != 0:
            raise_pending()
            raise error_of(code, op="window", seq=comm.seq, rank=comm.rank, text=last_text(comm.comm), status=comm.status())
        return 0

    cdef int check(self) except -1:
        if self.window == NULL:
            raise ClosedError("this Window has been closed")
        return self.comm.check()

    def peer_buffer(self, peer):
        """Another rank's memory as a Buffer."""
        cdef PeerMemory memory = PeerMemory.__new__(PeerMemory)
        cdef void* data = NULL
        cdef size_t nbytes = 0
        self.check()
        rank = self.comm.rank_of(peer, "peer")
        if not has("rocpyExtWinLeasePeer"):
            raise UnsupportedError(f"peer: rank {rank}'s memory is reached by kernels and puts alone on this platform", library="rccl")
        abi.rocpyExtWinLeasePeer(self.comm.comm, self.window, rank, &data, &nbytes, &memory.lease)
        memory.window = self
        if nbytes == self.nbytes:
            return buffer_on(data, self.type, self.shape, self.comm.device_index, memory)
        own = 1
        for extent in self.shape:
            own *= extent
        return buffer_on(data, self.type, nbytes * own // self.nbytes, self.comm.device_index, memory)

    def close(self):
        """Give the window back (ncclCommWindowDeregister); calling it again does nothing."""
        cdef ncclWindow_t window = self.window
        self.window = NULL
        self.kept = None
        if window != NULL and not self.comm.closed and self.comm.generation == _device.generation:
            abi.ncclCommWindowDeregister(self.comm.comm, window)

    @property
    def is_closed(self):
        """Whether it was closed."""
        return self.window == NULL


cdef Call call_of(Handle comm, int kind, object like, object stream):
    """A call without operands yet, on the stream of the array that it is about."""
    cdef Call call = Call.__new__(Call)
    cdef Operand given
    comm.check()
    call.comm, call.kind, call.device = comm.comm, kind, comm.device_index
    call.in_cpu_memory = True
    if like is not None:
        call.kept = parse(like, "x", &given)
        check_contiguous(&given, "x")
        call.type = type_of(given.type)
        if call.type < 0:
            raise InvalidOperandError("x: RCCL has no calls on arrays of this dtype")
        call.count, call.source = elements(&given), given.data
        call.in_cpu_memory = given.device_type == kDLCPU
    else:
        given.device_type, given.device_id, given.provider = kDLCPU, 0, 0
    stream_of(stream, &given, &call.stream)
    return call


def put(Handle comm not None, x, peer, WindowHandle window not None, offset, timeout_s, stream, bint block):
    """Copy an array into a rank's window, and signal it (ncclPutSignal)."""
    cdef Call call
    cdef double seconds = comm.seconds_of(timeout_s)
    window.check()
    if window.comm is not comm:
        raise InvalidArgumentError("window: is one of another communicator")
    if not isinstance(offset, int) or offset < 0:
        raise InvalidArgumentError(f"offset: got {offset!r}, expected a number of elements of 0 or more")
    call = call_of(comm, put_signal, x, stream)
    call.rank_argument = comm.rank_of(peer, "peer")
    call.window = window.window
    items = 1
    for extent in window.shape:
        items *= extent
    call.offset = offset * (window.nbytes // max(items, 1))
    call.kept = (x, call.kept, window)
    return comm.give(call, seconds, block)


def signal_peer(Handle comm not None, peer, timeout_s, stream, bint block):
    """Signal a rank (ncclSignal)."""
    cdef double seconds = comm.seconds_of(timeout_s)
    cdef Call call = call_of(comm, signal, None, stream)
    call.rank_argument = comm.rank_of(peer, "peer")
    return comm.give(call, seconds, block)


def wait(Handle comm not None, wanted, timeout_s, stream, bint block):
    """Wait for signals: pairs of a rank and how many (ncclWaitSignal)."""
    cdef double seconds = comm.seconds_of(timeout_s)
    cdef Call call = call_of(comm, wait_signal, None, stream)
    cdef abi.ncclWaitSignalDesc_t one
    cdef bytearray table = bytearray()
    for peer, count in wanted:
        if not isinstance(count, int) or count < 1:
            raise InvalidArgumentError(f"signals: got {count!r} of rank {peer}, expected a number of 1 or more")
        one.opCnt, one.peer, one.sigIdx, one.ctx = count, comm.rank_of(peer, "peer"), 0, 0
        table += (<char*>&one)[:sizeof(one)]
    call.table = <char*>table
    call.table_size = len(wanted)
    call.kept = (table,)
    return comm.give(call, seconds, block)


def trade(Handle comm not None, x, sends, takes, out, timeout_s, stream, bint block):
    """Give each rank as many rows as it is to have (ncclAllToAllv); counts are rows."""
    cdef Operand given, result
    cdef double seconds = comm.seconds_of(timeout_s)
    cdef Call call = call_of(comm, all_to_all_v, x, stream)
    cdef int n = comm.nranks, i
    cdef size_t row = 1
    cdef size_t sent = 0, taken = 0
    cdef bytearray table = bytearray(4 * n * sizeof(size_t))
    cdef size_t* numbers = <size_t*><char*>table
    kept = parse(x, "x", &given)
    if given.ndim == 0:
        raise InvalidProblemError("x: has no first axis to cut")
    for i in range(1, given.ndim):
        row *= given.shape[i]
    for i in range(n):
        numbers[i], numbers[n + i] = sends[i] * row, sent
        numbers[2 * n + i], numbers[3 * n + i] = takes[i] * row, taken
        sent += numbers[i]
        taken += numbers[2 * n + i]
    if sent != <size_t>elements(&given):
        raise InvalidProblemError(f"send_counts: are {sum(sends)} rows in all, x has {given.shape[0]}")
    if out is not None:
        kept_out = parse_output(out, "out", &result)
        check_contiguous(&result, "out")
        if result.type != given.type or <size_t>elements(&result) != taken or result.device_type != given.device_type:
            raise InvalidOperandError(f"out: expected {taken} elements of x's dtype in the memory that x is in, got {elements(&result)}")
        call.target, call.result = result.data, out
        kept = (kept, kept_out)
        written(out, result.provider)
    else:
        result = given
        result.shape[0] = sum(takes)
        call.result = allocate(x, given.provider, &result)
        call.target = result.data
    call.table, call.table_size = <char*>table, n
    call.kept = (x, kept, call.result, table)
    return comm.give(call, seconds, block)
