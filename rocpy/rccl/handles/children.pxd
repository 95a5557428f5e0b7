# SPDX-License-Identifier: MIT
"""Waiting for calls that a nonblocking communicator takes its time for, for Cython."""

from rocpy.rccl.handles.communicator cimport Handle

cdef int require(Handle self, str function, str since=*) except -1
cdef int judge(Handle self, int code, str op) except -1
cdef int judge_numbered(Handle self, int code, str op) except -1
cdef int await_communicator(Handle self, int code, str op, double seconds) except -1
