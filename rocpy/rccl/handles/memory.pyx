# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""Memory of RCCL (ncclMemAlloc), its registration, windows, and the calls that need them; all-to-all with counts."""

import warnings

from rocpy._messages.pickling import refuse_pickling
from rocpy.errors import ClosedError, InvalidArgumentError, InvalidOperandError, InvalidProblemError, RocpyWarning, UnsupportedError
from rocpy.rccl.model.failures import error_of
from rocpy.rccl.engine.pending import release
from rocpy.rccl.engine.staging import stage_all_to_all_v

cimport abi
from abi cimport ncclWindow_t

from rocpy._core import has
from rocpy._core cimport Status
from rocpy._dlpack cimport Operand, array_type_of_hip, kDLCPU
from rocpy._memory_record cimport pinned_memory
from rocpy._operand cimport allocate, parse_output, stream_of, written
from rocpy.rccl.engine.call cimport Call, all_to_all, all_to_all_v, put_signal, signal, type_of, wait_signal, window as kind_window
from rocpy.rccl.handles.children cimport await_communicator, judge, judge_numbered, require
from rocpy.rccl.engine.library cimport last_text
from rocpy.rccl.engine.operands cimport bytes_of, check_contiguous, check_in_place, elements, index_or_none, parse_operand, refuse_replaced
from rocpy.rccl.handles.communicator cimport Handle
from rocpy.runtime cimport _capture
from rocpy.runtime cimport device as _device
from rocpy.runtime._extents cimport bytes_of as array_bytes, type_of as array_type
from rocpy.runtime._resources cimport DeviceResource, ResourceKind, defer_resource, release_resource
from rocpy.runtime.handles.call_stream cimport CallStream
from rocpy.runtime.memory cimport buffer_on

cdef size_t WINDOW_ALIGNMENT = 4096  # NCCL_WIN_REQUIRED_ALIGNMENT


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
    cdef object owners

    @property
    def number(self):
        """RCCL's handle as a number; 0 after it was closed."""
        return <size_t>self.handle

    def __enter__(self):
        if self.handle == NULL:
            raise ClosedError("this Registration has been closed")
        return self

    def __exit__(self, *details):
        self.close()

    def close(self):
        """Undo the registration (ncclCommDeregister), in a `group` when it ends; calling it again has no effect."""
        release(self, self._release)

    def _release(self):
        cdef void* handle = self.handle
        self.handle = NULL
        self.owners = None
        if handle != NULL and not self.comm.closed and self.comm.forks == _device.forks:
            abi.ncclCommDeregister(self.comm.comm, handle)

    def __del__(self):
        if self.handle != NULL:
            self.comm.close_dropped(self)

    def __reduce__(self):
        refuse_pickling(self, "register memory of the other process there")

    def __repr__(self):
        return f"rocpy.rccl.Registration({'closed' if self.handle == NULL else 'open'})"


cdef class Memory:
    """What ncclMemAlloc gave, until the last array that uses it lets go."""

    cdef void* data
    cdef int device
    cdef _device.Generation generation
    cdef Registration registration

    def __cinit__(self):
        self.data = NULL

    def __del__(self):
        cdef DeviceResource resource
        cdef Status status
        cdef bint is_captured = bool(_capture.captures)
        if self.registration is not None:
            self.registration._release()
        if self.data == NULL or self.generation.forks != _device.forks:
            return
        resource.kind, resource.address = ResourceKind.rccl_memory, self.data
        resource.device, resource.resets = self.device, self.generation.resets
        with nogil:
            # While a stream is captured RCCL may make calls that would break the capture.
            status = defer_resource(resource) if is_captured else release_resource(resource)
        if not status.ok():
            warnings.warn(f"memory of ncclMemAlloc could not be freed: {last_text(NULL)}", RocpyWarning, stacklevel=1)


cdef Registration register_memory(Handle comm, void* data, size_t nbytes, object owners):
    cdef Registration registration = Registration.__new__(Registration)
    registration.comm, registration.owners = comm, owners
    judge(comm, <int>abi.slot_ncclCommRegister(comm.comm, data, nbytes, &registration.handle), "register_buffer")
    return registration


