# SPDX-License-Identifier: MIT
# How groups lie that follow one another in one operand.
from libc.stdint cimport int64_t
from libcpp.memory cimport shared_ptr
from libcpp.vector cimport vector

from rocpy.blaslt.grouped._plans cimport GroupedCall, GroupedOperand, Ragged
from rocpy.blaslt.engine.launch cimport CachedCall, Operands, PlanKey


cdef struct Steps:  # from one element of the shared axis to the next, and from one group to the next, in elements
    int64_t a_index
    int64_t a_group
    int64_t b_index
    int64_t b_group
    int64_t bias_index
    int64_t bias_group
    int64_t d_index
    int64_t d_group
    int64_t aux_index
    int64_t aux_group


# The operands of a call in which the groups lie one after the other.
cdef struct PackedGroups:
    Operands whole
    Operands one  # of a product whose plan serves all groups but for one extent
    Ragged ragged
    int64_t count
    int64_t total  # of the axis that the groups share out
    int result_ndim
    int64_t result_shape[3]
    Steps steps
    vector[int64_t] starts
    GroupedOperand scale_a
    GroupedOperand scale_b
    PlanKey key
    shared_ptr[CachedCall] planned  # for one group; stands for the plans of all


cdef int64_t longest(const vector[int64_t] &starts) noexcept
cdef int read_groups(PackedGroups *groups, GroupedCall call) except -1
cdef void take_one(PackedGroups *groups) noexcept nogil
