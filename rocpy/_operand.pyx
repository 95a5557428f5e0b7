# SPDX-License-Identifier: MIT
"""Arrays in and out: numpy arrays and plain torch tensors on the shortest way, every other producer by what it offers."""

import ctypes
import sys

import numpy

from rocpy._messages.modules import imported, is_instance_of
from rocpy._producers.torch_refusals import TorchLayerRequired
from rocpy.errors import InvalidOperandError

cimport numpy as cnp
from abi cimport hipStream_t
from cpython.pycapsule cimport PyCapsule_CheckExact
from libc.stdint cimport int64_t

from rocpy._dlpack cimport (
    ArrayType, DLDeviceType, Import, array_type_count, array_type_of_hip, array_type_of_name, array_types_of_core, kDLCPU, kDLROCMHost,
)
from rocpy._producers.foreign_arrays cimport exports_memory, parse_foreign, seen
from rocpy._producers.numpy_arrays cimport parse_ndarray, parse_ndarray_other
from rocpy._producers.results cimport allocate_exchange, allocate_foreign, allocate_host, allocate_ndarray, compact, new_view
from rocpy._producers.torch_tensors cimport (
    check_writable, is_plain_tensor, learn, parse_other, parse_plain, raise_version, torch_api,
)
from rocpy._producers.torch_tensors cimport dispatch_reason as torch_dispatch_reason
from rocpy.runtime.handles.stream_handle cimport StreamUse, handle_of
from rocpy.runtime.memory cimport Buffer

cnp.import_array()

# Of numpy's search for an element that two arrays share.
cdef object _MOST_WORK = 10000


cdef int raise_if(int failed) except -1:
    """Let the exception out that a C function left pending."""
    return -1 if failed else 0


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


cdef object parse(object array, str name, Operand* out):
    out.conjugated = False
    if cnp.PyArray_CheckExact(array):
        if parse_ndarray(array, out):
            return array
        return parse_ndarray_other(array, name, out)
    if is_plain_tensor(array):
        if parse_plain(array, out):
            return array
        return parse_other(array, name, out)
    # Only the first tensor of a process, and subclasses of torch.Tensor, come by here.
    if learn(type(array)):
        return parse(array, name, out) if is_plain_tensor(array) else parse_other(array, name, out)
    if is_instance_of(array, "torch.fx", "Proxy"):
        raise TorchLayerRequired(f"{name}: it stands for a tensor while torch.fx traces a function; call it on tensors")
    return parse_foreign(array, name, out)


cdef object parse_transferred(object array, str name, Operand* out):
    if cnp.PyArray_CheckExact(array):
        return parse(array, name, out)
    if is_plain_tensor(array) or (learn(type(array)) and is_plain_tensor(array)):
        out.conjugated = False
        return array if parse_plain(array, out) else parse_other(array, name, out, False)
    return parse(array, name, out)


cdef bint parse_plainly(object array, Operand* out) except -1:
    out.conjugated = False
    if cnp.PyArray_CheckExact(array):
        return parse_ndarray(array, out)
    return is_plain_tensor(array) and parse_plain(array, out)


cdef object unconjugated(object array):
    """The memory of a lazily conjugated tensor as a tensor; None where something else is special about it."""
    if not array.is_conj() or array.is_neg() or dispatch_reason(array) is not None:
        return None
    with sys.modules["torch"].no_grad():
        return array.conj()


cdef object parse_lazy(object array, str name, Operand* out):
    cdef object plain
    out.conjugated = False
    if cnp.PyArray_CheckExact(array):
        if parse_ndarray(array, out):
            return array
    elif is_plain_tensor(array) or (learn(type(array)) and is_plain_tensor(array)):
        if parse_plain(array, out):
            return array
        plain = unconjugated(array)
        if plain is not None and parse_plain(plain, out):
            out.conjugated = True
            return plain
    return parse(array, name, out)


cpdef object numpy_view(object array, str name="array"):
    """numpy's view of an array in CPU memory, in ml_dtypes' types too. What is elsewhere, or must be copied, comes back as it is."""
    cdef Operand parsed
    owner = parse(array, name, &parsed)
    if isinstance(owner, numpy.ndarray):
        return owner if not parsed.copied else array
    # What its producer copied for us is memory like any other, and would be copied again to be read again.
    if (parsed.copied and not isinstance(owner, Import)) or not is_in_host_memory(&parsed):
        return array
    return new_view(&parsed, owner)


cdef bint is_in_host_memory(const Operand* operand) noexcept:
    return operand.device_type == kDLCPU or operand.device_type == kDLROCMHost


