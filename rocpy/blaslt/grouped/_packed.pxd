# SPDX-License-Identifier: MIT
# What the two forms of grouped_matmul share, and the packed one.
from libc.stdint cimport int32_t, int64_t

from rocpy._core cimport Status
from rocpy._operand cimport Operand
from rocpy.blaslt.grouped._plans cimport GroupedCall


cdef object allocate(Operand *operand, const Operand *like, int32_t type, int ndim, const int64_t *shape, object owner)
cdef int finish(Status status, GroupedCall call, tuple held) except -1
cdef bint is_staged(object array) except? -1
cdef object packed(GroupedCall call)
