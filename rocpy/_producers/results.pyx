# SPDX-License-Identifier: MIT
"""Results: C-contiguous arrays made by the framework of an operand."""

import sys

from rocpy.errors import InvalidProblemError, LibraryError, OutOfMemoryError, UnsupportedError

cimport abi
cimport numpy as cnp
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int32_t, int64_t
from libc.string cimport strncpy

from rocpy._dlpack cimport (
    DLManagedTensorVersioned, DLDeviceType, DLPackExchangeAPI, DLTensor, Import, Operand, array_type_of_hip, check_extents, dlpack_type, exchange_api,
    fault_message, fault_none, import_array, kDLCPU, kDLROCM, new_host_block, provider_array_interface, provider_buffer, provider_exchange,
)
from rocpy.runtime._extents cimport numpy_dtype
from rocpy.runtime.memory cimport Buffer, new_buffer

cnp.import_array()


cdef extern from "numpy/arrayobject.h":
    PyTypeObject PyArray_Type
    object PyArray_NewFromDescr(PyTypeObject*, cnp.dtype, int, const int64_t*, const int64_t*, void*, int, PyObject*)


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
        raise InvalidProblemError(f"cannot create a result of shape {extents(out)}: {fault_message(fault).decode()}")
    return 0


# numpy type numbers by hipDataType, for the short way to an array; -1 where the descriptor has to be looked up.
cdef int numbers[64]
for _slot in range(64):
    numbers[_slot] = -1


cdef cnp.dtype descriptor_of(int32_t type):
    """The numpy dtype of a hipDataType, noted for the short way."""
    descriptor = numpy_dtype(type)
    if type < 64 and array_type_of_hip(type).in_numpy:
        numbers[type] = descriptor.num
    return descriptor


cdef object allocate_ndarray(Operand* out):
    cdef cnp.ndarray array
    cdef cnp.dtype descriptor
    cdef int number = numbers[out.type] if out.type < 64 else -1
    try:
        if number >= 0:
            array = cnp.PyArray_EMPTY(out.ndim, <cnp.npy_intp*>&out.shape[0], number, 0)
        else:
            descriptor = descriptor_of(out.type)
            Py_INCREF(descriptor)
            array = PyArray_NewFromDescr(&PyArray_Type, descriptor, out.ndim, out.shape, NULL, NULL, 0, NULL)
    except (MemoryError, ValueError) as error:
        raise out_of_memory(out, error) from error
    out.data = cnp.PyArray_DATA(array)
    return array


cdef object new_view(const Operand* operand, object owner):
    """numpy's array over the memory of an operand in CPU memory, which keeps its owner."""
    cdef int64_t steps[32]
    cdef cnp.dtype dtype = numpy_dtype(operand.type)
    cdef cnp.ndarray view
    cdef int i
    for i in range(operand.ndim):
        steps[i] = operand.strides[i] * dtype.itemsize
    Py_INCREF(dtype)
    view = PyArray_NewFromDescr(&PyArray_Type, dtype, operand.ndim, operand.shape, steps, operand.data,
                                0 if operand.read_only else cnp.NPY_ARRAY_WRITEABLE, NULL)
    if operand.data != NULL:  # without memory numpy has made some
        cnp.set_array_base(view, owner)
    return view


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
        raise LibraryError(
            f"the operands' framework did not allocate a result of shape {extents(out)}: {failure.kind.decode()} "
            f"{reason}"
        )
    return wrap(api, managed, out)


cdef object wrap(const DLPackExchangeAPI* api, DLManagedTensorVersioned* managed, Operand* out):
    """The framework's array over a managed tensor, which it takes over."""
    cdef void* object_pointer = NULL
    cdef object result
    out.data = <char*>managed.dl_tensor.data + managed.dl_tensor.byte_offset if managed.dl_tensor.data != NULL else NULL
    raise_if(api.managed_tensor_to_py_object_no_sync(managed, &object_pointer))
    result = <object><PyObject*>object_pointer
    Py_XDECREF(<PyObject*>object_pointer)
    return result


cdef int raise_if(int failed) except -1:
    """Let the exception out that a C function left pending."""
    return -1 if failed else 0


