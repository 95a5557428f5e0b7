# SPDX-License-Identifier: MIT
# Scales of one product, as the per-call path reads them.
from libc.stdint cimport int32_t

from rocpy._operand cimport Operand


cdef class Scales:
    cdef void *pointers[6]  # by ScaleIndex of csrc/core/products/matmul.hpp
    cdef readonly dict problem  # what Problem.make takes of them
    cdef list held
    cdef list numbers  # memory of rocpy's own, of scales that were given as numbers
    cdef readonly bint amax


cdef int read_number(Scales scales, int slot, str name, double value, int device) except -1
cdef Scales read_scales(tuple values, const Operand *a, const Operand *b, int device)
