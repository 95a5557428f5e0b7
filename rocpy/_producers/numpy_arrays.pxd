# SPDX-License-Identifier: MIT
"""numpy arrays as operands."""

cimport numpy as cnp

from rocpy._dlpack cimport Operand

# Read an ndarray. False: its memory cannot be used as it is.
cdef bint parse_ndarray(cnp.ndarray array, Operand* out)
# Read an ndarray that cannot be used as it is: copied where its values can be kept, refused otherwise.
cdef object parse_ndarray_other(object array, str name, Operand* out)
# Read an instance of a subclass of ndarray, unless the class gives its values another meaning.
cdef object parse_subclass(object array, str name, Operand* out)
