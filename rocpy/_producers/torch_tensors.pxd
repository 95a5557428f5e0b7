# SPDX-License-Identifier: MIT
"""torch tensors as operands: the fast reading of plain tensors, and what to do about the others."""

from cpython.object cimport Py_TYPE, PyObject
from libc.stdint cimport uint64_t

from rocpy._dlpack cimport DLPackExchangeAPI, Operand

# Exact types that the fast path takes, and torch's exchange table; NULL until a tensor has been seen.
cdef void* tensor_type
cdef void* parameter_type
cdef const DLPackExchangeAPI* torch_api

cdef bint learn(object cls) except -1
cdef int parse_plain(object array, Operand* out) except -1
cdef object parse_other(object array, str name, Operand* out, bint is_product=*)
cdef object dispatch_reason(object array, bint is_product=*)
# Whether torch must see a product of plain tensors before it is computed: what is seen at little cost, without reading operands.
cdef bint torch_is_first(PyObject* a, PyObject* b, PyObject* c, PyObject* bias) except -1
cdef int refuse_recorded(object array, str name) except -1
cdef int check_writable(object array, str name) except -1
cdef int raise_version(object array) except -1
# Whether a tensor's set of dispatch keys is one in which nothing special was found: neither conjugated nor negated lazily.
cdef bint is_clear(object array) noexcept
# Where the key set of a tensor is found; False where that is not known.
cdef bint key_offsets(uint64_t* impl, uint64_t* keys) noexcept
# Whether autograd records here what is done with an array: a tensor that requires a gradient, with grad mode on.
cdef bint is_recorded_here(object array) noexcept


cdef inline bint is_plain_tensor(object array) noexcept:
    cdef void* cls = <void*>Py_TYPE(array)
    return cls == tensor_type or cls == parameter_type
