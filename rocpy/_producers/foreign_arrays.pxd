# SPDX-License-Identifier: MIT
"""Arrays of every other kind as operands."""

from rocpy._dlpack cimport Operand

# Read an array of a type that has no short way: DLPack, the array interfaces, the buffer protocol, rocpy's Buffer.
cdef object parse_foreign(object array, str name, Operand* out)
# Whether an object that is neither numpy's nor torch's is asked for its memory, by DLPack, an array interface or the buffer protocol.
cdef bint exports_memory(object array) except -1
# Type, dtype and shape of an array as far as it tells them, for error messages.
cdef object seen(object array)
