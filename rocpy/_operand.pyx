# SPDX-License-Identifier: MIT
"""Arrays in and out: numpy arrays and plain torch tensors on the shortest way, every other producer by what it offers."""

import sys

import numpy

from rocpy.errors import InvalidOperandError, UnsupportedError

cimport numpy as cnp
from cpython.buffer cimport PyObject_CheckBuffer
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_CheckExact
from libc.stdint cimport int32_t, int64_t

from rocpy._allocate cimport allocate_exchange, allocate_foreign, allocate_host, allocate_ndarray, compact
from rocpy._dlpack cimport (
    ArrayType, DLManagedTensorVersioned, DLPackExchangeAPI, Import, array_type_of_hip, array_type_of_name, describe_type, exchange_api,
    fault_message, fault_none, import_array, kDLCPU, operand_of_dltensor,
)
from rocpy._torch_operand cimport check_writable, learn, parameter_type, parse_plain, parse_other, raise_version, tensor_type, torch_api
from rocpy._torch_operand cimport dispatch_reason as torch_dispatch_reason

cnp.import_array()


cdef extern from "Python.h":
    void* Py_TYPE(object) nogil

cdef extern from "numpy/arrayobject.h":
    enum:
        NPY_HALF
        NPY_USERDEF


class TorchLayerRequired(UnsupportedError):
    """A torch tensor whose memory must not be used behind torch's back: it needs autograd, a transform or another layer's work.

    The function form catches it and hands the call to the dispatcher of `set_torch_dispatcher`, where one is registered.
    """


ACCEPTED = "numpy and torch arrays, and any object with __dlpack__, __cuda_array_interface__, __array_interface__ or the buffer protocol"

cdef object torch_dispatcher_function = None


def set_torch_dispatcher(function):
    """Register what calls torch's dispatcher for tensors whose memory must not be used directly.

    Parameters
    ----------
    function : callable or None
        Called by the function form as ``function(name, args, kwargs)`` in place of its own work, with the public function's name and
        the caller's arguments; its result is the call's result. ``None`` takes the registration back.
    """
    global torch_dispatcher_function
    if function is not None and not callable(function):
        raise InvalidOperandError(f"function: got {type(function).__name__}, expected a callable or None")
    torch_dispatcher_function = function


def torch_dispatcher():
    """The function that `set_torch_dispatcher` registered, or ``None``."""
    return torch_dispatcher_function


# hipDataType by numpy type number; -1 where a product has no use for the type. Types that ml_dtypes registers follow the built-in ones.
cdef int32_t builtin_types[32]
cdef int32_t registered_types[64]


cdef void fill_builtin_types():
    cdef int number
    for number in range(64):
        registered_types[number] = -2
    for number in range(32):
        builtin_types[number] = -1
    for number in (cnp.NPY_BYTE, cnp.NPY_SHORT, cnp.NPY_INT, cnp.NPY_LONG, cnp.NPY_LONGLONG, cnp.NPY_UBYTE, cnp.NPY_USHORT, cnp.NPY_UINT,
                   cnp.NPY_ULONG, cnp.NPY_ULONGLONG, NPY_HALF, cnp.NPY_FLOAT, cnp.NPY_DOUBLE, cnp.NPY_CFLOAT, cnp.NPY_CDOUBLE):
        row = array_type_of_name(cnp.PyArray_DescrFromType(number).name.encode())
        if row != NULL:
            builtin_types[number] = row.type


fill_builtin_types()


cdef int32_t registered_type(object array, int number):
    """hipDataType of a type from ml_dtypes, recognised by identity the first time and by number from then on."""
    cdef int slot = number - NPY_USERDEF
    if slot < 0 or slot >= 64:
        return -1
    if registered_types[slot] != -2:
        return registered_types[slot]
    module = sys.modules.get("ml_dtypes")
    scalar = array.dtype.type
    row = array_type_of_name(scalar.__name__.encode())
    known = module is not None and row != NULL and not row.in_numpy and getattr(module, scalar.__name__, None) is scalar
    if not known:
        return -1
    registered_types[slot] = row.type
    return row.type


