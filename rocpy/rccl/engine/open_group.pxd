# SPDX-License-Identifier: MIT
"""The group that is open where a call is made, for Cython."""


# A group from when its first block was entered until its last one was left. One belongs to the thread, the task and the process that
# entered it: calls of others go on without it.
cdef class OpenGroup:
    # How many blocks have not been left, those of inner groups too.
    cdef int block_count
    # Why nothing is launched, although no block has raised; None: nothing has happened.
    cdef str obstacle
    cdef unsigned long thread
    cdef int forks


# One block of a group, from when it was entered. Tasks that were started in a block may have blocks in it at the same time.
cdef class Block:
    cdef readonly OpenGroup group
    # That in which it was entered; None: it is the group's first.
    cdef readonly Block outer
    # What was noted in it, and in the blocks in it that have been left.
    cdef readonly object pending
    cdef bint is_open
    # How many blocks that were entered in it have not been left.
    cdef int inner_count


# The innermost block in which a call is, or None.
cdef Block open_here()
# From here on it is the one, and no longer.
cdef int begin_block(Block block) except -1
cdef void end_block(Block block) noexcept
# What is pending in the block in which a call is, or None.
cpdef object current_group()
# Of all threads, groups that are open: without any, nobody need ask which.
cdef int group_count() noexcept nogil
