# SPDX-License-Identifier: MIT
# The scales of a product as arguments.


cdef class ScaleArguments:
    cdef readonly object a, b, c, d
    cdef readonly bint amax
    cdef readonly bint from_weight


# Inline, so that a product without scales pays for comparisons alone.
cdef inline ScaleArguments scales_or_none(object a, object b, object c, object d, object amax):
    """Return the scales of a call; ``None`` where there are none."""
    cdef ScaleArguments scales
    cdef bint wanted
    if a is None and b is None and c is None and d is None and amax is False:
        return None
    wanted = amax_of(amax)
    if not wanted and a is None and b is None and c is None and d is None:
        return None
    scales = ScaleArguments.__new__(ScaleArguments)
    scales.a, scales.b = plain_scale("scale_a", a), plain_scale("scale_b", b)
    scales.c, scales.d, scales.amax = plain_scale("scale_c", c), plain_scale("scale_d", d), wanted
    return scales


cdef inline bint is_number(object scale):
    return scale is None or type(scale) is float or type(scale) is int


cdef inline bint are_numbers(ScaleArguments scales):
    """Whether the scales of a and b are plain numbers at the most: no arrays, which may have one for each block."""
    return is_number(scales.a) and is_number(scales.b)


cpdef bint is_scale_array(object scale)
cdef bint amax_of(object amax) except -1
cpdef object plain_scale(str name, object value)
cpdef int check_scale_number(str name, object value) except -1
cpdef ScaleArguments with_weight_scale(ScaleArguments scales, object factors)
cpdef ScaleArguments all_scales(object b, ScaleArguments scales)