cdef bint is_plain(object array) noexcept:
    return array is None or cnp.PyArray_Check(array) or is_plain_tensor(array)


cdef bint are_plain(PyObject* a, PyObject* b, PyObject* c, PyObject* bias, PyObject* aux) noexcept:
    return is_plain(<object>a) and is_plain(<object>b) and is_plain(<object>c) and is_plain(<object>bias) and is_plain(<object>aux)


cpdef object readable(object array, str name):
    """What a product works with in the place of an object that offers its memory and nothing else: numpy's view. Others are themselves."""
    if is_plain(array) or isinstance(array, (Buffer, int, float)):
        return array
    if PyCapsule_CheckExact(array):
        return numpy_view(array, name)
    cls = type(array)
    # First: a nested tensor's shape raises.
    if learn(cls) or (hasattr(array, "dtype") and hasattr(array, "shape")):
        return array
    return numpy_view(array, name) if exports_memory(array) else array


cpdef object lasting(object array, str name):
    return numpy_view(array, name) if PyCapsule_CheckExact(array) else array


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


cdef void span(const Operand *operand, size_t *low, size_t *high) noexcept nogil:
    cdef size_t bits = array_type_of_hip(operand.type).bits
    cdef int axis
    low[0] = high[0] = <size_t>operand.data
    for axis in range(operand.ndim):
        if operand.shape[axis] == 0:
            high[0] = low[0]
            return
        if operand.strides[axis] > 0:
            high[0] += <size_t>(operand.strides[axis] * (operand.shape[axis] - 1)) * bits // 8
        else:
            low[0] -= <size_t>(-operand.strides[axis] * (operand.shape[axis] - 1)) * bits // 8
    high[0] += (bits + 7) // 8


cdef object parse_output(object array, str name, Operand* out, bint is_product=True):
    owner = parse(array, name, out) if is_product else parse_transferred(array, name, out)
    if out.copied and isinstance(owner, Import):
        raise InvalidOperandError(
            f"{name}: {seen(array)} exports a copy of its memory by DLPack, in which a result would be lost; pass an array that exports its own"
        )
    if out.copied:
        raise InvalidOperandError(
            f"{name}: {seen(array)} has memory that cannot be written in place (byte order, alignment, strides or a "
            "lazy sign); "
            "pass a plain contiguous array"
        )
    if out.read_only:
        advice = ", or omit it and use the returned result" if name == "out" else ""
        raise InvalidOperandError(f"{name}: {seen(array)} is read-only; pass a writable array{advice}")
    if overlaps_itself(out):
        raise InvalidOperandError(
            f"{name}: {seen(array)} has elements that share memory, or axes that interleave (an expanded or "
            "as_strided view?); pass its contiguous copy"
        )
    if out.provider == provider_torch:
        check_writable(array, name)
    return owner


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
    elif provider == provider_capsule and isinstance(array, Buffer):
        (<Buffer>array).written()
    return 0


cdef object dispatch_reason(object array):
    return torch_dispatch_reason(array)


cdef int stream_of(object stream, const Operand* like, hipStream_t* out, StreamUse* use) except -1:
    cdef void* current = NULL
    out[0] = NULL
    if stream is not None:
        return handle_of(stream, out, use)
    if like.device_type == kDLCPU:
        return 0
    if like.provider == provider_torch:
        raise_if(torch_api.current_work_stream(<DLDeviceType>like.device_type, like.device_id, &current))
        out[0] = <hipStream_t>current
        return 0
    # CuPy orders its work on a stream of its own and tells it in Python only. Other producers have made their data ready on the null stream.
    cupy = imported("cupy")
    if cupy is not None and like.provider in (provider_capsule, provider_array_interface):
        out[0] = <hipStream_t><size_t>cupy.cuda.get_current_stream(like.device_id).ptr
    return 0


PROVIDERS = ("numpy", "torch", "exchange", "capsule", "array_interface", "buffer")


cdef bint lies_between(const Operand* one, const Operand* other):
    """Whether two matrices are sets of columns, or of rows, that lie side by side in one array."""
    cdef int64_t bytes_of_one = array_type_of_hip(one.type).bits // 8, bytes_of_other = array_type_of_hip(other.type).bits // 8
    cdef int64_t pitch, apart
    cdef int inner
    if one.ndim != 2 or other.ndim != 2 or bytes_of_one == 0 or bytes_of_other == 0:
        return False
    for inner in range(2):
        pitch = one.strides[1 - inner] * bytes_of_one
        if one.strides[inner] != 1 or other.strides[inner] != 1 or pitch <= 0 or other.strides[1 - inner] * bytes_of_other != pitch:
            continue
        apart = (<int64_t>(<size_t>other.data - <size_t>one.data)) % pitch
        if apart < 0:
            apart += pitch
        return one.shape[inner] * bytes_of_one <= apart and apart + other.shape[inner] * bytes_of_other <= pitch
    return False


