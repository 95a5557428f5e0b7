# SPDX-License-Identifier: MIT
"""Buffer for Cython."""

from libc.stdint cimport int32_t, int64_t

from rocpy.runtime.device cimport Generation


cdef class Buffer:
    cdef void* data
    cdef readonly size_t nbytes
    cdef readonly int device_index
    cdef readonly str location
    cdef int32_t type
    cdef int ndim
    cdef int64_t extents[32]
    cdef object source  # owns the memory
    cdef object tensor  # of torch's, which has the memory too and counts what is written there
    cdef int foreign_type  # DLPack device type of memory that was taken over; 0 for memory of our own
    cdef bint read_only_
    cdef bint closed
    cdef Generation generation
    cdef object __weakref__
    cdef int check(self) except -1
    # The address, and what owns it; to be kept for as long as the address is used.
    cdef object memory_now(self, void** data)
    # Refuse a buffer that must not be written; tell whoever counts what is written that it was.
    cdef int check_writable(self) except -1
    cdef int written(self) except -1
    cdef bint on_cpu(self) except -1
    cdef int device_type(self) except -1
    cdef int drain(self) except -1
    cdef int check_like(self, object array) except -1
    cdef int copy(self, void* target, const void* source, tuple owners, object stream) except -1


cdef Buffer new_buffer(int32_t type, int ndim, const int64_t* extents, int device, str location)
# A Buffer on memory of a device that `source` owns and frees with its last reference; the element type is a hipDataType.
cdef Buffer buffer_on(void* data, int32_t type, object shape, int device, object source)
