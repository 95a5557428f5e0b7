# SPDX-License-Identifier: MIT
# What Weights and what is read of them have in common.


cdef class WeightOperand:
    cdef object __weakref__

    # What one product reads of it, which never changes; raises ClosedError where there is none any more.
    cdef WeightOperand read(self)
