# SPDX-License-Identifier: MIT
"""numpy arrays as operands, by numpy's C interface; the types of ml_dtypes among them."""

import sys

import numpy

from rocpy.errors import InvalidOperandError, OutOfMemoryError

cimport numpy as cnp
from libc.stdint cimport int32_t

from rocpy._dlpack cimport Operand, array_type_of_hip, array_type_of_name, kDLCPU, max_dims, provider_numpy
from rocpy.runtime.handles.call_stream cimport await_call_stream

cnp.import_array()


cdef extern from "numpy/arrayobject.h":
    enum:
        NPY_HALF
        NPY_USERDEF


# hipDataType by numpy type number; -1 where a product has no use for the type. Types that ml_dtypes registers follow the built-in ones.
cdef int32_t builtin_types[32]
cdef int32_t registered_types[64]


cdef void fill_builtin_types():
    cdef int number
    for number in range(64):
        registered_types[number] = -1
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
    if registered_types[slot] >= 0:
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


cdef object copied_as_it_lies(object array, object dtype):
    """Return a copy in another type. Matrices in columns stay in columns and what is repeated is, since which algorithm a product takes
    follows from how its operands lie.
    """
    cdef bint columns = array.ndim > 1 and array.strides[-2] == array.itemsize and array.strides[-1] >= array.itemsize * array.shape[-2]
    once = array[tuple([slice(0, 1) if step == 0 else slice(None) for step in array.strides])]
    if columns:
        plain = numpy.array(once.swapaxes(-1, -2), dtype=dtype, order="C", copy=True, subok=False).swapaxes(-1, -2)
    else:
        plain = numpy.array(once, dtype=dtype, order="C", copy=True, subok=False)
    return plain if plain.shape == array.shape else numpy.broadcast_to(plain, array.shape)


cdef object parse_ndarray_other(object array, str name, Operand* out):
    """Read an ndarray that cannot be used as it is: copied where its values can be kept, refused otherwise."""
    if array.ndim > max_dims:
        raise InvalidOperandError(f"{name}: got {array.ndim} dimensions, expected at most {max_dims}; reshape it")
    # The type first, on an array of nothing: what cannot be used is not copied, whatever its size. Not every type has a byte order.
    plain = None
    dtype = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    if dtype.hasobject is False and dtype.names is None and parse_ndarray(numpy.empty(0, dtype), out):
        await_call_stream(kDLCPU)
        try:
            plain = copied_as_it_lies(array, dtype)
        except MemoryError:
            raise OutOfMemoryError(
                f"{name}: an array of shape {array.shape}, {array.dtype}, must be copied and there is no memory for "
                "it; pass an aligned "
                "array in native byte order"
            ) from None
    if plain is None or not parse_ndarray(plain, out):
        raise InvalidOperandError(
            f"{name}: numpy array of dtype {array.dtype} and shape {array.shape} cannot be an operand; convert it, as "
            "in "
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
        raise InvalidOperandError(f"{name}: a masked array would lose its mask; pass array.filled(value) to read it, array.data to write to it")
    if cls.__array_ufunc__ is not numpy.ndarray.__array_ufunc__:
        raise InvalidOperandError(
            f"{name}: {cls.__module__}.{cls.__qualname__} defines its own arithmetic; pass numpy.asarray(array) to "
            "use its plain values"
        )
    plain = array.view(numpy.ndarray)
    if parse_ndarray(plain, out):
        return plain
    return parse_ndarray_other(plain, name, out)
