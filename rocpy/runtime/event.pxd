# SPDX-License-Identifier: MIT
"""Event for Cython."""

from abi cimport hipEvent_t


cdef class Event:
    cdef hipEvent_t c_event
    cdef readonly int device_index
    cdef readonly bint timing
    cdef bint closed
    cdef int generation
    cdef object __weakref__
    cdef int check(self) except -1
