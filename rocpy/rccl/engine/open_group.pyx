# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""Which group is open where a call is made.

A task of asyncio that waits in a block lets others of its thread run, whose calls are none of the group: a context variable tells them
apart. A task that is started in a block has the block's group, since it has a copy of the context.
"""

import os

from cpython.contextvars cimport PyContextVar_New, PyContextVar_Set, get_value
from cpython.pythread cimport PyThread_get_thread_ident

from rocpy.runtime cimport device as _device

cdef object here = PyContextVar_New("rocpy_group", NULL)
cdef int count = 0


cdef class OpenGroup:
    def __init__(self, pending):
        self.pending, self.blocks = pending, []
        self.thread, self.forks = PyThread_get_thread_ident(), _device.forks


cdef OpenGroup open_here():
    cdef OpenGroup group = get_value(here)
    if group is None or not group.blocks:
        return None
    # A context may be copied to another thread, and to a child process.
    return group if group.thread == PyThread_get_thread_ident() and group.forks == _device.forks else None


cdef int begin_group(OpenGroup group) except -1:
    global count
    PyContextVar_Set(here, group)
    count += 1
    return 0


cdef int end_group(OpenGroup group) except -1:
    global count
    if group.forks == _device.forks:
        count -= 1
    if get_value(here) is group:
        PyContextVar_Set(here, None)
    return 0


cpdef object current_group():
    cdef OpenGroup group = open_here() if count else None
    return None if group is None else group.pending


cdef int group_count() noexcept nogil:
    return count


def _after_fork():
    """A child has none of its parent's groups open."""
    global count
    count = 0


os.register_at_fork(after_in_child=_after_fork)
