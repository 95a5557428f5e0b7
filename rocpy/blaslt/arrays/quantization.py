# SPDX-License-Identifier: MIT
"""Conversion of arrays to narrow types and back: MX blocks with shared exponents, and FP8 or int8 with float32 scales.

The arithmetic is in float64: scaling by powers of two and rounding to a type of few bits are exact there, so that numpy
and torch give the same bits, whatever the caller's floating-point environment. :mod:`.rounding` computes the same codes
of arrays in the host's memory, faster.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

import numpy as np

from rocpy import dtypes
from rocpy._fp_environment import default_arithmetic
from rocpy._producers.torch_modes import is_fake
from rocpy.blaslt.arrays.array_libraries import NUMPY as _NUMPY
from rocpy.blaslt.arrays.array_libraries import read, refuse_gradient
from rocpy.blaslt.arrays.framework import framework_of
from rocpy.blaslt.arrays.rounding import block_codes, magnitudes, quotient_codes, quotient_integers
from rocpy.dtypes import DType
from rocpy.errors import InvalidOperandError, InvalidProblemError, OutOfMemoryError
from rocpy.typing import TorchDType

if TYPE_CHECKING:
    import numpy.typing as npt
    import torch

__all__ = ["dequantize", "dequantize_mx", "quantize", "quantize_mx"]

_OtherDType: TypeAlias = DType | np.dtype[Any] | type[Any] | TorchDType

BLOCK = 32
"""Neighbours that share one scale in the MX formats."""


@dataclass(frozen=True, slots=True)
class _Format:
    """A narrow float: exponent of its largest and of its least normal number, bits of the fraction, largest number."""

    emax: int
    emin: int
    fraction: int
    largest: float


# OCP 8-bit floating point 1.0 and OCP microscaling 1.0; the FNUZ forms are those of AMD's gfx940.
_FORMATS = {
    "float8_e4m3fn": _Format(8, -6, 3, 448.0),
    "float8_e5m2": _Format(15, -14, 2, 57344.0),
    "float8_e4m3fnuz": _Format(7, -7, 3, 240.0),
    "float8_e5m2fnuz": _Format(15, -15, 2, 57344.0),
    "float6_e2m3fn": _Format(2, 0, 3, 7.5),
    "float6_e3m2fn": _Format(4, -2, 2, 28.0),
    "float4_e2m1fn": _Format(2, 0, 1, 6.0),
}
MxName: TypeAlias = Literal["float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"]
ScaledName: TypeAlias = Literal["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "int8"]
WideName: TypeAlias = Literal["float64", "float32", "float16", "bfloat16"]
_MX, _SCALED, _SOURCES = get_args(MxName), get_args(ScaledName), get_args(WideName)
# Byte of an e8m0 scale: exponent + 127; 255 is NaN.
_BIAS, _NAN_BYTE = 127, 255
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Array = TypeVar("_Array", "npt.NDArray[Any]", "torch.Tensor")
_FLOAT32_MAX = float(np.finfo(np.float32).max)


def _conversion(function: _Function) -> _Function:
    """Return a function in the default floating-point environment, whose MemoryError (of float64 copies) is ours."""
    function_in_default = default_arithmetic(function)

    @functools.wraps(function)
    def wrapped(array: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            with array.fake_mode if is_fake(array) else nullcontext():  # what is made of a fake tensor is one, too
                return function_in_default(array, *args, **kwargs)
        except OutOfMemoryError:
            raise
        except MemoryError:
            raise OutOfMemoryError(
                f"{function.__name__}: an array of shape {tuple(array.shape)} is converted through float64, and "
                "there is not enough memory for it; convert it in parts"
            ) from None

    return wrapped  # type: ignore[return-value]


def _target(dtype: Any, allowed: tuple[str, ...]) -> DType:
    row = dtypes.lookup(dtype)
    if row.name not in allowed:
        raise InvalidProblemError(f"dtype: got {row.name}, expected {', '.join(allowed)}")
    return row


def _of_type(x: Any, name: str, allowed: tuple[str, ...]) -> None:
    # Not every type has a byte order.
    dtype = x.dtype.newbyteorder("=") if isinstance(x, np.ndarray) and not x.dtype.isnative else x.dtype
    try:
        known = dtypes.lookup(dtype).name
    except InvalidOperandError:
        known = str(dtype).removeprefix("torch.")
    if known not in allowed:
        raise InvalidProblemError(f"{name}: got {known}, expected {', '.join(allowed)}; cast it")


def _axis(axis: Any, ndim: int) -> int:
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer) or not -ndim <= axis < ndim:
        raise InvalidProblemError(f"axis: got {axis!r} for an array with {ndim} axes")
    return int(axis) % ndim


def _power(library: Any, exponent: Any) -> Any:
    """Return two to integers from -1022 to 1023 in float64, exactly."""
    return library.reinterpreted((library.cast(exponent, "int64") + 1023) << 52, "float64")


def _round(library: Any, x: Any, kind: _Format) -> Any:
    """Return float64 values rounded to a narrow float, to nearest with ties to even, the excess saturated."""
    exponent = library.frexp(x)[1] - 1  # floor(log2 |x|); of zero -1, which rounds it to itself
    exponent = library.clip(exponent, kind.emin, kind.emax + 1)
    step = _power(library, exponent - kind.fraction)
    return library.clip(library.rint(x / step) * step, -kind.largest, kind.largest)


@functools.cache
def _code_table(name: str) -> Any:
    """Return the codes of the numbers that the upper halves of float32 stand for, for :mod:`.rounding`."""
    library, kind = _NUMPY, _FORMATS[name]
    halves = np.arange(1 << 16, dtype=np.uint32) << 16
    numbers = library.cast(halves.view(np.float32), "float64")
    rounded = _round(library, np.clip(np.where(np.isnan(numbers), 0.0, numbers), -1e300, 1e300), kind)
    return library.narrow(_without_negative_zero(rounded, name), dtypes.lookup(name)).view(np.uint8)


def _without_negative_zero(rounded: Any, name: str) -> Any:
    return rounded + 0.0 if name.endswith("fnuz") else rounded  # the code of it is NaN in these types


@_conversion
def narrowed(x: Any, dtype: str) -> Any:
    """Return an array rounded to a narrow float with no scale: to nearest even; the excess saturates, NaN is 0.

    torch packs two of ``float4_e2m1fn`` along the last axis to a byte.
    """
    library, x = read(x, "x")
    row = dtypes.lookup(dtype)
    library.check(row, x.shape[-1])
    wide = library.cast(x, "float64")
    return library.narrow(_round(library, library.where(wide == wide, wide, 0.0), _FORMATS[row.name]), row)


@_conversion
def widened(values: Any) -> Any:
    """Return the numbers of a narrow array in float32; torch's of four bits are unpacked along the last axis."""
    library, values = read(values, "values")
    return library.cast(library.wide(values), "float32")


