# SPDX-License-Identifier: MIT
"""Element types and extents of memory: from what a caller names to a hipDataType and bytes, and back to numpy's dtype."""

import operator

import numpy

from rocpy._messages.suggestions import did_you_mean
from rocpy.errors import InvalidOperandError, InvalidProblemError

from rocpy._dlpack cimport (
    ArrayType, Operand, array_type_count, array_type_of_hip, array_type_of_name, array_types_of_core, check_extents, fault_message,
    fault_none, max_dims,
)

# numpy dtypes by hipDataType, filled when first needed; ml_dtypes is imported for the types that only it has.
cdef dict dtypes = {}


cdef const ArrayType* row_of(str name) except? NULL:
    try:
        return array_type_of_name(name.encode())
    except UnicodeEncodeError:  # a surrogate, of which no name has one
        return NULL


cdef list names_of_types():
    cdef int i
    names = []
    for i in range(array_type_count):
        names.append(array_types_of_core[i].name.decode())
    return names


cdef int32_t type_of(object dtype) except -1:
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or str(dtype).removeprefix("torch.")
    # Declared: what Cython infers from a pointer and NULL depends on the order in which it looks at them.
    cdef const ArrayType *row = row_of(str(name))
    try:
        seen = numpy.dtype(dtype) if row == NULL or isinstance(dtype, numpy.dtype) else None
    except (TypeError, ValueError, SyntaxError):
        seen = None
    if seen is not None:
        if not seen.isnative:
            raise InvalidOperandError(
                f"dtype: {dtype!r} is in the other byte order; a Buffer holds numbers of this machine's, pass "
                f"{seen.newbyteorder('=').name!r}"
            )
        row = row_of(seen.name)
    if row == NULL:
        raise InvalidOperandError(f"dtype: {dtype!r} is not an element type of a Buffer{did_you_mean(dtype, names_of_types())}")
    return row.type


cdef object numpy_dtype(int32_t type):
    dtype = dtypes.get(type)
    if dtype is None:
        row = array_type_of_hip(type)
        name = row.name.decode()
        if not row.in_numpy:
            import ml_dtypes

            name = getattr(ml_dtypes, name)
        dtype = dtypes[type] = numpy.dtype(name)
    return dtype


cdef int fill_extents(object shape, int64_t* extents) except -1:
    try:
        sizes = tuple(shape)
    except TypeError:  # one extent, of any type of integer
        sizes = (shape,)
    if len(sizes) > max_dims:
        raise InvalidProblemError(f"shape: got {len(sizes)} dimensions, expected at most {max_dims}")
    for i, extent in enumerate(sizes):
        try:
            extents[i] = extent_of(extent)
        except OverflowError:
            raise InvalidProblemError(f"shape: got an extent of {operator.index(extent).bit_length()} bits, more than any memory") from None
        except (TypeError, ValueError):
            raise InvalidProblemError(
                f"shape: {shape!r} is not a shape; pass an extent or a sequence of extents, such as (2, 3)"
            ) from None
    return len(sizes)


cdef int64_t extent_of(object extent) except -1:
    """The number that an object with __index__ is; booleans, and arrays of any kind, are none."""
    if isinstance(extent, (bool, numpy.bool_)) or getattr(extent, "ndim", 0):
        raise TypeError
    number = operator.index(extent)
    if number < 0:
        raise ValueError
    if number >= 1 << 62:
        raise OverflowError
    return number


cdef size_t size_of(int32_t type, int ndim, const int64_t* extents) except? 0:
    cdef Operand probe
    cdef int64_t elements = 0
    cdef int i, fault
    probe.ndim = ndim
    for i in range(ndim):
        probe.shape[i] = extents[i]
    fault = check_extents(&probe, <int64_t>1 << array_type_of_hip(type).shift, True, &elements)
    if fault != fault_none:
        raise InvalidProblemError(f"shape: {fault_message(fault).decode()}")
    return <size_t>elements << array_type_of_hip(type).shift


cdef size_t bytes_of(int32_t type, object shape) except? 0:
    cdef int64_t extents[32]
    return size_of(type, fill_extents(shape, extents), extents)
