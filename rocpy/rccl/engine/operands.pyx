# SPDX-License-Identifier: MIT
"""A collective's operands: checks of their memory as it lies, results given or made, bias; arrays on raw memory."""

from math import prod

from rocpy.errors import InvalidOperandError
from rocpy.rccl.engine.call import NAMES
from rocpy.rccl.model.dtypes import is_supported
from rocpy.rccl.model.shapes import result_shape

from cpython.number cimport PyNumber_Index
from libc.stdint cimport int64_t

from rocpy._dlpack cimport Operand, array_type_of_hip
from rocpy._operand cimport allocate, parse_output, parse_transferred
from rocpy.rccl.engine.call cimport Call, all_gather, all_to_all, broadcast, gather, reduce_scatter, scatter
from rocpy.runtime._extents cimport type_of as array_type
from rocpy.runtime.memory cimport buffer_on


def part_of(raw, shape, dtype):
    """A Buffer on the beginning of another one's memory."""
    return buffer_on(<void*><size_t>raw.handle, array_type(dtype), shape, raw.device_index, raw)


cdef object index_or_none(object number):
    try:
        return PyNumber_Index(number)
    except TypeError:
        return None


cdef object parse_operand(object array, str name, Operand* operand, bint is_output):
    try:
        return parse_output(array, name, operand, False) if is_output else parse_transferred(array, name, operand)
    except InvalidOperandError:
        dtype = getattr(array, "dtype", None)
        if dtype is None or is_supported(dtype):
            raise
        raise InvalidOperandError(f"{name}: RCCL has no collectives of {dtype}") from None


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


cdef object set_result(
    Call call, object x, object out, bint has_result, int rank, int nranks, const Operand* operand_x, Operand* operand_out
):
    """Check the result that was given, or make one; return what owns the memory of a given one."""
    cdef int64_t count = elements(operand_x), wanted = count
    cdef int i
    if call.kind > broadcast or out is None:
        shape = result_shape(NAMES[call.kind], tuple([operand_x.shape[i] for i in range(operand_x.ndim)]), nranks, x is not None)
        wanted = prod(shape)
    if not has_result:
        return None
    if out is None:
        operand_out.type = operand_x.type
        operand_out.device_type = operand_x.device_type
        operand_out.device_id = operand_x.device_id
        operand_out.ndim = len(shape)
        for i in range(operand_out.ndim):
            operand_out.shape[i] = shape[i]
        call.result = allocate(x, operand_x.provider, operand_out)
        call.target = operand_out.data
        return None
    owner = parse_operand(out, "out", operand_out, True)
    check_contiguous(operand_out, "out")
    if operand_out.type != operand_x.type or elements(operand_out) != wanted or operand_out.device_type != operand_x.device_type:
        raise InvalidOperandError(
            f"out: {elements(operand_out)} elements of {array_type_of_hip(operand_out.type).name.decode()}, expected "
            f"{wanted} of {array_type_of_hip(operand_x.type).name.decode()} in the same memory as x"
        )
    if x is not None:
        check_in_place(call.kind, rank, call.rank_argument, count, wanted, operand_x, operand_out)
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
    return owner, bias