def empty(shape, dtype, device, Handle comm=None):
    """Make a Buffer in memory of ncclMemAlloc, registered with a communicator if one is given."""
    cdef Memory memory = Memory.__new__(Memory)
    cdef int type = array_type(dtype)
    cdef size_t nbytes = array_bytes(type, shape)
    cdef int previous, code, index = _device.index_of(device)
    if comm is not None:
        comm.check()
    memory.device, memory.generation = index, _device.generation_of(index)
    previous = _device.enter(index)
    try:
        with nogil:
            code = <int>abi.slot_ncclMemAlloc(&memory.data, nbytes if nbytes else 1)
    finally:
        _device.leave(previous)
    if code != 0:
        raise error_of(code, op="mem_alloc", seq=None, rank=None, text=last_text(NULL))
    if comm is not None and nbytes:
        memory.registration = register_memory(comm, memory.data, nbytes, None)
    return buffer_on(memory.data, type, shape, index, memory)


def register(Handle comm not None, array):
    """Register an array's memory."""
    cdef Operand operand
    owners = parse_output(array, "array", &operand, False)
    check_contiguous(&operand, "array")
    comm.check()
    return register_memory(comm, operand.data, bytes_of(&operand), (pinned_memory(array), owners))


cdef class WindowHandle:
    """What a Window holds of RCCL."""

    cdef ncclWindow_t window
    cdef readonly Handle comm
    cdef readonly object array
    cdef object owners
    cdef int type
    cdef tuple shape
    cdef size_t nbytes
    cdef void* data

    def __cinit__(self, *args, **kwargs):
        self.window = NULL

    def take(self, Handle comm not None, array):
        """Check the array whose memory is to be a window."""
        cdef Operand operand
        owners = parse_output(array, "array", &operand, False)
        check_contiguous(&operand, "array")
        require(comm, "ncclCommWindowRegister", "2.27")
        if <size_t>operand.data % WINDOW_ALIGNMENT:
            raise InvalidArgumentError(
                f"array: its memory is not aligned to {WINDOW_ALIGNMENT} bytes; use comm.empty(..., window=True)", rank=comm.rank
            )
        self.nbytes, self.data = bytes_of(&operand), operand.data
        self.comm, self.array, self.owners = comm, array, (pinned_memory(array), owners)
        self.type = operand.type
        self.shape = tuple([operand.shape[i] for i in range(operand.ndim)])

    def start(self, int flags, timeout_s):
        """Begin to make the memory a window (ncclCommWindowRegister); `finish` waits for it."""
        cdef Handle comm = self.comm
        cdef int code
        cdef double seconds = comm.seconds_of(timeout_s)
        comm.check()
        comm.set_patience(seconds)
        comm.records.begin_alone(kind_window)
        with nogil:
            code = <int>abi.slot_ncclCommWindowRegister(comm.comm, self.data, self.nbytes, &self.window, flags)
        judge_numbered(comm, code, "window")

    def finish(self, timeout_s):
        """Wait until the memory is a window."""
        cdef Handle comm = self.comm
        comm.check()
        await_communicator(comm, <int>abi.ncclInProgress, "window", comm.seconds_of(timeout_s))
        if self.window == NULL:
            raise UnsupportedError(
                "window: RCCL could not create one for this memory; use memory of comm.empty(..., window=True) on "
                "every rank (processes of the host platform can share no other memory; AMD GPUs need "
                "NCCL_CUMEM_ENABLE=1)",
                library="rccl",
            )

    cdef int check(self) except -1:
        if self.window == NULL:
            raise ClosedError("this Window does not exist until its group ends" if self.is_begun else "this Window has been closed")
        return self.comm.check()

    def peer_buffer(self, peer):
        """Another rank's memory as a Buffer."""
        cdef PeerMemory memory = PeerMemory.__new__(PeerMemory)
        cdef void* data = NULL
        cdef size_t nbytes = 0
        self.check()
        rank = self.comm.rank_of(peer, "peer")
        if not has("rocpyExtWinLeasePeer"):
            raise UnsupportedError(f"peer: rank {rank}'s memory can be reached only by kernels and puts on this platform", library="rccl")
        abi.rocpyExtWinLeasePeer(self.comm.comm, self.window, rank, &data, &nbytes, &memory.lease)
        memory.window = self
        if nbytes == self.nbytes:
            return buffer_on(data, self.type, self.shape, self.comm.device_index, memory)
        own = 1
        for extent in self.shape:
            own *= extent
        return buffer_on(data, self.type, nbytes * own // self.nbytes, self.comm.device_index, memory)

    def close(self):
        """Release the window (ncclCommWindowDeregister), in a `group` when it ends; calling it again has no effect."""
        release(self, self._release)

    def _release(self):
        cdef ncclWindow_t window = self.window
        self.window = NULL
        self.owners = None
        if window != NULL and not self.comm.closed and self.comm.forks == _device.forks:
            abi.ncclCommWindowDeregister(self.comm.comm, window)

    def __del__(self):
        if self.window != NULL:
            self.comm.close_dropped(self)

    @property
    def is_closed(self):
        """Whether it was closed; also until the group ends that creates it."""
        return self.window == NULL

    @property
    def is_begun(self):
        """Whether it is one that its group has yet to create."""
        return self.window == NULL and self.owners is not None

    @property
    def number(self):
        """RCCL's handle as a number; 0 while there is none."""
        return <size_t>self.window

    @property
    def address(self):
        """Where this rank's part begins, as a number (ncclWinGetUserPtr)."""
        cdef void* data = NULL
        self.check()
        abi.ncclWinGetUserPtr(self.comm.comm, self.window, &data)
        return <size_t>data


cdef Call call_of(Handle comm, int kind, object like, object timeout_s, object stream):
    """A call without operands yet, on the stream of the array that it is about."""
    cdef Call call = Call.__new__(Call)
    cdef CallStream order
    cdef Operand operand
    order.enter(<void*>stream)
    comm.check()
    call.timeout_s, call.seconds = timeout_s, comm.seconds_of(timeout_s)
    call.comm, call.kind, call.device = comm.comm, kind, comm.device_index
    call.in_cpu_memory = True
    if like is not None:
        call.owners = parse_operand(like, "x", &operand, False)
        check_contiguous(&operand, "x")
        call.type = type_of(operand.type)
        if call.type < 0:
            raise InvalidOperandError("x: RCCL has no calls on arrays of this dtype")
        call.count, call.source = elements(&operand), operand.data
        call.in_cpu_memory = operand.device_type == kDLCPU
    else:
        operand.device_type, operand.device_id, operand.provider = kDLCPU, 0, 0
    stream_of(stream, &operand, &call.stream, &call.use)
    return call


def put(Handle comm not None, x, peer, WindowHandle window not None, offset, timeout_s, stream, block):
    """Copy an array into a rank's window, and signal it (ncclPutSignal)."""
    cdef Call call
    window.check()
    if window.comm is not comm:
        raise InvalidArgumentError("window: belongs to another communicator")
    number = index_or_none(offset)
    if number is None or not 0 <= number < 2**48:
        raise InvalidArgumentError(f"offset: got {offset!r}, expected a number of elements, 0 or more")
    rank = comm.rank_of(peer, "peer")
    call = call_of(comm, put_signal, x, timeout_s, stream)
    if call.in_cpu_memory and not comm.uses_cpu_memory:
        raise InvalidOperandError("x: is in CPU memory; the source of a put must be in a window of this communicator")
    window.check()  # what an argument ran when it was read may have closed it
    call.rank_argument = rank
    call.window = window.window
    items = 1
    for extent in window.shape:
        items *= extent
    call.offset = number * (window.nbytes // max(items, 1))
    call.owners = (call.owners, window)
    return comm.give(call, block)


def signal_peer(Handle comm not None, peer, timeout_s, stream, block):
    """Signal a rank (ncclSignal)."""
    cdef Call call = call_of(comm, signal, None, timeout_s, stream)
    call.rank_argument = comm.rank_of(peer, "peer")
    return comm.give(call, block)


def wait(Handle comm not None, wanted, timeout_s, stream, block):
    """Wait for signals: pairs of a rank and how many (ncclWaitSignal)."""
    cdef Call call = call_of(comm, wait_signal, None, timeout_s, stream)
    cdef abi.ncclWaitSignalDesc_t one
    cdef bytearray table = bytearray()
    ranks = [comm.rank_of(peer, "peers") for peer, _ in wanted]
    if not ranks or len(set(ranks)) != len(ranks):
        raise InvalidArgumentError(f"peers: got {ranks}, expected one rank or more, each once; a dict has numbers of signals", rank=comm.rank)
    for peer, count in wanted:
        number = index_or_none(count)
        if number is None or not 0 < number < 2**31:
            raise InvalidArgumentError(f"peers: got {count!r} signals of rank {peer}, expected 1 to 2**31 - 1")
        one.opCnt, one.peer, one.sigIdx, one.ctx = number, comm.rank_of(peer, "peers"), 0, 0
        table += (<char*>&one)[:sizeof(one)]
    call.table = <char*>table
    call.table_size = len(wanted)
    call.owners = (table,)
    return comm.give(call, block)


cdef int check_sum(object sends, const Operand* operand) except -1:
    if operand.ndim == 0:
        raise InvalidProblemError("x: has no first axis to split")
    if sum(sends) != operand.shape[0]:
        raise InvalidProblemError(f"send_counts: {sum(sends)} rows in total, but x has {operand.shape[0]}")
    return 0


def check_rows(x, sends):
    """Refuse what `trade` would, before other ranks hear of it."""
    cdef Operand operand
    owners = parse_operand(x, "x", &operand, False)
    check_contiguous(&operand, "x")
    check_sum(sends, &operand)
    del owners


def trade(Handle comm not None, x, sends, takes, out, *, timeout_s, stream, block, staged=None):
    """Give each rank as many rows as it is to have (ncclAllToAllv); counts are rows.

    ``staged``: has copies of what is in CPU memory, and takes the result there when the call is done.
    """
    cdef Operand operand, result
    cdef CallStream order
    order.enter(<void*>stream)
    cdef Call call = call_of(comm, all_to_all_v, x, timeout_s, stream)
    cdef int n = comm.nranks, i, previous
    cdef size_t row = 1
    cdef size_t sent = 0, taken = 0
    cdef bytearray table = bytearray(4 * n * sizeof(size_t))
    cdef size_t* numbers = <size_t*><char*>table
    owners = parse_operand(x, "x", &operand, False)
    if call.in_cpu_memory and not comm.uses_cpu_memory:
        x, out, _, staged = stage_all_to_all_v(comm, x, sum(takes), out)
        return trade(comm, x, sends, takes, out, timeout_s=timeout_s, stream=stream, block=block, staged=staged)
    check_sum(sends, &operand)
    for i in range(1, operand.ndim):
        row *= operand.shape[i]
    if sum(takes) * row >= 2**48:
        raise InvalidProblemError(f"recv_counts: {sum(takes)} rows of {row} elements are more than any memory")
    for i in range(n):
        numbers[i], numbers[n + i] = sends[i] * row, sent
        numbers[2 * n + i], numbers[3 * n + i] = takes[i] * row, taken
        sent += numbers[i]
        taken += numbers[2 * n + i]
    if out is not None:
        out_owner = parse_operand(out, "out", &result, True)
        check_contiguous(&result, "out")
        if result.type != operand.type or <size_t>elements(&result) != taken or result.device_type != operand.device_type:
            raise InvalidOperandError(
                f"out: expected {taken} elements of x's dtype in the same memory as x, got {elements(&result)}"
            )
        check_in_place(all_to_all, comm.rank, -1, 0, 0, &operand, &result)
        call.target, call.result = result.data, out
        written(out, result.provider)
    else:
        result = operand
        result.shape[0] = sum(takes)
        previous = _device.enter(comm.device_index)
        try:
            call.result = allocate(x, operand.provider, &result)
        finally:
            _device.leave(previous)
        call.target = result.data
        out_owner = pinned_memory(call.result)
    refuse_replaced(&operand, x, NULL, None, out, stream, None)
    call.table, call.table_size = <char*>table, n
    call.owners = (owners, out_owner, table)
    if staged is not None:
        call.stage(staged)
    # RCCL is given elements: rows of different lengths may have as many. A description that is given has the length.
    if comm.description is None:
        dtype = array_type_of_hip(operand.type).name.decode()
        call.description = f"(rows of {row} elements, dtype={dtype})".encode()
    return comm.give(call, block)
