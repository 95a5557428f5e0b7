# SPDX-License-Identifier: MIT
"""Rounding of numpy's arrays to narrow types, chunk by chunk so that the intermediate arrays stay in the cache.

The codes are those of the arithmetic in float64 that :mod:`rocpy.blaslt.arrays.quantization` describes. What float32
represents exactly is computed in float32, and a quotient that float32 rounds to a tie is decided by that of float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["block_codes", "magnitudes", "quotient_codes", "quotient_integers"]

_CHUNK = 1 << 16  # elements
_Array = Any
_Slices = tuple[slice, ...]


@np.errstate(all="ignore")
def magnitudes(x: _Array, axis: int | None) -> _Array:
    """Return the largest magnitudes of an array along an axis, or of all, in float64; the axes stay, with extent 1."""
    x = _wide(x)
    upper, lower = (function(x, axis=axis, keepdims=True, initial=0.0) for function in (np.max, np.min))
    return np.maximum(upper, -lower).astype(np.float64)


@np.errstate(all="ignore")
def quotient_codes(x: _Array, scales: _Array, finite: _Array, table: _Array, to: _Array) -> None:
    """Write the codes, by a table of them, of an array over its float32 scales; 0 where those are not finite."""
    _convert(x, scales, finite, to, lambda one, scale: _codes(_odd_quotients(one, scale), table))


@np.errstate(all="ignore")
def quotient_integers(x: _Array, scales: _Array, finite: _Array, largest: float, to: _Array) -> None:
    """Write an array over its float32 scales as int8, rounded to nearest even; 0 where those are not finite."""

    def integers(one: _Array, scale: _Array) -> _Array:
        quotients = one / scale
        rounded = np.rint(quotients)
        ties = np.nonzero(np.abs(quotients - rounded) == 0.5)
        if ties[0].size:
            rounded[ties] = np.rint(_wide_quotients(one, scale, ties))
        return np.clip(rounded, -largest, largest)

    _convert(x, scales, finite, to, integers)


@np.errstate(all="ignore")
def block_codes(
    x: _Array, axis: int, block: int, exponents: Callable[[_Array], tuple[_Array, _Array]], table: _Array
) -> tuple[_Array, _Array]:
    """Return the codes of an array with a scale for each block along an axis, and the bytes of the scales.

    ``exponents`` returns, of the largest magnitudes of blocks, the exponents of their scales and whether they are
    finite; others are given as 255.
    """
    outer, extent, inner = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    count = -(-extent // block)
    codes = np.empty(x.shape, np.uint8)
    scales = np.empty((*x.shape[:axis], count, *x.shape[axis + 1 :]), np.uint8)
    source = x.reshape(outer, extent, inner)
    to, scale_to = codes.reshape(outer, extent, inner), scales.reshape(outer, count, inner)
    whole = extent // block
    for first, last, length in ((0, whole, block), (whole, count, extent - whole * block)):
        if last > first and source.size:
            begin = first * block
            cut = (outer, last - first, length, inner)
            parts = slice(begin, begin + (last - first) * length)
            _round_blocks(
                source[:, parts].reshape(cut), exponents, table, to[:, parts].reshape(cut), scale_to[:, first:last]
            )
    return codes, scales


def _round_blocks(x: _Array, exponents: Any, table: _Array, to: _Array, scale_to: _Array) -> None:
    """Round blocks of shape (outer, count, length, inner) into views of the codes and of the scales."""
    for at in _chunks((*x.shape[:2], x.shape[2] * x.shape[3])):
        chunk = _wide(x[at[:2]])
        largest = np.maximum(np.max(chunk, axis=2), -np.min(chunk, axis=2))
        shared, finite = exponents(largest)
        if not finite.all():
            chunk = np.where(finite[:, :, None], chunk, chunk.dtype.type(0))
        factors = np.ldexp(chunk.dtype.type(1), -shared)
        to[at[:2]] = _codes(chunk * factors[:, :, None], table)
        scale_to[at[:2]] = np.where(finite, shared + 127, 255)


def _wide(x: _Array) -> _Array:
    """Return float64 as it is, and other floats in float32."""
    return np.asarray(x, np.float64 if x.dtype.kind == "f" and x.dtype.itemsize == 8 else np.float32)


def _chunks(shape: tuple[int, ...]) -> Iterator[_Slices]:
    """Yield slices that cut an array into pieces of neighbours."""
    if not shape:
        yield ()
        return
    row = math.prod(shape[1:])
    if row > _CHUNK:
        for i in range(shape[0]):
            yield from ((slice(i, i + 1), *rest) for rest in _chunks(shape[1:]))
        return
    step = max(1, _CHUNK // max(1, row))
    for i in range(0, shape[0], step):
        yield (slice(i, i + step), *(slice(None) for _ in shape[1:]))


def _convert(
    x: _Array, scales: _Array, finite: _Array, to: _Array, convert: Callable[[_Array, _Array], _Array]
) -> None:
    x, scales, finite, to = (np.atleast_1d(one) for one in (x, scales, finite, to))
    whole = bool(np.all(finite))
    for at in _chunks(x.shape):
        here = tuple(one if extent > 1 else slice(None) for one, extent in zip(at, scales.shape, strict=True))
        chunk, scale = _wide(x[at]), scales[here]
        to[at] = convert(chunk if whole else np.where(finite[here], chunk, chunk.dtype.type(0)), scale)


def _wide_quotients(x: _Array, scale: _Array, positions: tuple[_Array, ...]) -> _Array:
    x, scale = np.broadcast_arrays(x, scale)
    return x[positions].astype(np.float64) / scale[positions].astype(np.float64)


def _odd_quotients(x: _Array, scale: _Array) -> _Array:
    """Return quotients that round to a narrow float as the exact ones do."""
    if x.dtype == np.float64:
        return x / scale.astype(np.float64)
    quotients = x / scale
    # Only here may float32 have rounded to a tie of a narrow type.
    ties = np.nonzero((quotients.view(np.uint32) & 0xFFFF) == 0)
    if ties[0].size:
        exact, rounded = _wide_quotients(x, scale, ties), quotients[ties]
        toward = np.where(exact > rounded, np.float32(np.inf), np.float32(-np.inf))
        quotients[ties] = np.where(exact == rounded, rounded, np.nextafter(rounded, toward))
    return quotients


def _codes(x: _Array, table: _Array) -> _Array:
    """Return the codes of numbers: by sign, exponent and seven bits of the fraction, the last one set if more are."""
    if x.dtype == np.float64:
        x = _odd(x)
    bits = x.view(np.uint32)
    return table[(bits >> 16) | ((bits & 0xFFFF) != 0)]


def _odd(x: _Array) -> _Array:
    """Return float64 in float32, with the last bit set where that is not exact."""
    narrow = x.astype(np.float32)
    toward_zero = np.where(np.abs(narrow) > np.abs(x), np.nextafter(narrow, np.float32(0)), narrow)
    bits = toward_zero.view(np.uint32) | (toward_zero != x)
    return bits.view(np.float32)
