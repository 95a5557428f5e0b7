# SPDX-License-Identifier: MIT
"""Arrays in and out: what the product takes from an array, and how its result is made."""

from abi cimport hipStream_t
from cpython.object cimport PyObject

from rocpy._dlpack cimport (
    Operand, max_dims, provider_array_interface, provider_buffer, provider_capsule, provider_exchange, provider_numpy, provider_torch,
)
from rocpy.runtime.handles.stream_handle cimport StreamUse

# Fill *out from an array and give what must stay alive while its memory is used; typed errors name the operand by `name`.
cdef object parse(object array, str name, Operand* out)
# The same for an operand of a collective: autocast concerns products, and modes that only watch torch's operators do not see it.
cdef object parse_transferred(object array, str name, Operand* out)
# Fill *out from an array that can be used as it is, at little cost; false where `parse` has to look closer, or to refuse.
cdef bint parse_plainly(object array, Operand* out) except -1
# As `parse` for a factor of a product: a lazily conjugated torch tensor is read without resolving it, and out.conjugated says so.
cdef object parse_lazy(object array, str name, Operand* out)
# The same for an array that will be written: read-only, copied and self-overlapping memory is refused.
cdef object parse_output(object array, str name, Operand* out, bint is_product=*)
# Make a C-contiguous result by the prototype's framework. In: type, device, ndim, shape; filled: data, strides and the rest.
cdef object allocate(object prototype, int provider, Operand* out)
# Whether the CPU reads it where it is: in its own memory, or in pinned memory of HIP's.
cdef bint is_in_host_memory(const Operand* operand) noexcept
# Whether operands are numpy's, torch's or None, which are read as they are.
cdef bint is_plain(object array) noexcept
cdef bint are_plain(PyObject* a, PyObject* b, PyObject* c, PyObject* bias, PyObject* aux) noexcept
# What a product works with in the place of an object that offers its memory and nothing else, no dtype and no shape: numpy's view.
cpdef object readable(object array, str name)
# What can be read again and again: numpy's view of a capsule, which can be read once; others are themselves.
cpdef object lasting(object array, str name)
# numpy's view of an array in CPU memory; what is elsewhere, or must be copied, comes back as it is.
cpdef object numpy_view(object array, str name=*)
# An array given by the user was written.
cdef int written(object array, int provider) except -1
# Why an array must go through torch's dispatcher, as text; None where its memory can be used.
# The addresses that an operand's elements lie in; strides may be negative.
cdef void span(const Operand *operand, size_t *low, size_t *high) noexcept nogil
# Whether an element of one lies where one of the other does.
cdef bint share_memory(const Operand* one, const Operand* other) except -1
cdef object dispatch_reason(object array)
# The stream of a call: what the user gave as stream=, or for None the current stream of the framework that `like` came from on its
# device (the null stream for arrays in CPU memory).
cdef int stream_of(object stream, const Operand* like, hipStream_t* out, StreamUse* use) except -1
