# SPDX-License-Identifier: MIT
# What the function form calls, and what it knows of the process, for whoever launches its plans without the GIL.
from rocpy.blaslt.front.steps cimport Arguments
from rocpy.blaslt.model.product_call cimport ProductCall


# Learns the following; takes the GIL.
cdef int get_ready() except -1
# Whether arrays in CPU memory are copied to the device, or that is not known yet.
cdef bint stages_arrays() noexcept nogil
# Makes a call and returns its outputs.
cdef object outputs(Arguments *call)
# Makes a call with an epilogue of the user's.
cdef object custom_matmul(ProductCall call, object autotune)
