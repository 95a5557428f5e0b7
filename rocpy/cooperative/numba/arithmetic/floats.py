# SPDX-License-Identifier: MIT
"""Code for powers of floats and of complex numbers, and for complex quotients, by 0 too."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.compiler import Flags
from numba.core.typing import signature as make_signature

from rocpy.cooperative.numba.arithmetic.integers import as_result, by_squares

_MOST_FACTORS = 2**16  # that Numba writes one after the other


def _call_inline(context: Any, builder: Any, function: Any, signature: Any, operands: Any) -> Any:
    """Call a function whose operations are Numba's, but for a float's division by zero, which is numpy's."""
    flags = Flags()
    flags.error_model, flags.forceinline = "numpy", True
    plain = context.subtarget()
    plain.__class__ = type(context).__base__
    compiled = plain.compile_subroutine(builder, function, signature, flags=flags)
    return context.call_internal(builder, compiled.fndesc, signature, operands)


def complex_quotient(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    """Return a quotient of complex numbers."""

    def quotient(a: Any, b: Any) -> Any:
        if b.real == 0 and b.imag == 0:
            return complex(a.real / abs(b.real), a.imag / abs(b.real))
        return a / b

    result = signature.return_type
    operands = as_result(context, builder, signature, operands)
    return _call_inline(context, builder, quotient, make_signature(result, result, result), operands)


def complex_power(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    """Return a complex number to a complex power; 0 to one whose real part is positive is 0."""

    def power(a: Any, b: Any) -> Any:
        return a * 0 if a.real == 0 and a.imag == 0 and b.real > 0 else a**b

    result = signature.return_type
    operands = as_result(context, builder, signature, operands)
    return _call_inline(context, builder, power, make_signature(result, result, result), operands)


def power(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    """Return a float to an integer's power, which for a negative one is the reciprocal of the power."""
    result, exponents = signature.return_type, types.unliteral(signature.args[1])
    base = context.cast(builder, operands[0], signature.args[0], result)
    factors = -getattr(signature.args[1], "literal_value", 0)
    if 0 < factors <= _MOST_FACTORS:
        inverse = make_signature(result, result)
        return _call_inline(context, builder, lambda a: result(1) / a**factors, inverse, (base,))
    exponent = context.cast(builder, operands[1], signature.args[1], exponents)
    one, zero = base.type(1), exponent.type(0)
    negative = builder.icmp_signed("<", exponent, zero) if exponents.signed else ir.IntType(1)(0)
    # A power beyond the largest float may have a reciprocal: the magnitude is halved, and that of the smallest integer
    # is none of its type, but of an unsigned one.
    magnitude = builder.select(negative, builder.sub(zero, exponent), exponent)
    half = builder.select(negative, builder.lshr(magnitude, exponent.type(1)), magnitude)
    first = by_squares(builder, base, half, one, builder.fmul)
    odd = builder.icmp_unsigned("!=", builder.and_(magnitude, exponent.type(1)), zero)
    second = builder.select(odd, builder.fmul(first, base), first)
    whole = builder.fmul(first, second)
    results = cgutils.alloca_once_value(builder, first)
    with builder.if_then(negative):
        beyond = builder.fcmp_ordered("==", builder.call(_magnitude(builder, base.type), (whole,)), base.type(math.inf))
        divided = builder.fdiv(one, builder.select(beyond, first, whole))
        builder.store(builder.fdiv(divided, builder.select(beyond, second, one)), results)
    return builder.load(results)


def _magnitude(builder: Any, kind: Any) -> Any:
    return builder.module.declare_intrinsic("llvm.fabs", [kind])
