# SPDX-License-Identifier: MIT
# What the function form calls.
from rocpy.blaslt.front.steps cimport Arguments
from rocpy.blaslt.model.product_call cimport ProductCall


# Makes a call and returns its outputs.
cdef object outputs(Arguments *call)
# Makes a call whose arguments are an object.
cdef object outputs_of(ProductCall call)
# Refuses what is refused of a call before anything is computed.
cdef int check_product(ProductCall call) except -1
# Makes a call with an epilogue of the user's.
cdef object custom_matmul(ProductCall call)
