# SPDX-License-Identifier: MIT
"""Code that divides, shifts and rounds integers, by 0, by -1 and by their width too."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.extending import overload

from rocpy.cooperative.numba.llvm_types import I1
from rocpy.cooperative.numba.runtime import call, current


def number_of(signature: Any) -> Any:
    """Return the type of the result, or of each of two."""
    return getattr(signature.return_type, "dtype", signature.return_type)


def as_result(context: Any, builder: Any, signature: Any, operands: Any) -> list[Any]:
    """Return operands in the type of the result."""
    pairs = zip(operands, signature.args, strict=True)
    return [context.cast(builder, value, kind, number_of(signature)) for value, kind in pairs]


def _truncated(context: Any, builder: Any, signed: bool, left: Any, right: Any) -> tuple[Any, Any]:
    """Return quotient and remainder, rounded towards 0; by zero both are 0, and the quotient by -1 wraps around.

    No divisor is 0 or -1, for which LLVM's division is undefined, and undefined in 32 bits where a GPU divides in them.
    """
    kind = left.type
    if context.enable_boundscheck:
        with cgutils.if_unlikely(builder, builder.icmp_unsigned("==", right, kind(0))):
            call(builder, "rocpy_simt_divided_by_zero", current(builder))
    # By 0 and -1 the quotient is the product: 0, and the negative of the dividend.
    quotients, remainders = cgutils.alloca_once(builder, kind), cgutils.alloca_once(builder, kind)
    builder.store(builder.mul(left, right), quotients)
    builder.store(kind(0), remainders)
    lowest = builder.add(right, kind(1)) if signed else right
    usual = builder.icmp_unsigned(">", lowest, kind(1 if signed else 0))
    with cgutils.if_likely(builder, usual):
        builder.store((builder.sdiv if signed else builder.udiv)(left, right), quotients)
        builder.store((builder.srem if signed else builder.urem)(left, right), remainders)
    return builder.load(quotients), builder.load(remainders)


def rounded_down(context: Any, builder: Any, signature: Any, operands: Any) -> tuple[Any, Any]:
    """Return quotient and remainder, rounded down."""
    left, right = as_result(context, builder, signature, operands)
    kind, signed = left.type, number_of(signature).signed
    kinds = [types.unliteral(each) for each in signature.args]
    if kinds[0].signed != kinds[1].signed and kind.width == 64:
        return _of_mixed(context, builder, [each.signed for each in kinds], left, right)
    quotient, remainder = _truncated(context, builder, signed, left, right)
    if not signed:
        return quotient, remainder
    differs = builder.icmp_signed("<", builder.xor(remainder, right), kind(0))
    lower = builder.and_(builder.icmp_signed("!=", remainder, kind(0)), differs)
    return (
        builder.add(quotient, builder.sext(lower, kind)),
        builder.add(remainder, builder.select(lower, right, kind(0))),
    )


def _of_mixed(context: Any, builder: Any, signed: list[bool], left: Any, right: Any) -> tuple[Any, Any]:
    """Return quotient and remainder, rounded down, of a signed and an unsigned number, modulo 2**64."""
    kind = left.type
    negative = builder.icmp_signed("<", left if signed[0] else right, kind(0))
    magnitudes = [
        builder.select(negative, builder.neg(each), each) if mine else each
        for each, mine in zip((left, right), signed, strict=True)
    ]
    quotient, remainder = _truncated(context, builder, False, *magnitudes)
    lower = builder.zext(builder.icmp_unsigned("!=", remainder, kind(0)), kind)
    quotient = builder.select(negative, builder.neg(builder.add(quotient, lower)), quotient)
    remainder = builder.sub(left, builder.mul(quotient, right))
    by_zero = builder.icmp_unsigned("==", right, kind(0))
    return quotient, builder.select(by_zero, kind(0), remainder)


def both(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    """Return what `divmod` returns."""
    return cgutils.pack_array(builder, rounded_down(context, builder, signature, operands))


def fmod(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    """Return the remainder of a quotient that is rounded towards 0."""
    values = as_result(context, builder, signature, operands)
    return _truncated(context, builder, signature.return_type.signed, *values)[1]


def sign(_context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    """Return -1, 0 or 1; Numba takes unsigned numbers for signed ones."""
    (value,) = operands
    zero = value.type(0)
    if not signature.return_type.signed:
        return builder.zext(builder.icmp_unsigned("!=", value, zero), value.type)
    positive, negative = (builder.icmp_signed(each, value, zero) for each in (">", "<"))
    return builder.select(positive, value.type(1), builder.sext(negative, value.type))


def lcm(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    """Return the least common multiple, modulo 2**n; Numba computes that of uint64 in float64."""

    def multiple(a: Any, b: Any) -> Any:
        return a if a == 0 else abs(a * (b // np.gcd(b, a)))

    return context.compile_internal(builder, multiple, signature, operands)


def rounded(value: Any, digits: int = 0) -> Any:
    """Return an integer rounded to a power of ten, half to even, modulo 2**64, as code of kernels."""
    raise NotImplementedError


@overload(rounded)
def _rounded(value: Any, digits: Any = 0) -> Any:
    wide, unsigned = types.uint64 if value == types.uint64 else types.int64, types.uint64

    def as_it_is(value: Any, digits: Any = 0) -> Any:
        return wide(value)

    def to_a_power_of_ten(value: Any, digits: Any = 0) -> Any:
        if digits >= 0:
            return wide(value)
        if digits < -19:  # a half of the unit is beyond 64 bits
            return wide(0)
        magnitude, unit = unsigned(value), unsigned(1)
        if value < 0:
            magnitude = unsigned(0) - magnitude
        for _ in range(-digits):
            unit *= unsigned(10)
        quotient = magnitude // unit
        rest = magnitude - quotient * unit
        if rest > unit - rest or (rest == unit - rest and quotient & unsigned(1)):
            quotient += unsigned(1)
        magnitude = quotient * unit
        return wide(unsigned(0) - magnitude) if value < 0 else wide(magnitude)

    return to_a_power_of_ten if isinstance(digits, types.Integer) else as_it_is


def shift(leftwards: bool, context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    """Return a number shifted; by its width or more, or by a negative amount, 0, or to the right the sign."""
    value, amount = as_result(context, builder, signature, operands)
    kind, width, signed = value.type, value.type.width, signature.return_type.signed
    usual = builder.icmp_unsigned("<", amount, kind(width))
    if leftwards or not signed:
        shifted = (builder.shl if leftwards else builder.lshr)(value, builder.select(usual, amount, kind(0)))
        return builder.select(usual, shifted, kind(0))
    return builder.ashr(value, builder.select(usual, amount, kind(width - 1)))


def power(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
    """Return an integer to an integer's power, modulo 2**n; to a negative one 0, but for 1 and -1.

    0 to a negative power is the smallest integer of the type, as in Numba; numpy raises an exception.
    """
    result, exponents = number_of(signature), types.unliteral(signature.args[1])
    base = context.cast(builder, operands[0], signature.args[0], result)
    exponent = context.cast(builder, operands[1], signature.args[1], exponents)
    kind = base.type
    value = by_squares(builder, base, exponent, kind(1), builder.mul)
    if not exponents.signed:
        return value
    negative = builder.icmp_signed("<", exponent, exponent.type(0))
    odd = builder.trunc(exponent, I1)
    unit = builder.icmp_unsigned("==", base, kind(1))
    inverse = builder.select(unit, kind(1), kind(0))
    if result.signed:
        sign = builder.icmp_unsigned("==", base, kind(-1))
        inverse = builder.select(sign, builder.select(odd, kind(-1), kind(1)), inverse)
    zero = builder.icmp_unsigned("==", base, kind(0))
    inverse = builder.select(zero, kind(result.minval), inverse)
    return builder.select(negative, inverse, value)


def by_squares(builder: Any, base: Any, exponent: Any, one: Any, multiply: Any) -> Any:
    """Return a product of a number's squares: its power, for an exponent that is taken to be unsigned."""
    kind = exponent.type
    results = cgutils.alloca_once_value(builder, one)
    squares = cgutils.alloca_once_value(builder, base)
    rests = cgutils.alloca_once_value(builder, exponent)
    head, body, end = (builder.append_basic_block(f"power.{name}") for name in ("head", "body", "end"))
    builder.branch(head)
    with builder.goto_block(head):
        builder.cbranch(builder.icmp_unsigned("!=", builder.load(rests), kind(0)), body, end)
    with builder.goto_block(body):
        rest, square, result = builder.load(rests), builder.load(squares), builder.load(results)
        odd = builder.icmp_unsigned("!=", builder.and_(rest, kind(1)), kind(0))
        builder.store(builder.select(odd, multiply(result, square), result), results)
        builder.store(multiply(square, square), squares)
        builder.store(builder.lshr(rest, kind(1)), rests)
        builder.branch(head)
    builder.position_at_end(end)
    return builder.load(results)
