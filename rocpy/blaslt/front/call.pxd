# SPDX-License-Identifier: MIT
# What the function form calls.
from rocpy.blaslt.front.steps cimport Arguments
from rocpy.blaslt.model.product_call cimport ProductCall


# Makes a call and returns its outputs.
cdef object outputs(Arguments *call)
# Makes a call with an epilogue of the user's.
cdef object custom_matmul(ProductCall call, object autotune)
