# SPDX-License-Identifier: MIT
"""Owner for Cython: what every noun with one object of HIP's shares."""

from rocpy.runtime.device cimport Generation


cdef class Owner:
    cdef readonly int device_index
    cdef bint closed
    cdef Generation generation
    cdef object __weakref__
    # The object is there: it is this process's to give back until close().
    cdef void opened(self) noexcept
    # Raise unless the object is there and this process's own.
    cdef int check(self) except -1
    # Give the object back; called once, in the process that made it.
    cdef int give_back(self) except -1
