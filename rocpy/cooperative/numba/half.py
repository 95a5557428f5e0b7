# SPDX-License-Identifier: MIT
"""16-bit floats in kernels: Numba knows float16 by name alone, and bfloat16 not at all.

Both are what memory and values hold; arithmetic happens in float32, and each result is rounded once, to even.
"""

from __future__ import annotations

import operator
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models, register_default
from numba.core.imputils import lower_builtin, lower_cast, lower_constant
from numba.core.typeconv.rules import default_casting_rules
from numba.extending import overload

from rocpy.cooperative.numba.llvm_types import I16, I32, I64

_FLOAT, _DOUBLE, _HALF = ir.FloatType(), ir.DoubleType(), ir.HalfType()


class BFloat16(types.Number):
    """The upper half of a float32; its value is the 16 bits, as an integer."""

    bitwidth = 16

    def __init__(self) -> None:
        super().__init__("bfloat16")

    def unify(self, typingctx: Any, other: types.Type) -> Any:
        """Return the type of a value that is either this or another number, as of a float32."""
        return types.float32.unify(typingctx, other)


_unify_numbers = types.Number.unify


def _unify(number: types.Number, typingctx: Any, other: types.Type) -> Any:
    """Return the type of a value that is either of two numbers; Numba asks the one that comes first."""
    if isinstance(other, BFloat16):
        return other.unify(typingctx, number)
    return _unify_numbers(number, typingctx, other)


types.Number.unify = _unify  # type: ignore[method-assign, assignment]
bfloat16 = BFloat16()
HALVES = (types.float16, bfloat16)
default_casting_rules.promote_unsafe(bfloat16, types.float32)


def type_of(value: Any) -> types.Type:
    """Return the Numba type of an argument."""
    if isinstance(value, tuple):
        return types.Tuple([type_of(each) for each in value])
    if isinstance(value, np.ndarray) and value.dtype.name == "bfloat16":  # ml_dtypes'
        plain = numba.typeof(value.view(np.uint16))
        return plain.copy(dtype=bfloat16)
    return numba.typeof(value)


@register_default(types.Float)
class _FloatModel(models.PrimitiveModel):
    def __init__(self, manager: Any, type_: types.Float) -> None:
        super().__init__(manager, type_, {16: _HALF, 32: _FLOAT, 64: _DOUBLE}[type_.bitwidth])


@register_default(BFloat16)
class _BFloat16Model(models.PrimitiveModel):
    def __init__(self, manager: Any, type_: types.Float) -> None:
        super().__init__(manager, type_, I16)


def odd_float(builder: Any, value: ir.Value) -> ir.Value:
    """Return a double as a float whose last bit tells that more followed: rounded again, it is rounded once."""
    near = builder.fptrunc(value, _FLOAT)
    back = builder.fpext(near, _DOUBLE)
    inexact = builder.fcmp_ordered("!=", back, value)
    # Magnitudes as integers are in the order of the numbers.
    magnitude = [builder.and_(builder.bitcast(each, I64), I64(2**63 - 1)) for each in (back, value)]
    above = builder.icmp_unsigned(">", *magnitude)
    bits = builder.bitcast(near, I32)
    toward_zero = builder.select(above, builder.sub(bits, I32(1)), bits)
    odd = builder.or_(toward_zero, I32(1))
    return builder.bitcast(builder.select(inexact, odd, bits), _FLOAT)


@lower_cast(types.float64, types.float16)
def _double_to_half(_context: Any, builder: Any, _from: Any, _to: Any, value: Any) -> Any:
    # LLVM calls a function for this that processes do not have.
    return builder.fptrunc(odd_float(builder, value), _HALF)


def rounded(builder: Any, value: ir.Value) -> ir.Value:
    """Return the bits of the bfloat16 nearest to a float."""
    bits = builder.bitcast(value, I32)
    last = builder.and_(builder.lshr(bits, I32(16)), I32(1))
    nearest = builder.lshr(builder.add(bits, builder.add(last, I32(0x7FFF))), I32(16))
    quiet = builder.or_(builder.lshr(bits, I32(16)), I32(0x40))
    is_nan = builder.fcmp_unordered("uno", value, value)
    return builder.trunc(builder.select(is_nan, quiet, nearest), I16)


def widened(builder: Any, value: ir.Value) -> ir.Value:
    """Return the float that the bits of a bfloat16 stand for."""
    return builder.bitcast(builder.shl(builder.zext(value, I32), I32(16)), _FLOAT)


@lower_cast(BFloat16, types.Float)
@lower_cast(BFloat16, types.Integer)
@lower_cast(BFloat16, types.Complex)
def _from_bfloat16(context: Any, builder: Any, _from: Any, to: Any, value: Any) -> Any:
    return context.cast(builder, widened(builder, value), types.float32, to)


@lower_cast(BFloat16, BFloat16)
@lower_cast(types.Float, BFloat16)
@lower_cast(types.Integer, BFloat16)
@lower_cast(types.Boolean, BFloat16)
def _to_bfloat16(context: Any, builder: Any, from_: Any, to: Any, value: Any) -> Any:
    if from_ == to:
        return value
    if from_ == types.float16 or from_ == types.float32:
        return rounded(builder, context.cast(builder, value, from_, types.float32))
    return rounded(builder, odd_float(builder, context.cast(builder, value, from_, types.float64)))


@lower_builtin(bool, BFloat16)
def _truth_of_bfloat16(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return context.cast(builder, arguments[0], signature.args[0], types.boolean)


def _define_comparison(function: Any, symbol: str) -> None:
    @lower_builtin(function, BFloat16, BFloat16)
    def compare(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.fcmp_ordered(symbol, *(widened(builder, each) for each in arguments))


# Of two of them, as Python's `min` and `max` compare; elsewhere Numba compares them as float32.
_define_comparison(operator.lt, "<")
_define_comparison(operator.gt, ">")


@overload(int)
def _int_of_bfloat16(value: Any) -> Any:
    def convert(value: Any) -> Any:
        return int(types.float32(value))

    return convert if isinstance(value, BFloat16) else None


@overload(float)
def _float_of_half(value: Any) -> Any:
    def convert(value: Any) -> Any:
        return types.float32(value)  # as that of a float32 is one

    return convert if value in HALVES else None


@lower_cast(BFloat16, types.Boolean)
def _bfloat16_to_boolean(_context: Any, builder: Any, _from: Any, _to: Any, value: Any) -> Any:
    return builder.icmp_unsigned("!=", builder.and_(value, I16(0x7FFF)), I16(0))


@lower_constant(BFloat16)
def _bfloat16_constant(_context: Any, _builder: Any, _type: Any, value: Any) -> Any:
    bits = int(np.float32(value).view(np.uint32))
    return I16((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
