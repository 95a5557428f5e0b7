# SPDX-License-Identifier: MIT
"""Arrays of every other kind as operands: DLPack, the array interfaces, the buffer protocol, and rocpy's own Buffer."""

import sys
from operator import index

import numpy

from rocpy.errors import InvalidOperandError, UnsupportedError
from rocpy.platform import current as current_platform
from rocpy.runtime._foreign import array_view, is_immutable

from abi cimport hipMemoryTypeHost, hipMemoryTypeUnregistered, hipPointerAttribute_t, hipPointerGetAttributes, hipStream_t, hipStreamSynchronize
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_CheckExact
from libc.stdint cimport int64_t

from rocpy._producers.results cimport compact
from rocpy._dlpack cimport (
    DLPACK_FLAG_BITMASK_IS_COPIED, DLManagedTensorVersioned, DLPackExchangeAPI, Import, Operand, array_type_of_name, check_extents,
    describe_type, exchange_api, fault_message, fault_misaligned, fault_none, fault_null_data, import_array, kDLCPU, kDLROCM, kDLROCMHost, max_dims,
    operand_of_dltensor, provider_array_interface, provider_buffer, provider_capsule, provider_exchange,
)
from rocpy._producers.numpy_arrays cimport parse_ndarray, parse_ndarray_other, parse_subclass
from rocpy.runtime.handles.stream_handle cimport StreamUse, handle_of
from rocpy.runtime.memory cimport Buffer

ACCEPTED = "numpy and torch arrays, and any object with __dlpack__, __cuda_array_interface__, __array_interface__ or the buffer protocol"

cdef object seen(object array):
    """Type, dtype and shape of an array as far as it tells them, for error messages."""
    text = f"{type(array).__module__}.{type(array).__qualname__}".removeprefix("builtins.")
    for attribute in ("dtype", "shape"):
        try:
            value = getattr(array, attribute)
        except Exception:
            continue
        text += f", {attribute} {value}"
    return text


cdef object parse_import(object array, Import taken, str name, int provider, Operand* out):
    """Read a managed tensor that we own."""
    cdef const DLManagedTensorVersioned* versioned = taken.versioned
    cdef int fault = operand_of_dltensor(taken.tensor()[0], out)
    if fault != fault_none:
        dtype = taken.tensor().dtype
        raise InvalidOperandError(
            f"{name}: {seen(array)} cannot be an operand (DLPack type "
            f"{describe_type(dtype.code, dtype.bits, dtype.lanes)}): "
            f"{fault_message(fault).decode()}"
        )
    out.provider = provider
    out.read_only = taken.read_only() or is_immutable(array)
    out.copied = versioned != NULL and (versioned.flags & DLPACK_FLAG_BITMASK_IS_COPIED) != 0
    if out.copied:
        out.read_only = True
    return taken


cdef bint traced_by_jax(object array):
    cls = getattr(getattr(sys.modules.get("jax"), "core", None), "Tracer", None)
    return cls is not None and isinstance(array, cls)


cdef bint is_of_several_devices(object array):
    """Whether an array of jax's lies on several devices, or on each of them."""
    cls = getattr(sys.modules.get("jax"), "Array", None)
    return cls is not None and isinstance(array, cls) and not array.is_deleted() and len(array.devices()) > 1


cdef bint holds_keys(object array):
    """Whether an array's elements are keys of jax's random numbers."""
    dtypes = sys.modules.get("jax.dtypes")
    return dtypes is not None and dtypes.issubdtype(getattr(array, "dtype", None), dtypes.prng_key)


