# SPDX-License-Identifier: MIT
# What is read of a weight at one time, and the memory that it is packed in.
cimport cython

from rocpy._core cimport Status
from rocpy._operand cimport Operand
from rocpy.blaslt.model.weight_operand cimport WeightOperand
from rocpy.runtime.device cimport Generation


cdef extern from "packed_weight.hpp" namespace "rocpy" nogil:
    cdef cppclass PackedWeight:
        Status release()
        void *data()


# Owns one PackedWeight.
cdef class PackedMemory:
    cdef PackedWeight *weight
    cdef int forks  # that led to the process which packed it


# Never changed once read_weight() returns it, but for `doubted`.
@cython.no_gc_clear  # a cycle ends at the Weight: the memory must stay while anyone can still multiply by this
cdef class WeightSnapshot(WeightOperand):
    cdef readonly object source
    cdef readonly object bias  # a copy where nothing tells that it has changed
    cdef readonly object scale
    cdef readonly object factors  # the scale as products take it
    cdef readonly str layout
    cdef readonly bint packed
    cdef Operand operand
    cdef object held  # owns the memory of operand where it is not packed
    cdef PackedMemory memory
    cdef object plain  # a copy of a source that nothing tells the changes of; else None
    cdef object plain_scale  # the scale as it was read: a copy of an array that nothing tells the changes of, else itself
    cdef object prepared  # with scales by blocks and not packed: what products take
    cdef object version, scale_version  # of source and scale, None for arrays without
    cdef tuple records  # where tensors lay that may get other memory
    cdef bint of_torch  # tensors are among them, which optimizers change
    cdef bint copied  # products read a copy of the source, packed or not
    cdef int device  # where products read it
    cdef Generation generation  # of that device then
    cdef unsigned long epoch  # that of sources_may_have_changed() before it was read
    cdef bint doubted  # the tensor's own values were handed out, which the copy that products read may not have
    cdef object checksum  # in debug mode, of what is copied

    # Whether its source is known to have changed, or may have.
    cdef bint outdated(self) except -1
    # Whether products read a copy of a tensor, which a write may have gone by.
    cdef bint reads_copy(self) noexcept
    # In debug mode: whether what was copied has changed and nothing told so.
    cdef bint changed_unnoticed(self, object source, object bias, object scale) except -1


# `watched` are further tensors whose memory tells whether it is outdated, None among them.
cdef WeightSnapshot read_weight(object source, object bias, object scale, str layout, tuple watched)
cdef void raise_epoch() noexcept nogil
# Where tensors lie; other arrays have no record.
cdef tuple records_of_tensors(tuple arrays)
