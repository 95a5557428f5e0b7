# SPDX-License-Identifier: MIT
# The planning half of a native product for the half that executes.
from libcpp.memory cimport shared_ptr

from abi cimport hipStream_t

from rocpy.blaslt.engine.launch cimport CachedCall, MatmulFactors, Operands
from rocpy.blaslt.engine._scales cimport Scales
from rocpy.blaslt.model.planned_product cimport PlannedProduct
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments
from rocpy.blaslt.operands.weight_snapshot cimport WeightSnapshot
from rocpy.blaslt.operands.weight cimport Weight
from rocpy.runtime.device cimport Generation


# Algorithms that are asked for: first few, since hipBLASLt walks its whole library when asked for more than it ranked, which takes
# milliseconds; then all, for one that the user names.
cdef enum:
    first_algorithms = 32
    all_algorithms = 16384


# What a thread does with a product: while it changes it, its parts do not belong together.
cdef enum Use:
    idle, executing, changing


cdef class Planned(PlannedProduct):
    cdef Operands operands
    cdef shared_ptr[CachedCall] call
    cdef readonly dict operand_arrays
    cdef dict originals  # what the user gave for those that are read at each execution
    cdef dict original_scales  # likewise, of the scales
    cdef dict views  # what was read of the originals: numpy's views, or they themselves
    cdef readonly tuple records  # where the memory of originals and scales was when it was read
    cdef tuple copied  # names of those of which a copy was read
    cdef readonly ScaleArguments scale_values  # the user's
    cdef Scales scales
    cdef MatmulFactors factors
    cdef int epilogue
    cdef Use busy
    cdef bint released
    cdef unsigned long user  # the thread that keeps it busy
    cdef int user_forks  # that had led to that thread's process
    cdef int device  # of the operands that it took
    cdef Generation generation  # of that device then
    cdef Weight weight  # the user's b, or None where that is an array
    cdef WeightSnapshot taken  # what was read of it when its operands were taken
    cdef bint weight_bias  # the bias is the one that the Weight carries
    cdef readonly object options, stream, clamp, dtype, compute
    cdef readonly object launched
    cdef dict cached_plans  # plans by problem, the one used last at the end
    cdef str extra_name
    cdef readonly object prototype
    cdef readonly object problem
    cdef readonly object unfused  # rocpy.blaslt.composed.plan
    cdef readonly tuple copies, staged

    cdef Scales read(self, ScaleArguments scales, Operands *operands)
    cdef int state_problem(self, object problem) except -1
    cdef int change_problem(self, object problem) except -1
    cdef int enter(self, bint resetting=*) except -1
    cdef int refuse_use(self, str advice) except -1
    cdef object in_use(self, str advice)
    cdef int record_memory(self) except -1
    cdef int read_again(self) except -1
    cdef int make_plan(self, int requested) except -1
    cdef int restrict(self, list wanted) except -1
    cdef object find(self, object algorithm)
    cdef object find_among_all(self, object algorithm, int device)
    cpdef dict scalars(self)
