# SPDX-License-Identifier: MIT
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments


# The arrays that the results of an epilogue go to, None where there is none; refuses, before anything is computed, what cannot be written.
cdef tuple check_outs(object out, object bound, object a, object b, object c, dict inputs, ScaleArguments scales, object options)
