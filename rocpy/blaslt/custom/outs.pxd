# SPDX-License-Identifier: MIT
# The check of what the results of an epilogue of the user's are written to; outs.pyx has the documentation.
from rocpy.blaslt.model.scale_arguments cimport ScaleArguments


# The arrays that the results of an epilogue go to, None where there is none; refuses, before anything is computed, what cannot be written.
cdef tuple check_outs(object out, object bound, object a, object b, object c, dict inputs, ScaleArguments scales, object options)
