# SPDX-License-Identifier: MIT
# One product as arguments.


cdef class ProductCall:
    cdef public object a, b, c, bias, aux, out, alpha, beta, epilogue, inputs, clamp, dtype, compute, options, stream, scales, algorithm
