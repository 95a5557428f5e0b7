# SPDX-License-Identifier: MIT
# The grouped products of csrc/core as Cython sees them, a call's arguments, and how plans are found and made.
from libc.stdint cimport int32_t, int64_t
from libcpp cimport bool as c_bool
from libcpp.memory cimport shared_ptr

from abi cimport hipStream_t
from rocpy._core cimport Status
from rocpy._operand cimport Operand
from rocpy.blaslt.engine.launch cimport CachedCall, Completion, MatmulFactors, MatmulSpec, Operands, PlanKey, PlanKind, StreamContext
from rocpy.blaslt.engine._scales cimport Scales
from rocpy.runtime.handles.stream_handle cimport StreamUse


cdef extern from "grouped.hpp" namespace "rocpy" nogil:
    cdef enum class Ragged(int32_t):
        m
        n
        k
    PlanKind kind_of_groups(Ragged ragged)
    cdef cppclass GroupedOperand:
        char *data
        int64_t per_index
        int64_t per_group
        int64_t element_bytes
    cdef cppclass GroupedProduct:
        const MatmulSpec *spec
        c_bool swapped
        Ragged ragged
        GroupedOperand operands[8]
        MatmulSpec spec_of(int64_t extent, int64_t count) except +
    cdef cppclass GroupRun:
        int64_t first
        int64_t count
        int64_t extent
    c_bool next_run(const GroupedProduct &product, const int64_t *starts, int64_t groups, GroupRun *run)
    Status launch_groups(StreamContext *context, const GroupedProduct &product, PlanKey *key, const int64_t *starts, int64_t groups,
                         const shared_ptr[CachedCall] &ready, double alpha, GroupRun *run)


# What grouped_matmul was called with, and what follows from it for all groups.
cdef class GroupedCall:
    cdef public object a, b, offsets, groups, epilogue, bias, clamp, alpha, scale_a, scale_b, dtype, out, options, stream
    cdef int epilogue_index
    cdef object row  # of the epilogue
    cdef object bounds  # of a clamp
    cdef object resolved  # options; None for those by default
    cdef MatmulFactors factors
    cdef hipStream_t c_stream
    cdef StreamUse use
    cdef int device
    cdef Completion completion

    cdef Scales scales  # of groups in one operand; None where there are none

    cdef int resolve(self) except -1
    cdef int resolve_stream(self, const Operand *like) except -1
    cdef dict keywords(self, tuple names)


# A call from its arguments by name; a name of none is a TypeError.
cdef GroupedCall call_of(dict arguments)
cdef int add_settings(PlanKey *key, PlanKind kind, bint packed, GroupedCall call, Scales scales) except -1
cdef shared_ptr[CachedCall] find(PlanKey *key, Operands *operands, GroupedCall call, Scales scales, int requested, tuple live) except *
cdef Scales read_group_scales(GroupedCall call, Ragged ragged, const Operands *whole, int64_t count, int64_t longest, GroupedOperand *of_a,
                              GroupedOperand *of_b)
cdef shared_ptr[CachedCall] plan_run(GroupedProduct *product, const GroupRun *run, object problem, object options, StreamContext *context,
                                     int requested) except *
