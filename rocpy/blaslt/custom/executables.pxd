# SPDX-License-Identifier: MIT
# A planned product with an epilogue of the user's as the call that computes it.
from rocpy.blaslt.model.product_call cimport ProductCall


cpdef ProductCall planned_call(dict operands, dict inputs, object alpha, object beta, dict settings, object options, object stream, tuple outs)