cdef bint parse_ndarray(cnp.ndarray array, Operand* out):
    """Read an ndarray. False: its memory cannot be used as it is."""
    cdef int number = cnp.PyArray_TYPE(array)
    cdef int32_t type = builtin_types[number] if number < 32 else registered_type(array, number)
    cdef int flags = cnp.PyArray_FLAGS(array)
    cdef int ndim = cnp.PyArray_NDIM(array)
    cdef const cnp.npy_intp* extents
    cdef const cnp.npy_intp* steps
    cdef int shift, i
    if type < 0 or not flags & cnp.NPY_ARRAY_ALIGNED or ndim > max_dims or not cnp.PyArray_ISNOTSWAPPED(array):
        return False
    shift = array_type_of_hip(type).shift
    extents = cnp.PyArray_DIMS(array)
    steps = cnp.PyArray_STRIDES(array)
    for i in range(ndim):
        if steps[i] & ((1 << shift) - 1) and extents[i] > 1:
            return False
        out.shape[i] = extents[i]
        out.strides[i] = steps[i] >> shift
    out.data = cnp.PyArray_DATA(array)
    out.type = type
    out.device_type = kDLCPU
    out.device_id = 0
    out.ndim = ndim
    out.provider = provider_numpy
    out.read_only = not flags & cnp.NPY_ARRAY_WRITEABLE
    out.copied = False
    return True


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


cdef object parse_ndarray_other(object array, str name, Operand* out):
    """Read an ndarray that cannot be used as it is: copied where its values can be kept, refused otherwise."""
    if array.ndim > max_dims:
        raise InvalidOperandError(f"{name}: {array.ndim} dimensions, at most {max_dims} are taken; reshape it")
    dtype = array.dtype.newbyteorder("=")
    plain = numpy.array(array, dtype=dtype, order="C", copy=True, subok=False) if dtype.hasobject is False and dtype.names is None else None
    if plain is None or not parse_ndarray(plain, out):
        raise InvalidOperandError(
            f"{name}: numpy array of dtype {array.dtype} and shape {array.shape} cannot be an operand; convert it, as in "
            "array.astype(numpy.float32)"
        )
    out.copied = True
    out.read_only = True
    return plain


cdef object parse_subclass(object array, str name, Operand* out):
    """Read an instance of a subclass of ndarray, unless the class gives its values another meaning."""
    cls = type(array)
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    if masked is not None and isinstance(array, masked):
        raise InvalidOperandError(f"{name}: a masked array would lose its mask; pass array.filled(value)")
    if cls.__array_ufunc__ is not numpy.ndarray.__array_ufunc__:
        raise InvalidOperandError(
            f"{name}: {cls.__module__}.{cls.__qualname__} defines its own arithmetic; pass numpy.asarray(array) if its plain values are meant"
        )
    plain = array.view(numpy.ndarray)
    if parse_ndarray(plain, out):
        return plain
    return parse_ndarray_other(plain, name, out)


cdef object parse_import(object array, Import taken, str name, int provider, Operand* out):
    """Read a managed tensor that we own."""
    cdef const DLManagedTensorVersioned* versioned = taken.versioned
    cdef int fault = operand_of_dltensor(taken.tensor()[0], out)
    if fault != fault_none:
        dtype = taken.tensor().dtype
        raise InvalidOperandError(
            f"{name}: {seen(array)} cannot be an operand (DLPack type {describe_type(dtype.code, dtype.bits, dtype.lanes)}): "
            f"{fault_message(fault).decode()}"
        )
    out.provider = provider
    out.read_only = taken.read_only() or immutable(array)
    out.copied = versioned != NULL and (versioned.flags & 2) != 0
    if out.copied:
        out.read_only = True
    return taken


