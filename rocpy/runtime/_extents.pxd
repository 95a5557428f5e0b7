# SPDX-License-Identifier: MIT
"""Element types and extents of memory for Cython."""

from libc.stdint cimport int32_t, int64_t

# The hipDataType of a dtype, and the bytes of an array; typed errors name `dtype` and `shape`.
cdef int32_t type_of(object dtype) except -1
cdef size_t bytes_of(int32_t type, object shape) except? 0
# The numpy dtype of a hipDataType.
cdef object numpy_dtype(int32_t type)
# Write a shape's extents, 32 at most, and return how many there are.
cdef int fill_extents(object shape, int64_t* extents) except -1
# Bytes of a C-contiguous array, checked against overflow.
cdef size_t size_of(int32_t type, int ndim, const int64_t* extents) except? 0
