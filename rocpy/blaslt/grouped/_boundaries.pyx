# SPDX-License-Identifier: MIT
"""Groups that follow one another in one operand: which axis they share out, where each begins, and the operands of one."""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset
from libcpp.vector cimport vector

import numpy

from rocpy cimport _operand
from rocpy._operand cimport Operand
from rocpy.blaslt.engine.launch cimport Completion, Operands, refuse_capture
from rocpy.blaslt.grouped._plans cimport GroupedCall, Ragged
from rocpy.blaslt.operands._arguments cimport info
from rocpy.runtime.handles.call_stream cimport await_call_stream

from rocpy.blaslt.grouped import groups as _groups
from rocpy.errors import InvalidOperandError

cdef int _CPU = 1  # kDLCPU
# As many boundaries as groups can have whose results are indexed with 32 bits.
cdef int64_t _MOST_OFFSETS = 2**31


cdef bint on_device(object offsets) except -1:
    cdef Operand seen
    return array_of(offsets, &seen) is not None and seen.device_type != _CPU


cdef object array_of(object offsets, Operand *seen):
    """Describe offsets that are an array of a product's types; returns its owner, None for numpy arrays of other types and for sequences."""
    if type(offsets) is list or type(offsets) is tuple:
        return None
    try:
        return _operand.parse(offsets, "offsets", seen)
    except InvalidOperandError:
        if hasattr(offsets, "dtype") and type(offsets) is not numpy.ndarray:
            raise
        return None


cdef list read_offsets(object offsets, int64_t groups, vector[int64_t] *out):
    """Read integers from a sequence or an array; one whose length cannot be right is not read. Returns those that may exceed 64 bits."""
    cdef Operand seen
    cdef int64_t i
    cdef object owner = array_of(offsets, &seen)  # of the memory that is read, which may be a copy
    if owner is not None or hasattr(offsets, "dtype"):
        await_call_stream(_CPU if owner is None else seen.device_type)
    if owner is not None:
        if seen.device_type == _CPU and seen.ndim == 1 and seen.type in (10, 24):  # HIP_R_32I, HIP_R_64I
            if seen.shape[0] > _MOST_OFFSETS or (groups >= 0 and seen.shape[0] > groups + 1):
                raise _groups.wrong_count(seen.shape[0], groups)
            out.resize(<size_t>seen.shape[0])
            for i in range(seen.shape[0]):
                if seen.type == 10:
                    out[0][<size_t>i] = (<int32_t *>seen.data)[i * seen.strides[0]]
                else:
                    out[0][<size_t>i] = (<int64_t *>seen.data)[i * seen.strides[0]]
            return None
    cdef list numbers = _groups.offset_numbers(offsets)
    out.resize(<size_t>len(numbers))
    for i in range(<int64_t>len(numbers)):
        # What does not fit in 64 bits leaves the array, as the nearest number that does.
        out[0][<size_t>i] = max(-(2**63), min(numbers[i], 2**63 - 1))
    return numbers


cdef int read_boundaries(object offsets, int64_t groups, int64_t total, vector[int64_t] *out) except -1:
    """Read the boundaries of the groups: E + 1 numbers that rise from 0 or more to the total or less. `groups` < 0: as many as there are."""
    cdef list numbers = read_offsets(offsets, groups, out)
    cdef int64_t count = <int64_t>out.size(), i, previous = 0
    if groups >= 0 and count == groups:
        out.insert(out.begin(), <int64_t>0)
        numbers = None if numbers is None else [0, *numbers]
        count += 1
    elif count < 1 or (groups >= 0 and count != groups + 1):
        raise _groups.wrong_count(count, groups)
    for i in range(count):
        if out[0][<size_t>i] < previous or out[0][<size_t>i] > total:
            raise _groups.wrong_offsets([out[0][<size_t>j] for j in range(count)] if numbers is None else numbers, total)
        previous = out[0][<size_t>i]
    return 0


cdef inline void one_matrix(Operand *operand, int axis) noexcept nogil:
    """Leave an axis of an operand out."""
    cdef int i
    operand.ndim -= 1
    for i in range(axis, operand.ndim):
        operand.shape[i] = operand.shape[i + 1]
        operand.strides[i] = operand.strides[i + 1]


cdef void reset_empty_strides(Operand *operand) noexcept nogil:
    """Give an operand without elements the strides of a dense one: its own say nothing, and one matrix of it may have elements."""
    cdef int axis
    cdef int64_t step = 1
    for axis in range(operand.ndim):
        step *= operand.shape[axis]
    if operand.ndim < 0 or step:
        return
    step = 1
    for axis in range(operand.ndim - 1, -1, -1):
        operand.strides[axis] = step
        step *= max(<int64_t>1, operand.shape[axis])


cdef int64_t longest(const vector[int64_t] &starts) noexcept:
    """Return the extent of the longest group."""
    cdef int64_t most = 0
    cdef size_t i
    for i in range(starts.size() - 1):
        most = max(most, starts[i + 1] - starts[i])
    return most


