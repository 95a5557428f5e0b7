# SPDX-License-Identifier: MIT
"""Event for Cython."""

from abi cimport hipEvent_t

from rocpy.runtime.handles.owner cimport Owner


cdef class Event(Owner):
    cdef hipEvent_t c_event
    cdef readonly bint timing
    cdef int waiting  # threads that are in synchronize()


# An argument that is an event; anything else is refused.
cdef Event event_of(object event, str name)
