# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""A handle and a workspace of the user's, in the place of the pool's, for the products of a block."""

from rocpy cimport _core
from rocpy._core cimport Status
from rocpy.runtime cimport device as _device
from rocpy.runtime._context cimport StreamContext, destroy_context, make_context, prefer_context, set_workspace
from abi cimport hipStream_t

from threading import get_ident

from rocpy.errors import ClosedError


cdef class Lending:
    """What a stream's products use instead of the pool's handle and workspace, in a ``with`` block of this thread.

    Parameters
    ----------
    device, stream : int
        Number of the device, handle of the stream.
    handle : int
        Address of a hipBLASLt handle, which lives longer than this; 0 for that of the pool.
    """

    cdef StreamContext *context
    cdef dict before  # by thread: what it preferred when it entered, the innermost block's last
    cdef bint closing
    cdef int forks  # that led to the process which made it
    cdef object memory  # owns the workspace

    def __cinit__(self, int device, size_t stream, size_t handle=0):
        cdef Status status
        _core.ensure()
        self.forks = _device.forks
        self.before = {}
        with nogil:
            status = make_context(device, <hipStream_t>stream, <void *>handle, &self.context)
        _core.check(status)

    def give_workspace(self, object memory, size_t address, size_t size):
        """Use memory of the device that another object owns as the workspace; products that need more have one of their own."""
        self.check()
        _core.check(set_workspace(self.context, <void *>address, size))
        self.memory = memory

    cdef int check(self) except -1:
        if self.context == NULL or self.closing:
            raise ClosedError("a lent handle was already returned")
        return 0

    def __enter__(self):
        self.check()
        self.before.setdefault(get_ident(), []).append(<size_t>prefer_context(self.context))
        return self

    def __exit__(self, *error):
        cdef object thread = get_ident()
        cdef list entered = self.before[thread]
        prefer_context(<StreamContext *><size_t>entered.pop())
        if not entered:
            del self.before[thread]
        if self.closing:
            self.close()

    def close(self):
        """Give everything back, once no thread is in a block of it any more; a second time does nothing.

        Products that needed a workspace of their own leave one to free, which waits for the device.
        """
        self.closing = True
        if not self.before:
            self.give_back()

    cdef int give_back(self) except -1:
        cdef Status status
        cdef StreamContext *context = self.context
        self.context = NULL
        self.memory = None
        if context != NULL and self.forks == _device.forks:
            with nogil:
                status = destroy_context(context)
            _core.check(status)
        return 0

    def __dealloc__(self):
        if self.context != NULL and self.forks == _device.forks:
            with nogil:  # the device's queued work is waited for, and may need the GIL
                destroy_context(self.context)
