# SPDX-License-Identifier: MIT
# Operands of less than a byte an element.
from rocpy._operand cimport Operand


# An operand whose elements are packed into bytes along K.
cdef class Packed:
    cdef readonly object memory
    cdef readonly str dtype
    cdef readonly bint right  # b: K is the last but one axis


cdef object parse_packed(Packed packed, str name, Operand *out)
