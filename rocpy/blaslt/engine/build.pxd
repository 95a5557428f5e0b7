# SPDX-License-Identifier: MIT
# Plans from problems.
from libcpp.memory cimport shared_ptr

from rocpy._core cimport Status
from rocpy.blaslt.engine.launch cimport CachedCall, StreamContext
from rocpy.blaslt.engine.program cimport TileProgram


cdef shared_ptr[CachedCall] build(object problem, object options, StreamContext *context, bint packed, int requested,
                                  TileProgram program=*, tuple auxiliaries=*) except *
cdef bint refuses(const Status &status)
# The names of the arrays that a call copies.
cdef tuple copied_names(const CachedCall *call)
# The Recipe of a call that is composed.
cdef object recipe_of(const CachedCall *call)