cdef object allocate_foreign(object prototype, int provider, Operand* out):
    """Memory for a prototype that has no allocator of its own that C can call."""
    cdef const DLPackExchangeAPI* api
    cdef Buffer buffer
    cls = type(prototype)
    if provider == provider_exchange:
        api = exchange_api(cls)
        if api != NULL and api.managed_tensor_allocator != NULL:
            return allocate_exchange(api, out)
    if provider in (provider_array_interface, provider_buffer) and out.device_type == kDLCPU:
        return allocate_ndarray(out)
    if cls.__module__.partition(".")[0] == "cupy" and "cupy" in sys.modules:
        return allocate_cupy(out)
    take_over = None if isinstance(prototype, Buffer) else from_dlpack_of(prototype)
    if take_over is None and out.device_type == kDLCPU and not isinstance(prototype, Buffer):
        return allocate_ndarray(out)
    device = device_index(out)
    if isinstance(prototype, Buffer) and not (<Buffer>prototype).foreign_type:
        device = (<Buffer>prototype).device_index  # the host platform's memory is a device's, although it is the CPU's
    buffer = new_buffer(out.type, out.ndim, out.shape, device, "host" if out.device_type != kDLROCM else "device")
    out.data = buffer.data
    if take_over is None:
        return buffer
    result = take_over(Placed(buffer, (out.device_type, device_index(out) if out.device_type == kDLROCM else out.device_id)))
    if is_jax(prototype) and result.dtype != buffer.dtype:
        raise UnsupportedError(
            f"dtype: the result is {buffer.dtype}, which jax has with jax_enable_x64 only; set that, pass another dtype=, or numpy arrays")
    if address_of(result) != <size_t>buffer.data:
        raise UnsupportedError(
            f"{cls.__module__}.{cls.__qualname__} copies the memory that it wraps, so a result cannot be written to it"
        )
    return result


cdef class Placed:
    """Memory that a framework takes over as where its operands are: pinned as the CPU's, the host platform's as its ROCm device's."""
    cdef Buffer buffer
    cdef tuple dlpack_device

    def __init__(self, Buffer buffer, tuple dlpack_device):
        self.buffer = buffer
        # Frameworks name no pinned memory of another's.
        self.dlpack_device = dlpack_device if dlpack_device[0] in (kDLCPU, kDLROCM) else buffer.__dlpack_device__()

    def __dlpack_device__(self):
        return self.dlpack_device

    def __dlpack__(self, **keywords):
        # Nothing is at work on new memory yet: the device is not waited for. CPU memory has no number; a framework's devices in it have.
        device = self.dlpack_device if self.dlpack_device[0] == kDLROCM else None
        return self.buffer.__dlpack__(**{**keywords, "dl_device": device, "stream": -1})


cdef size_t address_of(object array) except? 0:
    """Where a framework's array is, by its DLPack export."""
    cdef const DLTensor* tensor
    cdef Import taken = import_array(array, "result")
    tensor = taken.tensor()
    return <size_t>tensor.data + <size_t>tensor.byte_offset


cdef int device_index(const Operand* out) except -1:
    """CPU arrays and pinned memory carry no device of the platform: the current one stands for them."""
    cdef int index = out.device_id
    if out.device_type != kDLROCM:
        abi.hipGetDevice(&index)
    return index


cdef bint is_jax(object array) except -1:
    cls = getattr(sys.modules.get("jax"), "Array", None)
    return cls is not None and isinstance(array, cls)


cdef object from_dlpack_of(object prototype):
    """How the prototype's framework takes over memory, or None: jax's own function, else that of its array namespace."""
    if is_jax(prototype):
        return sys.modules["jax.dlpack"].from_dlpack if "jax.dlpack" in sys.modules else sys.modules["jax"].dlpack.from_dlpack
    namespace = getattr(prototype, "__array_namespace__", None)
    return None if namespace is None else getattr(namespace(), "from_dlpack", None)


cdef object allocate_cupy(Operand* out):
    cupy, array = sys.modules["cupy"], None
    try:
        with cupy.cuda.Device(out.device_id):
            array = cupy.empty(extents(out), descriptor_of(out.type))
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise out_of_memory(out, error) from error
    out.data = <void*><size_t>array.data.ptr
    return array
