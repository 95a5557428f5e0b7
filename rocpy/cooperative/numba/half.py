# SPDX-License-Identifier: MIT
"""16-bit floats in kernels: Numba knows float16 by name alone, and bfloat16 not at all.

Both are what memory and values hold; arithmetic happens in float32, and each result is rounded once, to even.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models, register_default
from numba.core.imputils import lower_cast, lower_constant
from numba.core.typeconv.rules import default_casting_rules

from rocpy.cooperative.numba.llvm_types import I16, I32, I64

_FLOAT, _DOUBLE, _HALF = ir.FloatType(), ir.DoubleType(), ir.HalfType()


class BFloat16(types.Number):
    """The upper half of a float32; its value is the 16 bits, as an integer."""

    bitwidth = 16

    def __init__(self) -> None:
        super().__init__("bfloat16")


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


def _rounded(builder: Any, value: ir.Value) -> ir.Value:
    """Return the bits of the bfloat16 nearest to a float."""
    bits = builder.bitcast(value, I32)
    last = builder.and_(builder.lshr(bits, I32(16)), I32(1))
    nearest = builder.lshr(builder.add(bits, builder.add(last, I32(0x7FFF))), I32(16))
    quiet = builder.or_(builder.lshr(bits, I32(16)), I32(0x40))
    is_nan = builder.fcmp_unordered("uno", value, value)
    return builder.trunc(builder.select(is_nan, quiet, nearest), I16)


def _widened(builder: Any, value: ir.Value) -> ir.Value:
    return builder.bitcast(builder.shl(builder.zext(value, I32), I32(16)), _FLOAT)


@lower_cast(BFloat16, types.Float)
@lower_cast(BFloat16, types.Integer)
@lower_cast(BFloat16, types.Complex)
def _from_bfloat16(context: Any, builder: Any, _from: Any, to: Any, value: Any) -> Any:
    return context.cast(builder, _widened(builder, value), types.float32, to)


@lower_cast(BFloat16, BFloat16)
@lower_cast(types.Float, BFloat16)
@lower_cast(types.Integer, BFloat16)
@lower_cast(types.Boolean, BFloat16)
def _to_bfloat16(context: Any, builder: Any, from_: Any, to: Any, value: Any) -> Any:
    if from_ == to:
        return value
    if from_ == types.float16 or from_ == types.float32:
        return _rounded(builder, context.cast(builder, value, from_, types.float32))
    return _rounded(builder, odd_float(builder, context.cast(builder, value, from_, types.float64)))


@lower_cast(BFloat16, types.Boolean)
def _bfloat16_to_boolean(_context: Any, builder: Any, _from: Any, _to: Any, value: Any) -> Any:
    return builder.icmp_unsigned("!=", builder.and_(value, I16(0x7FFF)), I16(0))


@lower_constant(BFloat16)
def _bfloat16_constant(_context: Any, _builder: Any, _type: Any, value: Any) -> Any:
    bits = int(np.float32(value).view(np.uint32))
    return I16((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