cdef object outline(const Operand* operand):
    """An array of numpy's that lies as an operand does, to be asked about its place alone: nobody reads it."""
    cdef size_t low = 0, high = 0
    cdef int64_t size = array_type_of_hip(operand.type).bits // 8
    cdef int axis
    span(operand, &low, &high)
    memory = (ctypes.c_char * (high - low)).from_address(low)
    shape = [operand.shape[axis] for axis in range(operand.ndim)]
    strides = [operand.strides[axis] * size for axis in range(operand.ndim)]
    return numpy.ndarray(shape, f"V{size}", memory, <size_t>operand.data - low, strides)


cdef bint share_memory(const Operand* one, const Operand* other) except -1:
    cdef size_t low = 0, high = 0, other_low = 0, other_high = 0
    span(one, &low, &high)
    span(other, &other_low, &other_high)
    if low == high or other_low == other_high or other_low >= high or low >= other_high or lies_between(one, other):
        return False
    if array_type_of_hip(one.type).bits < 8 or array_type_of_hip(other.type).bits < 8:
        return True
    try:
        return numpy.shares_memory(outline(one), outline(other), max_work=_MOST_WORK)
    except numpy.exceptions.TooHardError:
        return True


def shares_memory(array, other):
    """Whether an element of an array lies where one of another does; ``True`` where that is hard to tell."""
    cdef Operand one, two
    owners = (parse(array, "out", &one), parse(other, "out", &two))  # of a copy too, whose memory the next one could have otherwise
    shared = share_memory(&one, &two)
    del owners
    return shared


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
    owner = parse_output(array, name, &out) if output else parse(array, name, &out)
    return as_dict(&out, owner)


cdef object as_dict(const Operand* out, object owner):
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
        "kept": owner,
    }


def array_types():
    """Element types that an operand may have, by name.

    Of each hipDataType, bits in memory, DLPack's code and bits, whether numpy has it itself, and RCCL's type or -1.
    """
    cdef const ArrayType* row
    cdef int i
    rows = {}
    for i in range(array_type_count):
        row = &array_types_of_core[i]
        rows[row.name.decode()] = (row.type, 8 << row.shift, row.code, row.bits, bool(row.in_numpy), row.nccl)
    return rows


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
    owner = parse(array, "array", &out)
    if dtype is not None:
        row = array_type_of_name(str(dtype).encode())
        if row == NULL:
            raise InvalidOperandError(f"dtype: {dtype!r} is not an element type of an operand")
        out.type = row.type
    shape = tuple(shape)
    if len(shape) > max_dims:
        raise InvalidOperandError(f"shape: got {len(shape)} dimensions, expected at most {max_dims}")
    out.ndim = len(shape)
    for i in range(out.ndim):
        out.shape[i] = shape[i]
    result = allocate(array, out.provider, &out)
    del owner
    return result


def array_like(array, values):
    """A new array by the framework of `array`, on its device in CPU memory, with the values of an array of numpy's."""
    cdef Operand parsed, out
    owner = parse(array, "array", &parsed)
    if isinstance(owner, numpy.ndarray):
        return values
    provider = parsed.provider
    if not parse_ndarray(values, &out):
        return values
    out.device_type, out.device_id = parsed.device_type, parsed.device_id
    result = allocate(array, provider, &out)
    if not isinstance(result, numpy.ndarray):
        new_view(&out, result)[...] = values
    return result


def _time(array, int count, *, bint allocation=False):
    """Nanoseconds of one parse, or one allocation like `array`, over `count` repetitions."""
    from time import perf_counter_ns

    cdef Operand out
    cdef int _i
    parse(array, "array", &out)
    start = perf_counter_ns()
    if allocation:
        for _i in range(count):
            allocate(array, out.provider, &out)
    else:
        for _i in range(count):
            parse(array, "array", &out)
    return (perf_counter_ns() - start) / count


def touch(array):
    """Tell the array's framework that its memory was written, as the product does for `out`."""
    cdef Operand out
    parse(array, "array", &out)
    written(array, out.provider)


def resolve_stream(stream=None, array=None):
    """The handle of the stream that a call on `array` would use, as a number."""
    cdef Operand like
    cdef hipStream_t resolved = NULL
    cdef StreamUse use
    like.device_type = kDLCPU
    if array is not None:
        parse(array, "array", &like)
    stream_of(stream, &like, &resolved, &use)
    return <size_t>resolved
