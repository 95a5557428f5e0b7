# SPDX-License-Identifier: MIT
# What every planned product is, for those that hold one.


cdef class PlannedProduct:
    cdef object __weakref__
    cdef public bint closed
    cdef public list planned_algorithms  # the algorithms of the plan; the rank of each is its place there
    cdef public size_t chosen  # the rank of the one that is taken

    # execute() for callers in C: one call through a table of functions, no arguments by name.
    cdef object run(self, object out, object algorithm, object stream)

    # The algorithm of the plan that is named by itself or by its place there; None where it is named otherwise.
    cdef object listed(self, object algorithm)
