# SPDX-License-Identifier: MIT
# What the two forms of grouped_matmul share, and the packed one.
from libc.stdint cimport int32_t, int64_t

from abi cimport hipStream_t
from rocpy._core cimport Status
from rocpy._operand cimport Operand


cdef int chosen_epilogue(object epilogue) except -1
cdef object allocate(Operand *made, const Operand *like, int32_t type, int ndim, const int64_t *shape, object owner)
cdef int finish(Status status, hipStream_t c_stream, int device, int after, tuple held) except -1
cdef bint is_staged(object array) except? -1
cdef object packed(object run, object a, object b, object offsets, object groups, object epilogue, object bias, object clamp, object alpha,
                   object scale_a, object scale_b, object dtype, object out, object options, object stream, list explained)
