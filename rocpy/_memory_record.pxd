# SPDX-License-Identifier: MIT
"""Where the memory of arrays lies that are read again and again, and what keeps it there."""

from libc.stdint cimport int32_t, int64_t

from rocpy._dlpack cimport DLDataType, DLDevice, Operand
from rocpy._producers.torch_memory cimport TensorWords


# What tells an element type from others.
cdef struct TypeIdentity:
    const void* descriptor  # of numpy
    DLDataType dlpack  # of torch
    int64_t hash  # of torch's own object, for a type that DLPack has no name for; hipDataType of an exporter's


# Where an array of torch is.
cdef struct DeviceIdentity:
    DLDevice dlpack
    int64_t hash  # as of a type


cdef struct MemoryLayout:
    const void* data
    TypeIdentity type
    DeviceIdentity device
    int32_t ndim
    bint conjugated
    bint negated
    int64_t shape[32]
    int64_t strides[32]


cdef class MemoryRecord:
    cdef readonly object array
    cdef readonly str name
    cdef object dtype
    cdef object is_deleted  # of an array of jax's, which stays as it is until it is deleted or donated; None for others
    cdef int kind
    cdef MemoryLayout layout
    cdef TensorWords words  # of a tensor: what is equal as long as nothing of its layout changes

    # Whether the array lies where it lay, found out without asking its framework; False is no answer.
    cdef bint is_at_rest(self) noexcept
    # Whether the array has other memory than before; raises where that is of another shape, type, layout or device.
    cdef bint has_moved(self) except -1
    # Whether the array has other memory than before, or is of another shape, type, layout or device.
    cdef bint has_changed(self) except -1
    # Whether what was read of the array is not the array's own memory.
    cdef bint is_elsewhere(self, const void* read) noexcept
    cdef bint is_as_before(self, const MemoryLayout* now) except -1


# The record of an array of numpy or torch, None for others. With `view`, numpy's view or the array itself, also of an object that is asked
# for its memory: by what was read of the view. That it is not asked for here: it may give other memory each time, and free what it gave.
cdef MemoryRecord record_of(object array, str name, object view=*, const Operand* read=*)
cpdef bint any_moved(tuple records) except -1
# Refuses arrays whose memory or layout changed since it was recorded, while the call's own arguments were read.
cdef int refuse_changed(tuple records) except -1
cdef object changed(MemoryRecord record)
# Refuses an array of another shape than was read of it, as the call's own arguments were read in between.
cdef int refuse_other_shape(MemoryRecord record, const Operand* read) except -1
# Refuses tensors whose product torch would have to record now.
cpdef int refuse_gradients(tuple records) except -1
# What keeps an array's memory where it is until it is dropped, even if the array is given other memory meanwhile.
cdef object pinned_memory(object array)
cdef tuple pinned_memories(object arrays)
