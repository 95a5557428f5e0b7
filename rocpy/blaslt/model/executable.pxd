# SPDX-License-Identifier: MIT
# How products of some kind with an epilogue of the user's are computed.
from rocpy.blaslt.model.product_call cimport ProductCall


cdef class Executable:
    cdef readonly object bound
    cdef readonly bint single  # whether the function returns one value and no tuple

    # The product of the library that the call begins with; None where there is none.
    cpdef ProductCall begin(self, ProductCall call)
    # The results, from that product's.
    cpdef tuple finish(self, ProductCall call, object base)
