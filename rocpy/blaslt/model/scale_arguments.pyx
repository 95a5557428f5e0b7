# SPDX-License-Identifier: MIT
"""The scales of a product as arguments, with that of a Weight among them."""

from numbers import Number

import numpy

from rocpy cimport _operand
from rocpy.blaslt.model.weight_operand cimport WeightOperand

from rocpy._messages.choices import truth_value
from rocpy.blaslt.model.settings import real_number
from rocpy.errors import InvalidOperandError, InvalidProblemError

__all__ = ["SCALES", "ScaleArguments", "all_scales", "check_scale_number", "plain_scale", "scale_keywords", "scales_of", "with_weight_scale"]

# The keywords of the scales, in the order of the library's pointers to them.
SCALES = ("scale_a", "scale_b", "scale_c", "scale_d")


cdef class ScaleArguments:
    """The scales of one product, as they were given; a product without any has ``None`` in its place.

    Parameters
    ----------
    a, b, c, d
        Scales of the operands and of the result: numbers, arrays or ``None``.
    amax : bool
        Whether the largest magnitude of the result is wanted.
    from_weight : bool
        Whether ``b`` is the scale that the product's Weight carries.
    """

    def __init__(self, a=None, b=None, c=None, d=None, *, bint amax=False, bint from_weight=False):
        self.a, self.b, self.c, self.d, self.amax, self.from_weight = a, b, c, d, amax, from_weight

    def items(self):
        """Return the keyword and the value of each scale, ``None`` for those that are missing."""
        return (("scale_a", self.a), ("scale_b", self.b), ("scale_c", self.c), ("scale_d", self.d))

    def replaced(self, **changes):
        """Return the scales with others in the place of some, which are named as the attributes are."""
        return ScaleArguments(**{
            "a": self.a, "b": self.b, "c": self.c, "d": self.d, "amax": self.amax, "from_weight": self.from_weight, **changes})


def scales_of(settings):
    """Return the scales among keyword arguments; ``None`` where there are none."""
    return scales_or_none(
        settings.get("scale_a"), settings.get("scale_b"), settings.get("scale_c"), settings.get("scale_d"), settings.get("amax", False))


cdef bint amax_of(object amax) except -1:
    return truth_value("amax", amax, InvalidOperandError)


cpdef bint is_scale_array(object scale):
    """Whether a scale lies in memory of the caller's: it is neither ``None`` nor a number, nor a sequence of numbers."""
    return scale is not None and not isinstance(scale, (bool, int, float, numpy.generic, list, tuple))


cpdef object plain_scale(str name, object value):
    """Return a scale that is a number on the host, of whatever type, as one of Python's; anything else as an array, or as it is."""
    if is_number(value):
        return value
    if not isinstance(value, numpy.generic) and (not isinstance(value, Number) or hasattr(value, "shape")):  # a nested tensor's shape raises
        return _operand.readable(value, name)
    if not isinstance(value, (bool, numpy.bool_)):
        try:
            return real_number(value)
        except (TypeError, ValueError, OverflowError):
            pass
    raise InvalidOperandError(f"{name}: got {value!r:.80}, expected a number or a float32 array")


cpdef int check_scale_number(str name, object value) except -1:
    """Refuse a host number that is no scale: a truth value, NaN, and an integer beyond all floats."""
    if isinstance(value, (bool, numpy.bool_)):
        raise InvalidOperandError(f"{name}: got {value!r}, expected a number or a float32 array")
    if value != value:
        raise InvalidProblemError(f"{name}: got {value!r}, expected a number; look for NaN in the data that was quantized")
    try:
        float(value)
    except OverflowError:
        raise InvalidOperandError(f"{name}: an integer of {value.bit_length()} bits; pass a float32 number") from None
    return 0


cpdef ScaleArguments with_weight_scale(ScaleArguments scales, object factors):
    """Return the scales of a product with a Weight's own among them."""
    cdef ScaleArguments combined = ScaleArguments.__new__(ScaleArguments)
    if scales is not None:
        if scales.b is not None:
            raise InvalidProblemError("scale_b: the Weight already has a scale; omit it")
        combined.a, combined.c, combined.d, combined.amax = scales.a, scales.c, scales.d, scales.amax
    combined.b, combined.from_weight = factors, True
    return combined


cpdef ScaleArguments all_scales(object b, ScaleArguments scales):
    """Return the scales of a product with that of a Weight among them; ``None`` where there are none."""
    if not isinstance(b, WeightOperand) or (scales is not None and scales.from_weight):
        return scales
    factors = b.factors
    return scales if factors is None else with_weight_scale(scales, factors)


def scale_keywords(ScaleArguments scales, object b):
    """Return the scales as keyword arguments, without that which b brings along."""
    cdef dict keywords
    if scales is None:
        return {}
    keywords = {name: value for name, value in scales.items() if value is not None}
    if scales.amax:
        keywords["amax"] = True
    if isinstance(b, WeightOperand) and b.scale is not None:
        keywords.pop("scale_b", None)
    return keywords
