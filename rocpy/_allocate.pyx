# SPDX-License-Identifier: MIT
"""Results: C-contiguous arrays made by the framework of an operand."""

import numpy

from rocpy.errors import InvalidProblemError, LibraryError, OutOfMemoryError, UnsupportedError

cimport numpy as cnp
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t
from libc.string cimport strncpy

from rocpy._dlpack cimport (
    DLManagedTensorVersioned, DLDeviceType, DLPackExchangeAPI, DLTensor, Operand, array_type_of_hip, check_extents, dlpack_type, exchange_api,
    fault_message, fault_none, kDLCPU, new_host_block, provider_array_interface, provider_buffer, provider_exchange,
)

cnp.import_array()


cdef extern from "numpy/arrayobject.h":
    ctypedef struct PyTypeObject:
        pass

    PyTypeObject PyArray_Type
    object PyArray_NewFromDescr(PyTypeObject*, cnp.dtype, int, const int64_t*, const int64_t*, void*, int, PyObject*)


cdef extern from "Python.h":
    void Py_DECREF(PyObject*)


cdef struct Failure:
    char kind[64]
    char message[512]


cdef void note_failure(void* context, const char* kind, const char* message) noexcept nogil:
    """What an allocator reports; plain C, since it may come without the GIL."""
    cdef Failure* failure = <Failure*>context
    failure.kind[63] = 0
    failure.message[511] = 0
    if kind != NULL:
        strncpy(failure.kind, kind, 63)
    if message != NULL:
        strncpy(failure.message, message, 511)


cdef object extents(const Operand* out):
    return tuple([out.shape[i] for i in range(out.ndim)])


cdef object out_of_memory(const Operand* out, object reason):
    name = array_type_of_hip(out.type).name.decode()
    return OutOfMemoryError(f"no memory for a result of shape {extents(out)} and type {name}: {reason}")


cdef int compact(Operand* out) except -1:
    """Fill the strides of a C-contiguous array and check that its size can exist."""
    cdef int64_t elements = 0
    cdef int fault = check_extents(out, <int64_t>1 << array_type_of_hip(out.type).shift, True, &elements)
    if fault != fault_none:
        raise InvalidProblemError(f"a result of shape {extents(out)} cannot be made: {fault_message(fault).decode()}")
    return 0


# numpy type numbers and descriptors by hipDataType, filled when first needed.
cdef dict descriptors = {}
cdef int numbers[64]
for _slot in range(64):
    numbers[_slot] = -1


cdef cnp.dtype descriptor_of(int32_t type):
    """The numpy dtype of a hipDataType. Imports ml_dtypes for the types that only it has."""
    found = descriptors.get(type)
    if found is None:
        row = array_type_of_hip(type)
        if row.in_numpy:
            found = numpy.dtype(row.name.decode())
        else:
            import ml_dtypes

            found = numpy.dtype(getattr(ml_dtypes, row.name.decode()))
        descriptors[type] = found
        if row.in_numpy and type < 64:
            numbers[type] = found.num
    return found


cdef object allocate_ndarray(Operand* out):
    cdef cnp.ndarray made
    cdef cnp.dtype descriptor
    cdef int number = numbers[out.type] if out.type < 64 else -1
    try:
        if number >= 0:
            made = cnp.PyArray_EMPTY(out.ndim, <cnp.npy_intp*>&out.shape[0], number, 0)
        else:
            descriptor = descriptor_of(out.type)
            Py_INCREF(descriptor)
            made = PyArray_NewFromDescr(&PyArray_Type, descriptor, out.ndim, out.shape, NULL, NULL, 0, NULL)
    except (MemoryError, ValueError) as error:
        raise out_of_memory(out, error) from error
    out.data = cnp.PyArray_DATA(made)
    return made


cdef object allocate_host(const DLPackExchangeAPI* api, Operand* out):
    """CPU memory of our own, wrapped by a framework: the framework's allocator would make a tensor of its own only to drop it."""
    cdef DLManagedTensorVersioned* managed = new_host_block(out[0])
    if managed == NULL:
        raise out_of_memory(out, "the system has none left")
    return wrap(api, managed, out)


cdef object allocate_exchange(const DLPackExchangeAPI* api, Operand* out):
    """Memory and array object by a framework's exchange table."""
    cdef DLTensor prototype
    cdef DLManagedTensorVersioned* managed = NULL
    cdef Failure failure
    prototype.data = NULL
    prototype.device.device_type = <DLDeviceType>out.device_type
    prototype.device.device_id = out.device_id
    prototype.ndim = out.ndim
    prototype.dtype = dlpack_type(out.type)
    prototype.shape = out.shape
    prototype.strides = out.strides
    prototype.byte_offset = 0
    failure.kind[0] = 0
    failure.message[0] = 0
    if api.managed_tensor_allocator(&prototype, &managed, &failure, note_failure) != 0 or managed == NULL:
        reason = failure.message.decode(errors="replace").partition("\n")[0]
        if b"Memory" in failure.kind or "memory" in reason or "alloc" in reason:
            raise out_of_memory(out, reason)
        raise LibraryError(f"the operands' framework made no result of shape {extents(out)}: {failure.kind.decode()} {reason}")
    return wrap(api, managed, out)


cdef object wrap(const DLPackExchangeAPI* api, DLManagedTensorVersioned* managed, Operand* out):
    """The framework's array over a managed tensor, which it takes over."""
    cdef void* made = NULL
    cdef object result
    out.data = <char*>managed.dl_tensor.data + managed.dl_tensor.byte_offset if managed.dl_tensor.data != NULL else NULL
    raise_if(api.managed_tensor_to_py_object_no_sync(managed, &made))
    result = <object><PyObject*>made
    Py_DECREF(<PyObject*>made)
    return result


cdef int raise_if(int failed) except -1:
    """Let the exception out that a C function left pending."""
    return -1 if failed else 0


cdef object allocate_foreign(object prototype, int provider, Operand* out):
    """Memory for a prototype that has no allocator of its own that C can call."""
    cdef const DLPackExchangeAPI* api
    if provider == provider_exchange:
        api = exchange_api(type(prototype))
        if api != NULL and api.managed_tensor_allocator != NULL:
            return allocate_exchange(api, out)
    if provider in (provider_array_interface, provider_buffer) and out.device_type == kDLCPU:
        return allocate_ndarray(out)
    raise UnsupportedError(f"no way to make a result for {type(prototype).__name__}; pass out=")
