# SPDX-License-Identifier: MIT
"""Stream for Cython."""

from rocpy.runtime.handles.stream_handle cimport StreamHandle


cdef class Stream(StreamHandle):
    cdef readonly bint nonblocking
    cdef readonly int priority
