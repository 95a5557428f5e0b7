# SPDX-License-Identifier: MIT
# One product as arguments.
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments


cdef class ProductCall:
    cdef public object a, b, c, bias, aux, out, alpha, beta, epilogue, inputs, clamp, dtype, compute, options, stream, algorithm
    cdef public ScaleArguments scales
