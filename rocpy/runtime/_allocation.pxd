# SPDX-License-Identifier: MIT
"""Memory from HIP for Cython."""

from rocpy.runtime.device cimport Generation


cdef class Allocation:
    cdef void* data
    cdef int device
    cdef Generation generation
    cdef bint pinned
    cdef int free(self) except -1


# Memory of a device ("device"), pinned memory of the host ("host"), or managed memory ("managed").
cdef Allocation allocate(size_t nbytes, int device, object location)