@_conversion
def quantize_mx(x: _Array, dtype: MxName | _OtherDType = "float8_e4m3fn", axis: int = -1) -> tuple[_Array, _Array]:
    """Return an array in an MX format: narrow values, and a power of two per 32 consecutive elements along an axis.

    Parameters
    ----------
    x
        numpy array or torch tensor of float64, float32, float16 or bfloat16.
    dtype
        ``float8_e4m3fn``, ``float8_e5m2``, ``float6_e2m3fn``, ``float6_e3m2fn`` or ``float4_e2m1fn``.
    axis
        The axis along which blocks lie: that of K in a product. The last block may be shorter than 32.

    Returns
    -------
    values, scales
        Arrays of x's framework: values of ``dtype`` and of x's shape (torch packs two of float4 to a byte, so that the
        last axis is halved), scales of ``float8_e8m0fnu`` whose extent along ``axis`` is that of x over 32, rounded up.

    Raises
    ------
    InvalidOperandError
        If ``x`` is neither a numpy array nor a torch tensor, or is masked or sparse.
    InvalidProblemError
        If its dtype, ``dtype`` or ``axis`` is not one of those above.
    UnsupportedError
        If torch has no such dtype (those of six bits), cannot pack an odd extent, or records ``x`` for a gradient: pass
        its ``.detach()``.

    Notes
    -----
    The rule of OCP Microscaling 1.0, section 6.3: the scale is 2 to the floor of log2 of the block's largest magnitude,
    less the exponent of the format's largest number; values are rounded to nearest, ties to even, and saturate. A block
    of zeros has scale 1. A block with a NaN or an infinity has scale NaN and values 0, so that the whole block
    represents NaN: the formats of four and six bits have neither.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> values, scales = rocpy.quantize_mx(np.linspace(-3, 3, 64, dtype=np.float32), "float4_e2m1fn")
    >>> values.shape, scales.shape, scales.astype(np.float32)
    ((64,), (2,), array([0.5, 0.5], dtype=float32))
    """
    return _quantized_blocks(x, dtype, axis, upward=False)


