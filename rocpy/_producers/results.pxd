# SPDX-License-Identifier: MIT
"""Results: C-contiguous arrays made by the framework of an operand."""

from rocpy._dlpack cimport DLPackExchangeAPI, Operand

cdef int compact(Operand* out) except -1
cdef object allocate_ndarray(Operand* out)
cdef object allocate_host(const DLPackExchangeAPI* api, Operand* out)
cdef object allocate_exchange(const DLPackExchangeAPI* api, Operand* out)
cdef object allocate_foreign(object prototype, int provider, Operand* out)
# numpy's array over the memory of an operand in CPU memory, which keeps its owner.
cdef object new_view(const Operand* operand, object owner)