cdef int read_groups(PackedGroups *groups, GroupedCall call) except -1:
    """Recognise the form, read the boundaries of the groups, and check that all operands fit."""
    cdef Operands *whole = &groups.whole
    cdef int a_ndim = whole.a.ndim, b_ndim = whole.b.ndim, axis
    cdef int64_t count = -1, groups_of_operand
    if call.groups is not None:
        count = _groups.count_of(call.groups)
    groups.result_ndim = 2
    if a_ndim == 2 and b_ndim == 3:
        groups.ragged = Ragged.m
        groups.total = whole.a.shape[0]
        groups.result_shape[0], groups.result_shape[1] = groups.total, whole.b.shape[2]
    elif a_ndim == 3 and b_ndim == 2:
        groups.ragged = Ragged.n
        groups.total = whole.b.shape[1]
        groups.result_shape[0], groups.result_shape[1] = whole.a.shape[1], groups.total
    elif a_ndim == 2 and b_ndim == 2:
        groups.ragged = Ragged.k
        groups.total = whole.a.shape[1]
    else:
        raise _groups.wrong_form(info(&whole.a), info(&whole.b))
    if groups.ragged != Ragged.k:
        groups_of_operand = whole.b.shape[0] if b_ndim == 3 else whole.a.shape[0]
        _groups.check_count(count, groups_of_operand)
        count = groups_of_operand
    if call.completion == Completion.CAPTURE and on_device(call.offsets):
        refuse_capture(call.completion, "offsets on a device are read back", "pass them as a list, or in CPU memory")
    read_boundaries(call.offsets, count, groups.total, &groups.starts)
    groups.count = <int64_t>groups.starts.size() - 1
    if groups.ragged == Ragged.k:
        groups.result_ndim = 3
        groups.result_shape[0], groups.result_shape[1], groups.result_shape[2] = groups.count, whole.a.shape[0], whole.b.shape[1]
    if not fit(whole, groups.ragged, groups.count, groups.result_ndim, groups.result_shape):
        raise _groups.mismatch(info(&whole.a), info(&whole.b), info(&whole.bias), info(&whole.out), groups.count,
                               tuple([groups.result_shape[axis] for axis in range(groups.result_ndim)]))
    return 0


cdef void take_one(PackedGroups *groups) noexcept nogil:
    """Make the operands of one group out of those of all."""
    cdef Operands *whole = &groups.whole
    cdef Operands *one = &groups.one
    # The plan depends on whether the shared axis has more than one element, and not on how many; columns set the leading dimension.
    cdef int64_t shared = min(groups.total, <int64_t>2)
    reset_empty_strides(&whole.a)
    reset_empty_strides(&whole.b)
    reset_empty_strides(&whole.bias)
    reset_empty_strides(&whole.out)
    memcpy(one, whole, sizeof(Operands))
    if groups.ragged == Ragged.m:
        one.a.shape[0] = shared
        one_matrix(&one.b, 0)
    elif groups.ragged == Ragged.n:
        one_matrix(&one.a, 0)
    else:
        one.a.shape[1] = one.b.shape[0] = shared
    if one.bias.ndim == 2:
        one_matrix(&one.bias, 0)
    if one.out.ndim == 3:
        one_matrix(&one.out, 0)
    elif one.out.ndim == 2 and groups.ragged == Ragged.m:
        one.out.shape[0] = shared
    steps(&groups.steps, whole, groups.ragged, groups.result_shape)


cdef void steps(Steps *at, const Operands *whole, Ragged ragged, const int64_t *shape) noexcept nogil:
    memset(at, 0, sizeof(Steps))
    if whole.bias.ndim == 2:
        at.bias_group = whole.bias.strides[0]
    if ragged == Ragged.m:
        at.a_index, at.b_group = whole.a.strides[0], whole.b.strides[0]
        at.aux_index = shape[1]
        at.d_index = whole.out.strides[0] if whole.out.ndim >= 0 else shape[1]
    elif ragged == Ragged.n:
        at.a_group, at.b_index = whole.a.strides[0], whole.b.strides[1]
        at.aux_index = 1
        at.d_index = whole.out.strides[1] if whole.out.ndim >= 0 else 1
        at.bias_index = whole.bias.strides[0] if whole.bias.ndim == 1 else 0
    else:
        at.a_index, at.b_index = whole.a.strides[1], whole.b.strides[0]
        at.aux_group = shape[1] * shape[2]
        at.d_group = whole.out.strides[0] if whole.out.ndim >= 0 else shape[1] * shape[2]


cdef bint fit(const Operands *whole, Ragged ragged, int64_t count, int ndim, const int64_t *shape) noexcept nogil:
    """Whether the operands' extents go together; _groups.mismatch says what does not."""
    cdef int64_t n = shape[ndim - 1]
    cdef int axis
    if whole.a.shape[whole.a.ndim - 1] != whole.b.shape[whole.b.ndim - 2]:
        return False
    if whole.bias.ndim == 1 and whole.bias.shape[0] != n:
        return False
    if whole.bias.ndim == 2 and (ragged == Ragged.n or whole.bias.shape[0] != count or whole.bias.shape[1] != n):
        return False
    if whole.bias.ndim == 0 or whole.bias.ndim > 2:
        return False
    if whole.out.ndim >= 0 and whole.out.ndim != ndim:
        return False
    for axis in range(ndim):
        if whole.out.ndim >= 0 and whole.out.shape[axis] != shape[axis]:
            return False
        if shape[axis] > 2147483647:
            return False
    return whole.a.shape[whole.a.ndim - 1] <= 2147483647