@_conversion
def quantize_mx_upward(x: _Array, dtype: Any = "float8_e4m3fn", axis: int = -1) -> tuple[_Array, _Array]:
    """Return an array in an MX format by cuBLAS's rule for results, by which no value saturates.

    The scale is the largest magnitude over the format's largest number, a float32, rounded up to a power of two.
    """
    return _quantized_blocks(x, dtype, axis, upward=True)


def _quantized_blocks(x: Any, dtype: Any, axis: int, *, upward: bool) -> tuple[Any, Any]:
    library, x = read(x, "x")
    refuse_gradient(x, "x")
    row = _target(dtype, _MX)
    _of_type(x, "x", _SOURCES)
    axis = _axis(axis, x.ndim)
    library.check(row, x.shape[-1])
    kind = _FORMATS[row.name]
    extent = x.shape[axis]
    host = library.on_host(x)
    if host is not None:
        codes, scales = block_codes(
            host, axis, BLOCK, lambda largest: _shared_exponents(_NUMPY, largest, kind, upward), _code_table(row.name)
        )
        return library.of_codes(codes, row), library.of_codes(scales, dtypes.lookup("float8_e8m0fnu"))
    blocks = _blocks(library, library.cast(library.moved(x, axis, -1), "float64"))
    shared, finite = _shared_exponents(library, library.largest(blocks, -1, keep=False), kind, upward)
    scaled = library.where(finite[..., None], blocks, 0.0) * _power(library, -shared)[..., None]
    rounded = _joined(_round(library, scaled, kind))[..., :extent]
    scales = library.cast(library.where(finite, shared + _BIAS, _NAN_BYTE), "uint8")
    return (
        library.narrow(library.moved(rounded, -1, axis), row),
        library.reinterpreted(library.moved(scales, -1, axis), "float8_e8m0fnu"),
    )


def _shared_exponents(library: Any, largest: Any, kind: _Format, upward: bool) -> tuple[Any, Any]:
    """Return the exponents of the scales of blocks from their largest magnitudes, and whether these are finite."""
    largest = library.cast(largest, "float64")
    finite = library.isfinite(largest)
    if upward:
        wanted = library.cast(library.where(finite & (largest > 0), largest, kind.largest), "float32") / kind.largest
        fraction, shared = library.frexp(library.cast(wanted, "float64"))
        shared = library.where(fraction > 0.5, shared, shared - 1)
    else:
        shared = library.frexp(library.where(finite & (largest > 0), largest, 2.0**kind.emax))[1] - 1 - kind.emax
    return library.clip(shared, -_BIAS, _BIAS), finite