cdef bint immutable(object array):
    """jax arrays are values: not every version of jax marks its capsules read-only."""
    cls = getattr(sys.modules.get("jax"), "Array", None)
    return cls is not None and isinstance(array, cls)


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
            raise InvalidOperandError(f"{name}: {seen(array)} gave no memory")
        return parse_import(array, taken, name, provider_exchange, out)
    try:
        taken = import_array(array, name)
    except (InvalidOperandError, UnsupportedError):
        raise
    except Exception as error:
        raise InvalidOperandError(f"{name}: {seen(array)} does not export its memory by DLPack: {error}") from error
    return parse_import(array, taken, name, provider_capsule, out)


cdef int raise_if(int failed) except -1:
    """Let the exception out that a C function left pending."""
    return -1 if failed else 0


cdef object parse_view(object array, str name, int provider, Operand* out):
    """Read an object through numpy's view of its __array_interface__, __array_struct__ or buffer."""
    try:
        view = numpy.asarray(memoryview(array) if provider == provider_buffer else array)
    except Exception as error:
        raise InvalidOperandError(f"{name}: {seen(array)} does not export its memory: {error}") from error
    kept = view
    if not parse_ndarray(view, out):
        kept = parse_ndarray_other(view, name, out)
    out.provider = provider
    return kept


cdef object parse_foreign(object array, str name, Operand* out):
    """Read an array of a type that has no short way."""
    cls = type(array)
    if isinstance(array, numpy.ndarray):
        return parse_subclass(array, name, out)
    if isinstance(array, (numpy.generic, str, int, float, complex, list, tuple, dict)) or array is None or isinstance(array, type):
        raise InvalidOperandError(f"{name}: got {seen(array)}, expected an array; accepted are {ACCEPTED}")
    if learn(cls):
        return parse(array, name, out) if is_plain_torch(array) else parse_other(array, name, out)
    if hasattr(cls, "__dlpack__") or PyCapsule_CheckExact(array):
        return parse_dlpack(array, name, out)
    if hasattr(array, "__array_interface__") or hasattr(array, "__array_struct__"):
        return parse_view(array, name, provider_array_interface, out)
    if PyObject_CheckBuffer(array):
        return parse_view(array, name, provider_buffer, out)
    if hasattr(array, "__array__"):
        raise InvalidOperandError(f"{name}: got {seen(array)}, which shares no memory; pass numpy.asarray(array)")
    raise InvalidOperandError(f"{name}: got {seen(array)}, expected an array; accepted are {ACCEPTED}")


cdef inline bint is_plain_torch(object array) noexcept:
    cdef void* cls = Py_TYPE(array)
    return cls != NULL and (cls == tensor_type or cls == parameter_type)


cdef object parse(object array, str name, Operand* out):
    if cnp.PyArray_CheckExact(array):
        if parse_ndarray(array, out):
            return array
        return parse_ndarray_other(array, name, out)
    if is_plain_torch(array):
        if parse_plain(array, out):
            return array
        return parse_other(array, name, out)
    return parse_foreign(array, name, out)


cdef bint overlaps_itself(const Operand* out):
    """Whether two indices may name one element: each extent must step over all that the smaller strides reach."""
    cdef int order[32]
    cdef int count = 0, i, j
    cdef int64_t reach = 0, step
    for i in range(out.ndim):
        if out.shape[i] == 0:
            return False
        if out.shape[i] == 1:
            continue
        j = count
        while j > 0 and abs(out.strides[order[j - 1]]) > abs(out.strides[i]):
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
        count += 1
    for j in range(count):
        step = abs(out.strides[order[j]])
        if step <= reach:
            return True
        reach += step * (out.shape[order[j]] - 1)
    return False


cdef object parse_output(object array, str name, Operand* out):
    kept = parse(array, name, out)
    if out.copied:
        raise InvalidOperandError(
            f"{name}: {seen(array)} has memory that cannot be written in place (byte order, alignment, strides or a lazy sign); "
            "pass a plain contiguous array"
        )
    if out.read_only:
        raise InvalidOperandError(f"{name}: {seen(array)} is read-only; pass a writable array, or none and take the result")
    if overlaps_itself(out):
        raise InvalidOperandError(f"{name}: {seen(array)} has elements that share memory (an expanded view?); pass its contiguous copy")
    if out.provider == provider_torch:
        check_writable(array, name)
    return kept


