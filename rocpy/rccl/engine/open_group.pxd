# SPDX-License-Identifier: MIT
"""The group that is open where a call is made, for Cython."""


# A group from when its first block was entered until its last one was left. One belongs to the thread, the task and the process that
# entered it: calls of others go on without it.
cdef class OpenGroup:
    cdef readonly object pending
    # The blocks, those of inner groups too, in the order in which they were entered.
    cdef list blocks
    # Why nothing is launched, although no block has raised; None: nothing has happened.
    cdef str obstacle
    cdef unsigned long thread
    cdef int forks


# The group in which a call is, or None.
cdef OpenGroup open_here()
# From here on it is the one, and no longer.
cdef int begin_group(OpenGroup group) except -1
cdef int end_group(OpenGroup group) except -1
# What is pending in the group in which a call is, or None.
cpdef object current_group()
# Of all threads, groups that are open: without any, nobody need ask which.
cdef int group_count() noexcept nogil