def _blocks(library: Any, x: Any) -> Any:
    """Return an array with its last axis cut into blocks, the last one filled up with zeros."""
    count = -(-x.shape[-1] // BLOCK)
    if x.shape[-1] % BLOCK:
        x = library.padded(x, count * BLOCK - x.shape[-1])
    return x.reshape(*x.shape[:-1], count, BLOCK)


def _joined(x: Any) -> Any:
    """Return an array with its blocks in one axis again, also where there are none."""
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


@_conversion
def dequantize_mx(values: _Array, scales: _Array, dtype: WideName | _OtherDType = "float32", axis: int = -1) -> _Array:
    """Return the values that an array in an MX format represents.

    Parameters
    ----------
    values, scales
        As returned by :func:`rocpy.quantize_mx`; scales may also be bytes (uint8).
    dtype
        ``float64``, ``float32``, ``float16`` or ``bfloat16``, rounded to nearest.
    axis
        The axis along which blocks lie.

    Returns
    -------
    array
        Of the values' framework and shape (float4 of torch is unpacked); NaN where the scale is NaN.

    Raises
    ------
    InvalidOperandError
        If the arrays are not both numpy arrays or both torch tensors, or one is masked or sparse.
    InvalidProblemError
        If a dtype or ``axis`` is not one of those above, or the scales' shape does not fit.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> values, scales = rocpy.quantize_mx(np.array([0.3, -7.0, 100.0, 0.0]))
    >>> rocpy.dequantize_mx(values, scales)
    array([ 0.3125, -7.    , 96.    ,  0.    ], dtype=float32)
    """
    library, values = read(values, "values")
    scales = _of_same_library(library, values, scales)
    _of_type(values, "values", _MX)
    _of_type(scales, "scales", ("float8_e8m0fnu", "uint8"))
    row = _target(dtype, _SOURCES)
    wide = library.wide(values)
    axis = _axis(axis, wide.ndim)
    wanted = tuple(-(-e // BLOCK) if position == axis else e for position, e in enumerate(wide.shape))
    if tuple(scales.shape) != wanted:
        raise InvalidProblemError(
            f"scales: shape {tuple(scales.shape)}; for values of shape {tuple(wide.shape)} in blocks of {BLOCK} "
            f"along axis {axis} expected {wanted}"
        )
    extent = wide.shape[axis]
    codes = library.cast(library.reinterpreted(library.moved(scales, axis, -1), "uint8"), "int64")
    factors = library.where(codes == _NAN_BYTE, math.nan, _power(library, codes - _BIAS))
    product = _blocks(library, library.moved(wide, axis, -1)) * factors[..., None]
    flat = _joined(product)[..., :extent]
    return _rounded(library, library.moved(flat, -1, axis), row.name)


@_conversion
def quantize(
    x: _Array, dtype: ScaledName | _OtherDType = "float8_e4m3fn", axis: int | None = None
) -> tuple[_Array, _Array]:
    """Return an array in FP8 or int8, and the float32 scales by which it must be multiplied.

    Parameters
    ----------
    x
        numpy array or torch tensor of float64, float32, float16 or bfloat16.
    dtype
        ``float8_e4m3fn``, ``float8_e5m2``, their ``fnuz`` forms, or ``int8``.
    axis
        ``None``: one scale for the whole array. Otherwise one for each slice along this axis: ``-1`` returns one per
        row, for ``scale_a``, ``-2`` one per column, for ``scale_b``.

    Returns
    -------
    values, scales
        Arrays of x's framework: values of ``dtype`` and of x's shape; scales of float32, of shape ``()``, or that of x
        with extent 1 along ``axis``.

    Raises
    ------
    InvalidOperandError
        If ``x`` is neither a numpy array nor a torch tensor, or is masked or sparse.
    InvalidProblemError
        If its dtype, ``dtype`` or ``axis`` is not one of those above.
    UnsupportedError
        If torch has no such dtype, or records ``x`` for a gradient: pass its ``.detach()``.

    Notes
    -----
    The scale is the largest magnitude over the largest number of the type (127 for int8, which makes it symmetric), so
    that nothing overflows; values are rounded to nearest, ties to even. A slice of zeros has scale 1. If a slice
    contains a NaN or an infinity, its scale is NaN and its values are 0. Scales are normal float32 numbers: smaller
    slices are rounded to fewer bits, down to 0, and float64 values too large for such a scale saturate.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> values, scales = rocpy.quantize(np.array([[1.0, -2.0], [0.0, 254.0]]), "int8", axis=-1)
    >>> values.tolist(), scales.ravel().tolist()
    ([[64, -127], [0, 127]], [0.015748031437397003, 2.0])
    """
    library, x = read(x, "x")
    refuse_gradient(x, "x")
    row = _target(dtype, _SCALED)
    _of_type(x, "x", _SOURCES)
    library.check(row, 0)
    if axis is not None:
        axis = _axis(axis, x.ndim)
    kind = _FORMATS.get(row.name)
    top = 127.0 if kind is None else kind.largest
    host = library.on_host(x)
    if host is not None:
        # Before anything that takes as long as the array is large: an absurd one is refused at once.
        codes = np.empty(host.shape, np.int8 if kind is None else np.uint8)
        largest = magnitudes(host, axis)
        finite, scales = _scales_of(_NUMPY, largest, top)
        if kind is None:
            quotient_integers(host, scales, finite, top, codes)
        else:
            quotient_codes(host, scales, finite, _code_table(row.name), codes)
        scales = np.where(finite, scales, np.float32(math.nan))
        return library.of_codes(codes, row), library.of_array(scales.reshape(()) if axis is None else scales.copy())
    wide = library.cast(x, "float64")
    largest = library.largest(wide, tuple(range(x.ndim)) if axis is None else axis, keep=axis is not None)
    finite, scales = _scales_of(library, largest, top)
    scaled = library.where(finite, wide, 0.0) / library.cast(scales, "float64")
    rounded = library.clip(library.rint(scaled), -top, top) if kind is None else _round(library, scaled, kind)
    rounded = _without_negative_zero(rounded, row.name)
    return library.narrow(rounded, row), library.cast(library.where(finite, scales, math.nan), "float32")


def _scales_of(library: Any, largest: Any, top: float) -> tuple[Any, Any]:
    """Return whether the largest magnitudes of slices are finite, and their scales, 1 where they are not or are 0."""
    finite = library.isfinite(largest)
    # Not below the least normal float32, so that dividing by it stays finite.
    scales = library.where(finite & (largest > 0), library.clip(largest / top, 2.0**-126, _FLOAT32_MAX), 1.0)
    return finite, library.cast(scales, "float32")


@_conversion
def dequantize(values: _Array, scales: _Array, dtype: WideName | _OtherDType = "float32") -> _Array:
    """Return the values that an array in FP8 or int8 represents: values times scales.

    Parameters
    ----------
    values, scales
        As returned by :func:`rocpy.quantize`; scales broadcast.
    dtype
        ``float64``, ``float32``, ``float16`` or ``bfloat16``, rounded to nearest.

    Returns
    -------
    array
        Of the values' framework and shape.

    Raises
    ------
    InvalidOperandError
        If the arrays are not both numpy arrays or both torch tensors, or one is masked or sparse.
    InvalidProblemError
        If a dtype is not one of those above, or the scales do not broadcast to the values.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> values, scales = rocpy.quantize(np.array([1.0, -3.0, 0.1]))
    >>> rocpy.dequantize(values, scales)
    array([ 0.96428573, -3.        ,  0.10044643], dtype=float32)
    """
    library, values = read(values, "values")
    scales = _of_same_library(library, values, scales)
    _of_type(values, "values", _SCALED)
    _of_type(scales, "scales", ("float32", "float64"))
    row = _target(dtype, _SOURCES)
    shape, scale_shape = tuple(values.shape), tuple(scales.shape)
    pairs = zip(reversed(scale_shape), reversed(shape), strict=False)
    if len(scale_shape) > len(shape) or any(extent not in (1, full) for extent, full in pairs):
        raise InvalidProblemError(f"scales: shape {scale_shape} does not broadcast to the values' {shape}")
    return _rounded(library, library.wide(values) * library.cast(scales, "float64"), row.name)


def _rounded(library: Any, wide: Any, dtype: str) -> Any:
    """Return float64 values rounded once to a wide type: frameworks take two steps to 16 bits."""
    with np.errstate(all="ignore"):
        return library.cast(framework_of(wide).once(wide, dtype), dtype)


def _of_same_library(library: Any, values: Any, scales: Any) -> Any:
    other, scales = read(scales, "scales")
    if type(other) is not type(library):
        raise InvalidOperandError("values and scales belong to different frameworks; convert one")
    if not isinstance(scales, np.ndarray):
        _check_tensors(values, scales)
    return scales


def _check_tensors(values: Any, scales: Any) -> None:
    """Refuse scales on another device than the values, which torch would refuse; it moves a number on the host."""
    if is_fake(values) != is_fake(scales):
        name = "scales" if is_fake(scales) else "values"
        raise InvalidOperandError(f"{name}: a fake tensor, and the other is a real one; pass two real tensors")
    if values.device != scales.device and (scales.device.type != "cpu" or scales.ndim):
        raise InvalidOperandError(f"scales are on {scales.device} and values on {values.device}; move one")