cdef object parse_dlpack(object array, str name, Operand* out):
    cdef Import taken
    cdef const DLPackExchangeAPI* api = exchange_api(type(array))
    if api != NULL:
        taken = Import.__new__(Import)
        try:
            raise_if(api.managed_tensor_from_py_object_no_sync(<void*><PyObject*>array, &taken.versioned))
        except Exception as error:
            taken.versioned = NULL
            raise InvalidOperandError(f"{name}: {seen(array)} cannot be read as memory: {error}") from error
        if taken.versioned == NULL:
            raise InvalidOperandError(f"{name}: {seen(array)} returned no memory")
        if taken.tensor().device.device_type == kDLCPU or not hasattr(array, "__dlpack__"):
            return parse_import(array, taken, name, provider_exchange, out)
    # On a device the table says nothing about pending work, while __dlpack__ lets the producer make its data ready.
    try:
        taken = import_array(array, name)
    except (InvalidOperandError, UnsupportedError):
        raise
    except Exception as error:
        if traced_by_jax(array):
            raise UnsupportedError(
                f"{name}: {seen(array)}: jax traces it and it has no memory yet; inside jax's transformations use "
                "rocpy.jax.matmul"
            ) from None
        advice = ("; rocpy.jax.matmul takes arrays of several devices, or pass jax.device_put(array, jax.devices()[0])"
                  if is_of_several_devices(array) else "")
        raise InvalidOperandError(f"{name}: {seen(array)} does not export its memory by DLPack: {str(error).rstrip('.')}{advice}") from error
    return parse_import(array, taken, name, provider_capsule, out)


cdef int raise_if(int failed) except -1:
    """Let the exception out that a C function left pending."""
    return -1 if failed else 0


cdef object parse_buffer(Buffer array, Operand* out):
    """Read rocpy's own Buffer."""
    cdef int i
    out.type = array.type
    out.device_type = array.device_type()
    out.device_id = array.device_index if out.device_type == kDLROCM else 0
    out.ndim = array.ndim
    for i in range(array.ndim):
        out.shape[i] = array.extents[i]
    out.provider = provider_capsule
    out.read_only = array.read_only_
    out.copied = False
    compact(out)
    # The memory outlives a close() of the buffer during the call.
    source = array.memory_now(<void**>&out.data)
    return (array, source)


cdef object parse_view(object array, str name, int provider, Operand* out):
    """Read an object through numpy's view of its __array_interface__, __array_struct__ or buffer."""
    try:
        view = numpy.asarray(memoryview(array)) if provider == provider_buffer else array_view(array, name)
    except InvalidOperandError:
        raise
    except Exception as error:
        raise InvalidOperandError(f"{name}: {seen(array)} does not export its memory: {error}") from error
    owner = view
    if not parse_ndarray(view, out):
        owner = parse_ndarray_other(view, name, out)
    out.provider = provider
    return owner


