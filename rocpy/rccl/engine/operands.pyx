# SPDX-License-Identifier: MIT
"""A collective's operands: checks of their memory as it lies, results given or made, bias; arrays on raw memory."""

from math import prod

from rocpy.errors import InvalidArgumentError, InvalidOperandError
from rocpy.rccl.engine.call import NAMES
from rocpy.rccl.model.dtypes import is_supported
from rocpy.rccl.model.shapes import result_shape

from cpython.number cimport PyNumber_Index
from libc.stdint cimport int64_t

from rocpy._dlpack cimport Operand, array_type_of_hip, kDLCPU
from rocpy._memory_record cimport MemoryRecord, changed, pinned_memory, record_of
from rocpy._operand cimport allocate, is_plain, parse_output, parse_transferred, written
from rocpy.rccl.engine.call cimport Call, all_gather, all_to_all, broadcast, gather, recv, reduce, reduce_scatter, scatter, send, type_of
from rocpy.runtime cimport device as _device
from rocpy.runtime._extents cimport type_of as array_type
from rocpy.runtime.memory cimport Buffer, buffer_on


def part_of(raw, shape, dtype):
    """A Buffer on the beginning of another one's memory."""
    return buffer_on(<void*><size_t>raw.handle, array_type(dtype), shape, raw.device_index, raw)


cdef object index_or_none(object number):
    try:
        return PyNumber_Index(number)
    except TypeError:
        return None


cdef int rank_in(object rank, int nranks, str name, int own) except -1:
    number = None if type(rank) is bool else index_or_none(rank)
    if number is None or not 0 <= number < nranks:
        raise InvalidArgumentError(f"{name}: got {rank!r}, expected a rank from 0 to {nranks - 1}", rank=own)
    return number


cdef object parse_operand(object array, str name, Operand* operand, bint is_output, bint is_pinned=False):
    """Read an operand; return what owns its memory and, unless that is so already, pins it."""
    try:
        owner = parse_output(array, name, operand, False) if is_output else parse_transferred(array, name, operand)
    except InvalidOperandError:
        dtype = getattr(array, "dtype", None)
        if dtype is None or is_supported(dtype):
            raise
        raise InvalidOperandError(f"{name}: RCCL has no collectives of {dtype}") from None
    # At once: code of the next operand, and other threads, may give the array other memory.
    if is_pinned:
        return owner
    pin = pinned_memory(array)
    return pin if owner is array else (owner, pin)


cdef int refuse_moved(object array, str name, const void* read) except -1:
    """Refuse an array that has other memory than what was read of it."""
    cdef MemoryRecord record = record_of(array, name)
    if record is not None and record.is_elsewhere(read):
        raise changed(record)
    return 0


cdef int refuse_replaced(const Operand* operand_x, object x, const void* bias_data, object bias, object out, object stream, object op) except -1:
    if is_plain(bias) and is_plain(out) and stream is None and (type(op) is str or not isinstance(op, str)):
        return 0
    if not operand_x.copied:
        refuse_moved(x, "x", operand_x.data)
    if bias is not None:
        refuse_moved(bias, "bias", bias_data)
    return 0


cdef int64_t elements(const Operand* operand):
    cdef int64_t count = 1
    cdef int i
    for i in range(operand.ndim):
        count *= operand.shape[i]
    return count


cdef size_t bytes_of(const Operand* operand):
    return <size_t>elements(operand) << array_type_of_hip(operand.type).shift


cdef int check_contiguous(const Operand* operand, str name) except -1:
    cdef int64_t step = 1
    cdef int i
    for i in range(operand.ndim - 1, -1, -1):
        if operand.shape[i] != 1 and operand.strides[i] != step:
            if elements(operand) == 0:
                return 0
            shape = tuple([operand.shape[j] for j in range(operand.ndim)])
            strides = tuple([operand.strides[j] for j in range(operand.ndim)])
            raise InvalidOperandError(
                f"{name}: shape {shape} with strides {strides} is not C-contiguous, and collectives do not copy operands; "
                "pass a contiguous copy"
            )
        step *= operand.shape[i]
    return 0


cdef object parse_input(Call call, object x, object out, int rank, Operand* operand_x):
    """Check the array that a call is about: its input, or a scatter's result where this rank has none."""
    name = "x" if x is not None else "out"
    if x is None and (out is None or call.kind != scatter or call.rank_argument == rank):
        raise InvalidOperandError(f"x: {NAMES[call.kind]} needs an array")
    owner = parse_operand(out if x is None else x, name, operand_x, call.kind == recv)
    check_contiguous(operand_x, name)
    call.type = type_of(operand_x.type)
    if call.type < 0:
        raise InvalidOperandError(f"{name}: RCCL has no collectives of {array_type_of_hip(operand_x.type).name.decode()}")
    return owner


cdef bint has_result(Call call, int rank):
    return call.kind not in (send, recv) and (call.kind not in (reduce, gather) or call.rank_argument == rank)


cdef object set_memory(Call call, object x, object out, int rank, int nranks, const Operand* operand_x, Operand* operand_out):
    """Set what a call reads and writes, and how many elements RCCL counts; return what owns the memory of the result."""
    call.source = operand_x.data
    # RCCL counts what one rank contributes, or gets where parts are given out.
    call.count = elements(operand_x)
    if call.kind in (reduce_scatter, all_to_all) or (call.kind == scatter and x is not None):
        call.count //= nranks
    if call.kind == recv:
        call.target, call.result = operand_x.data, x
    if call.kind == send or call.kind == recv:
        return None
    return set_result(call, x, out, has_result(call, rank), rank, nranks, operand_x, operand_out)


