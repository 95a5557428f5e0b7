# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""Which block of a group is open where a call is made.

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
    def __init__(self):
        self.thread, self.forks = PyThread_get_thread_ident(), _device.forks


cdef class Block:
    def __init__(self, OpenGroup group, Block outer, pending):
        self.group, self.outer, self.pending = group, outer, pending


cdef Block open_here():
    cdef Block block = get_value(here)
    # A task may outlive the block that it was started in.
    while block is not None and not block.is_open:
        block = block.outer
    if block is None:
        return None
    # A context may be copied to another thread, and to a child process.
    return block if block.group.thread == PyThread_get_thread_ident() and block.group.forks == _device.forks else None


cdef int begin_block(Block block) except -1:
    global count
    PyContextVar_Set(here, block)  # first what may fail: a block that is not open is passed over
    block.is_open = True
    if block.outer is not None:
        block.outer.inner_count += 1
    block.group.block_count += 1
    if block.group.block_count == 1:
        count += 1
    return 0


cdef void end_block(Block block) noexcept:
    global count
    block.is_open = False
    if block.outer is not None:
        block.outer.inner_count -= 1
    block.group.block_count -= 1
    if block.group.block_count == 0 and block.group.forks == _device.forks:
        count -= 1
    try:
        if get_value(here) is block:
            PyContextVar_Set(here, block.outer)
    except MemoryError:
        pass  # a block that is not open is passed over


cpdef object current_group():
    cdef Block block = open_here() if count else None
    return None if block is None else block.pending


cdef int group_count() noexcept nogil:
    return count


def _after_fork():
    """A child has none of its parent's groups open."""
    global count
    count = 0


os.register_at_fork(after_in_child=_after_fork)
