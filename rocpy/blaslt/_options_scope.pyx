# SPDX-License-Identifier: MIT
# cython: auto_pickle=False
"""What a ``with`` statement enters and leaves for options.

The call of a function in Python may be interrupted (Ctrl-C), and needs memory, before its first instruction: it would leave the options
set.
"""

from contextvars import ContextVar

from cpython.contextvars cimport PyContextVar_Reset, PyContextVar_Set, get_value

from rocpy.errors import InvalidProblemError

# The blocks that were entered, innermost last. An immutable stack in the context variable, and in the context manager a token for each
# block: one manager may be entered by several threads and tasks at a time.
STACK = ContextVar("rocpy_options", default=())
# What the tokens are of: only in the context where a block was entered may its token be used, which changes no options.
cdef object entry = ContextVar("rocpy_options_entry", default=None)
# Not empty once a block was entered, in any thread: until then the per-call path need not look at the context variable. It stays so: a
# task started inside a block keeps the block's options after the block was left.
ACTIVE = []


cdef class Block:
    """One ``with`` that was entered: its options, and whether it was left in another context."""

    cdef readonly object options
    cdef readonly bint is_left


cdef class OptionsScope:
    """The block of `rocpy.options`; a derived class has its options as ``value``."""

    cdef dict entered

    def __cinit__(self):
        self.entered = {}

    def __enter__(self):
        cdef Block block = Block.__new__(Block)
        cdef tuple outer
        block.options = self.value
        # From here on nothing is interrupted.
        outer = get_value(STACK)
        if not ACTIVE:
            ACTIVE.append(True)
        self.entered[block] = PyContextVar_Set(entry, None)
        try:
            PyContextVar_Set(STACK, outer + (block,))
        except MemoryError:
            block.is_left = True  # CPython may have set the variable all the same; this takes no memory
            del self.entered[block]
            raise
        return block.options

    def __exit__(self, kind, error, trace):
        cdef tuple blocks = get_value(STACK)
        cdef Block block = self.innermost(blocks)
        if block is None:
            if len(self.entered) == 1:  # that block is over: who entered it no longer has its options
                block = self.entered.popitem()[0]
                block.is_left = True
            raise InvalidProblemError(
                f"{self!r}: this thread or task is in no with block of it; a block is left in the thread or task that "
                "entered it: in a generator leave it before each yield"
            )
        token = self.entered[block]
        del self.entered[block]
        try:
            PyContextVar_Set(STACK, without(blocks, block))
        except MemoryError:
            block.is_left = True
            raise
        try:
            PyContextVar_Reset(entry, token)
        except ValueError:  # a task or thread that was started inside the block has left it: for others, too
            block.is_left = True

    cdef Block innermost(self, tuple blocks):
        cdef Py_ssize_t i
        for i in range(len(blocks) - 1, -1, -1):
            if blocks[i] in self.entered:
                return blocks[i]
        return None


cdef tuple without(tuple blocks, Block block):
    if blocks[-1] is block:
        return blocks[:-1]
    return tuple([one for one in blocks if one is not block])