cdef object allocate(object prototype, int provider, Operand* out):
    out.read_only = False
    out.copied = False
    out.provider = provider
    compact(out)
    if provider == provider_numpy:
        return allocate_ndarray(out)
    if provider == provider_torch:
        return allocate_host(torch_api, out) if out.device_type == kDLCPU else allocate_exchange(torch_api, out)
    return allocate_foreign(prototype, provider, out)


cdef int written(object array, int provider) except -1:
    if provider == provider_torch:
        raise_version(array)
    return 0


cdef object dispatch_reason(object array):
    return torch_dispatch_reason(array)


PROVIDERS = ("numpy", "torch", "exchange", "capsule", "array_interface", "buffer")


def describe(array, name="array", *, output=False):
    """What rocpy sees of an array, as a dict.

    Parameters
    ----------
    array : array
        Any array that a product takes.
    name : str
        Name that error messages use.
    output : bool
        Look at it as an array that will be written.

    Returns
    -------
    dict
        ``data`` (address), ``dtype``, ``shape``, ``strides`` (in elements), ``device_type`` and ``device_id`` (DLPack numbers),
        ``provider``, ``read_only``, ``copied``, and ``kept``, the object that keeps the memory alive.

    Raises
    ------
    InvalidOperandError
        The object is no array, or one that cannot be used.
    UnsupportedError
        A torch tensor that must go through torch's dispatcher.

    Examples
    --------
    >>> import numpy
    >>> from rocpy._operand import describe
    >>> seen = describe(numpy.zeros((2, 3), "float32").T)
    >>> seen["dtype"], seen["shape"], seen["strides"], seen["provider"]
    ('float32', (3, 2), (1, 3), 'numpy')
    """
    cdef Operand out
    kept = parse_output(array, name, &out) if output else parse(array, name, &out)
    return as_dict(&out, kept)


cdef object as_dict(const Operand* out, object kept):
    return {
        "data": <size_t>out.data,
        "dtype": array_type_of_hip(out.type).name.decode(),
        "shape": tuple([out.shape[i] for i in range(out.ndim)]),
        "strides": tuple([out.strides[i] for i in range(out.ndim)]),
        "device_type": out.device_type,
        "device_id": out.device_id,
        "provider": PROVIDERS[out.provider],
        "read_only": out.read_only,
        "copied": out.copied,
        "kept": kept,
    }


def allocate_like(array, shape, dtype=None):
    """A new C-contiguous array by the framework of `array`, on its device.

    Parameters
    ----------
    array : array
        Prototype.
    shape : tuple of int
        Extents of the result.
    dtype : str, optional
        Name of the element type; the prototype's by default.

    Returns
    -------
    array
        Uninitialised memory.

    Examples
    --------
    >>> import numpy
    >>> from rocpy._operand import allocate_like
    >>> allocate_like(numpy.zeros(2, "float32"), (2, 3), "float64").dtype
    dtype('float64')
    """
    cdef Operand out
    cdef const ArrayType* row
    kept = parse(array, "array", &out)
    if dtype is not None:
        row = array_type_of_name(str(dtype).encode())
        if row == NULL:
            raise InvalidOperandError(f"dtype: {dtype!r} is no element type of an operand")
        out.type = row.type
    shape = tuple(shape)
    if len(shape) > max_dims:
        raise InvalidOperandError(f"shape: {len(shape)} dimensions, at most {max_dims} are possible")
    out.ndim = len(shape)
    for i in range(out.ndim):
        out.shape[i] = shape[i]
    made = allocate(array, out.provider, &out)
    del kept
    return made


def _time(array, int count, *, bint allocation=False):
    """Nanoseconds of one parse, or one allocation like `array`, over `count` repetitions."""
    from time import perf_counter_ns

    cdef Operand out
    cdef int _i
    kept = parse(array, "array", &out)
    start = perf_counter_ns()
    if allocation:
        for _i in range(count):
            kept = allocate(array, out.provider, &out)
    else:
        for _i in range(count):
            kept = parse(array, "array", &out)
    return (perf_counter_ns() - start) / count
