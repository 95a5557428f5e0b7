# SPDX-License-Identifier: MIT
# A weight as the per-call path takes it: what a product reads of it comes from read().
from rocpy.blaslt.model.weight_operand cimport WeightOperand
from rocpy.blaslt.operands.weight_snapshot cimport WeightSnapshot


cdef class Weight(WeightOperand):
    cdef readonly object source
    cdef object origin  # the bias as it was given
    cdef tuple parameters  # whose detached tensors source and bias are; else empty
    cdef readonly object scale
    cdef readonly str layout
    #: ``(K, N)``.
    cdef readonly tuple shape
    #: Name of the element type.
    cdef readonly str dtype
    # What products read now, replaced in one step; None: closed.
    cdef WeightSnapshot published
    cdef object reading  # the lock of whoever reads the source
    cdef long process  # that the lock belongs to

    cdef WeightSnapshot current(self)
    cdef int take(self, WeightSnapshot snapshot) except -1
    cdef int check_open(self) except -1
    cdef object closed_error(self)
    cdef WeightSnapshot renew(self, WeightSnapshot before)
