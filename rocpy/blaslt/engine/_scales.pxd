# SPDX-License-Identifier: MIT
# Scales of one product, as the per-call path reads them.
from libc.stdint cimport int32_t

from rocpy._operand cimport Operand
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments


cdef extern from "matmul.hpp" namespace "rocpy" nogil:
    cdef enum ScaleIndex:
        scale_a
        scale_b
        scale_c
        scale_d
        scale_aux
        scale_amax
        scale_count


cdef class Scales:
    cdef void *pointers[6]  # by ScaleIndex
    cdef Operand arrays[6]  # of those that are read where the caller's arrays lie; others have -1 axes
    cdef bint single[2]  # of scale_a and scale_b: whether it is an array of one number that has axes, of those in `arrays`
    cdef readonly dict problem  # what Problem.make takes of them
    cdef list held
    cdef list numbers  # memory of rocpy's own, of scales that were given as numbers
    cdef readonly bint amax
    cdef str copied  # the name of a scale of which a copy is read, whose array may change afterwards; None for none
    cdef str form  # what to pass so that the array itself is read

    cdef int note_copy(self, str name, str form) except -1


# The same with factors of 1 in the place of those of a and b.
cdef Scales without_factors(Scales scales, const Operand *a, const Operand *b, int device)
cdef int read_number(Scales scales, int slot, str name, double value, int device) except -1
# `by_rows`: a scale of a for its only row is applied as those of several rows are.
cdef Scales read_scales(ScaleArguments values, const Operand *a, const Operand *b, int device, bint by_rows)
# Refuses an out that shares memory with a scale, of those that were read or are arguments.
cdef int check_apart(Scales scales, const Operand *out) except -1
cdef int check_arguments_apart(ScaleArguments values, const Operand *out) except -1
