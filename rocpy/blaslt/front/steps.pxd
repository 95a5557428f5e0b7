# SPDX-License-Identifier: MIT
# The arguments of a call of the function form, and the steps of a call that is no single launch.
from cpython.ref cimport PyObject

from rocpy._operand cimport Operand
from rocpy.blaslt.engine.launch cimport CachedCall, Completion, Launch, Operands
from rocpy.blaslt.engine.streams cimport SynchronizeStream


# The arguments of a call, borrowed from whoever makes it.
cdef struct Arguments:
    PyObject *a
    PyObject *b
    PyObject *c
    PyObject *bias
    PyObject *aux
    PyObject *out
    PyObject *alpha
    PyObject *beta
    PyObject *epilogue
    PyObject *inputs  # of an epilogue of the user's: product() takes none
    PyObject *clamp
    PyObject *dtype
    PyObject *compute
    PyObject *options
    PyObject *stream
    PyObject *scales  # ScaleArguments, or None
    PyObject *algorithm
    PyObject *autotune  # for the function form: product() takes none
    int row  # of the epilogue
    # What product() fills in:
    PyObject *weight  # what was read of the Weight that b was; NULL where it was none
    PyObject *owner  # the array whose framework makes results


cdef class Step:
    cdef object preparation
    cdef SynchronizeStream synchronize

    cdef int wait(self) except -1
    cdef object prepare(self)
    cdef object finish(self, object outputs)


cdef object staging_step(const Arguments *call)
cdef object preparing_step(const Arguments *call, Launch *launch)
# Refuses a call under capture that is more than a launch.
cdef int refuse_steps(Completion completion, const CachedCall *cached, const Operands *operands, str epilogue) except -1
# Refuses a call that copies arrays, where the options forbid that.
cdef int refuse_forbidden_copies(const CachedCall *cached, const Operands *operands, object options) except -1
cdef str layout(const Operand *operand)