cdef object parse_device_interface(object array, str name, Operand* out):
    """Read an object through its __cuda_array_interface__, and wait for the stream that it names."""
    cdef hipPointerAttribute_t facts
    cdef hipStream_t pending = NULL
    cdef StreamUse use
    cdef int64_t elements = 0
    cdef int fault, i
    interface = array.__cuda_array_interface__
    try:
        address, read_only = interface["data"]
        # Whole numbers and a text: C takes 1.9 for 1, and numpy takes None for float64.
        address, shape = index(address), tuple([index(extent) for extent in interface["shape"]])
        strides, stream, typestr = interface.get("strides"), interface.get("stream"), interface["typestr"]
        if strides is not None:
            strides = tuple([index(step) for step in strides])
        if not isinstance(typestr, str):
            raise TypeError(f"typestr: got {type(typestr).__name__}, expected a string such as '<f4'")
        dtype = numpy.dtype(typestr)
        row = array_type_of_name(dtype.name.encode())
        if interface.get("mask") is not None:
            raise InvalidOperandError(f"{name}: {seen(array)}: the mask of its __cuda_array_interface__ would be lost; pass the values that count")
        if not dtype.isnative:
            raise InvalidOperandError(f"{name}: {seen(array)} of type {typestr!r} is in the other byte order; pass a copy in this machine's")
        if row == NULL:
            raise InvalidOperandError(f"{name}: {seen(array)} of type {typestr!r} cannot be an operand")
        if len(shape) > max_dims or (strides is not None and len(strides) != len(shape)):
            raise InvalidOperandError(f"{name}: {seen(array)} has {len(shape)} dimensions and strides {strides}")
        out.ndim = len(shape)
        for i in range(out.ndim):
            out.shape[i] = shape[i]
            if strides is not None:
                if strides[i] % dtype.itemsize:
                    raise InvalidOperandError(
                        f"{name}: {seen(array)} has strides {strides} that are not multiples of its element size"
                    )
                out.strides[i] = strides[i] // dtype.itemsize
        out.data = <void*><size_t>address
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        if isinstance(error, InvalidOperandError):
            raise
        raise InvalidOperandError(
            f"{name}: {type(array).__name__}.__cuda_array_interface__ is malformed: {error!r}"
        ) from error
    fault = check_extents(out, dtype.itemsize, strides is None, &elements)
    if fault == fault_none and elements and (out.data == NULL or address % min(dtype.itemsize, 8)):
        fault = fault_null_data if out.data == NULL else fault_misaligned
    if fault != fault_none:
        raise InvalidOperandError(f"{name}: {seen(array)} cannot be an operand: {fault_message(fault).decode()}")
    out.type = row.type
    out.device_type = kDLCPU if current_platform().host_memory else kDLROCM
    out.device_id = 0
    if elements:
        hipPointerGetAttributes(&facts, out.data)
        if facts.type == hipMemoryTypeUnregistered:
            raise InvalidOperandError(
                f"{name}: {seen(array)} is declared as device memory, but HIP does not know its address; does it "
                "belong to another vendor's device?"
            )
        if out.device_type == kDLROCM and facts.type == hipMemoryTypeHost:
            out.device_type = kDLROCMHost
        elif out.device_type == kDLROCM:
            out.device_id = facts.device
    if stream is not None:
        # 1 and 2 name the null stream and the thread's own, as HIP does too.
        handle_of(stream, &pending, &use)
        with nogil:
            hipStreamSynchronize(pending)
    out.provider = provider_array_interface
    out.read_only = bool(read_only)
    out.copied = False
    return array


cdef bint exports_memory(object array) except -1:
    return (hasattr(type(array), "__dlpack__") or hasattr(array, "__cuda_array_interface__") or hasattr(array, "__array_interface__")
            or hasattr(array, "__array_struct__") or PyObject_CheckBuffer(array))


cdef object parse_foreign(object array, str name, Operand* out):
    """Read an array of a type that has no short way."""
    cls = type(array)
    if isinstance(array, Buffer):
        return parse_buffer(array, out)
    if isinstance(array, numpy.ndarray):
        return parse_subclass(array, name, out)
    if isinstance(array, (numpy.generic, str, int, float, complex, list, tuple, dict)) or array is None or isinstance(array, type):
        raise InvalidOperandError(f"{name}: got {seen(array)}, expected an array; supported are {ACCEPTED}")
    if hasattr(cls, "__dlpack__") or PyCapsule_CheckExact(array):
        return parse_dlpack(array, name, out)
    if hasattr(array, "__cuda_array_interface__"):
        return parse_device_interface(array, name, out)
    if hasattr(array, "__array_interface__") or hasattr(array, "__array_struct__"):
        return parse_view(array, name, provider_array_interface, out)
    if PyObject_CheckBuffer(array):
        return parse_view(array, name, provider_buffer, out)
    if holds_keys(array):
        raise InvalidOperandError(f"{name}: got {seen(array)}: keys are no numbers; pass numbers drawn with them, as by jax.random.normal")
    if hasattr(array, "__array__"):
        raise InvalidOperandError(
            f"{name}: got {seen(array)}, which does not share its memory; pass numpy.asarray(array)"
        )
    raise InvalidOperandError(f"{name}: got {seen(array)}, expected an array; supported are {ACCEPTED}")
