# SPDX-License-Identifier: MIT
"""Packed: an operand whose elements are packed into bytes along K, for modules below those that multiply."""

from libc.stdint cimport int64_t

from rocpy cimport _operand
from rocpy._dlpack cimport array_type_of_name
from rocpy._operand cimport Operand

from rocpy.blaslt.model.problem import OperandInfo


cdef class Packed:
    """An operand of less than a byte an element, packed along K: an array of bytes whose last axis is that of K."""

    def __init__(self, memory, dtype, right):
        self.memory = memory
        self.dtype = dtype
        self.right = right

    @property
    def info(self):
        """What a Problem knows of it."""
        cdef Operand seen
        parse_packed(self, "b" if self.right else "a", &seen)
        return OperandInfo(tuple([seen.shape[i] for i in range(seen.ndim)]), tuple([seen.strides[i] for i in range(seen.ndim)]), self.dtype)


cdef object parse_packed(Packed packed, str name, Operand *out):
    """Fill *out with the extents that the elements have."""
    cdef object owner = _operand.parse(packed.memory, name, out)
    cdef int bits = array_type_of_name(packed.dtype.encode()).bits
    cdef int axis, last = out.ndim - 1
    cdef int64_t swap
    out.type = array_type_of_name(packed.dtype.encode()).type
    for axis in range(last):
        out.strides[axis] = out.strides[axis] * 8 // bits
    out.shape[last] = out.shape[last] * 8 // bits
    if packed.right and out.ndim > 1:
        swap = out.shape[last]
        out.shape[last] = out.shape[last - 1]
        out.shape[last - 1] = swap
        swap = out.strides[last]
        out.strides[last] = out.strides[last - 1]
        out.strides[last - 1] = swap
    out.read_only = True
    return (packed.memory, owner)