cdef int check_in_place(int kind, int rank, int root, int64_t count, int64_t wanted, const Operand* operand_x, const Operand* operand_out) except -1:
    cdef const char* source = <const char*>operand_x.data
    cdef const char* target = <const char*>operand_out.data
    cdef int64_t shift = 0
    if source + bytes_of(operand_x) <= target or target + bytes_of(operand_out) <= source:
        return 0
    if (kind == broadcast or kind == scatter) and root != rank:
        return 0  # what the input holds is not read
    if kind == all_gather or kind == gather:
        shift = -count * rank
    elif kind == reduce_scatter or kind == scatter:
        shift = wanted * rank
    if kind != all_to_all and source + shift * (<int64_t>1 << array_type_of_hip(operand_x.type).shift) == target:
        return 0
    raise InvalidOperandError("out: overlaps x in a way that RCCL's in-place operations do not support; pass a separate array")


cdef int check_bias_overlap(const char* bias, const char* target, size_t nbytes) except -1:
    # Both have as many bytes. A result in the bias's own memory is right: each element is read before it is written.
    if bias != target and bias < target + nbytes and target < bias + nbytes:
        raise InvalidOperandError("out: overlaps bias without being the same memory; pass a separate array")
    return 0


cdef object set_result(
    Call call, object x, object out, bint is_wanted, int rank, int nranks, const Operand* operand_x, Operand* operand_out
):
    """Check the result that was given, or make one; return what owns its memory."""
    cdef int64_t count = elements(operand_x), wanted = count
    cdef int i, previous
    if call.kind > broadcast or out is None:
        shape = result_shape(NAMES[call.kind], tuple([operand_x.shape[i] for i in range(operand_x.ndim)]), nranks, x is not None)
        wanted = prod(shape)
    if not is_wanted:
        return None
    if out is None:
        operand_out.type = operand_x.type
        operand_out.device_type = operand_x.device_type
        operand_out.device_id = operand_x.device_id
        operand_out.ndim = len(shape)
        for i in range(operand_out.ndim):
            operand_out.shape[i] = shape[i]
        # Where a framework takes over a Buffer, all of its device is waited for, and on another device a rank may wait for this one.
        previous = _device.enter(call.device)
        try:
            call.result = allocate(x, operand_x.provider, operand_out)
        finally:
            _device.leave(previous)
        call.target = operand_out.data
        return pinned_memory(call.result)
    owner = parse_operand(out, "out", operand_out, True, out is x)
    check_contiguous(operand_out, "out")
    if operand_out.type != operand_x.type or elements(operand_out) != wanted or operand_out.device_type != operand_x.device_type:
        raise InvalidOperandError(
            f"out: {elements(operand_out)} elements of {array_type_of_hip(operand_out.type).name.decode()}, expected "
            f"{wanted} of {array_type_of_hip(operand_x.type).name.decode()} in the same memory as x"
        )
    if x is not None:
        check_in_place(call.kind, rank, call.rank_argument, count, wanted, operand_x, operand_out)
    if call.bias != NULL:
        check_bias_overlap(<const char*>call.bias, <const char*>operand_out.data, bytes_of(operand_out))
    call.target = operand_out.data
    call.result = out
    return owner


cdef object set_bias(Call call, object bias, const Operand* operand_x):
    """Check the bias of a sum; return what owns its memory."""
    cdef Operand operand_bias
    owner = parse_operand(bias, "bias", &operand_bias, False)
    check_contiguous(&operand_bias, "bias")
    if (
        operand_bias.type != operand_x.type or elements(&operand_bias) != elements(operand_x)
        or operand_bias.device_type != operand_x.device_type
    ):
        raise InvalidOperandError("bias: must have the dtype and the number of elements of x, and be in the same memory")
    call.bias = operand_bias.data
    return owner


def check_in_cpu_memory(int kind, x, out, root, int rank, int nranks):
    """Check the operands of a call that another transport carries, as those of RCCL's calls are checked.

    Gives what is sent and what receives, each as address, number of elements, name of their type and owners of the memory
    or None, and the call's result.
    """
    cdef Operand operand_x, operand_out
    cdef Call call = Call.__new__(Call)
    call.kind, call.device = kind, _device.index_of(None)
    if kind in (reduce, broadcast, gather, scatter, send, recv):
        call.rank_argument = rank_in(root, nranks, "peer" if kind in (send, recv) else "root", rank)
    for array, name in ((x, "x"), (out, "out")):
        if isinstance(array, Buffer):
            raise InvalidOperandError(f"{name}: is a Buffer, but this communicator takes arrays in CPU memory; pass its to_numpy()")
    owner = parse_input(call, x, out, rank, &operand_x)
    if operand_x.device_type != kDLCPU:
        raise InvalidOperandError(f"x: is on device {operand_x.device_id}, but this communicator takes arrays in CPU memory")
    out_owner = set_memory(call, x, out, rank, nranks, &operand_x, &operand_out)
    refuse_replaced(&operand_x, x, NULL, None, out, None, None)
    dtype = array_type_of_hip(operand_x.type).name.decode()
    source = None if x is None or kind == recv else (<size_t>operand_x.data, elements(&operand_x), dtype, owner)
    if kind == recv:
        written(x, operand_x.provider)
        return source, (<size_t>operand_x.data, elements(&operand_x), dtype, owner), x
    if not has_result(call, rank):
        return source, None, None
    if out is not None:
        written(out, operand_out.provider)
    return source, (<size_t>operand_out.data, elements(&operand_out), dtype, out_owner), call.result
