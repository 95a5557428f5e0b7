# SPDX-License-Identifier: MIT
"""Scales by blocks of K as nvmath-python has them: one axis, in tiles of 128 lines by 4 blocks; and back."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import rocpy
from rocpy import dtypes
from rocpy._fp_environment import default_arithmetic
from rocpy._integers import integer_of
from rocpy.blaslt.arrays.quantization import narrowed
from rocpy.blaslt.arrays.quantization import widened as wide_of
from rocpy.compat.nvmath import _arrays
from rocpy.errors import InvalidOperandError, InvalidProblemError

__all__ = [
    "BlockScalingFormat",
    "apply_mxfp8_scale",
    "create_mxfp8_scale",
    "expand_block_scale",
    "get_block_scale_offset",
    "get_mxfp8_scale_offset",
    "invert_mxfp8_scale",
    "quantize_to_fp4",
    "to_block_scale",
    "unpack_fp4",
]

# A tile holds the scales of so many lines (rows of a, columns of b) and of so many blocks along K.
_LINES, _BLOCKS = 128, 4
_BIAS, _NAN = 127, 255


class BlockScalingFormat(str, enum.Enum):  # noqa: UP042 (nvmath's bases, which str() shows)
    """Formats of operands with block scales; the helpers also accept the text of a member."""

    NVFP4 = "NVFP4"
    MXFP8 = "MXFP8"

    @property
    def block(self) -> int:
        """Number of consecutive elements along K that share a scale."""
        return 16 if self is BlockScalingFormat.NVFP4 else 32

    @property
    def scale_dtype(self) -> str:
        """Element type of the scales."""
        return "float8_e4m3fn" if self is BlockScalingFormat.NVFP4 else "uint8"


def format_of(dtype: str) -> BlockScalingFormat:
    """Return the format of operands of a type."""
    return BlockScalingFormat.NVFP4 if dtype == "float4_e2m1fn" else BlockScalingFormat.MXFP8


def packing_of(array: Any) -> int:
    """Return how many elements of K an element of an array holds: torch packs two of float4."""
    return 2 if hasattr(array, "new_zeros") and _text(array.dtype) == "float4_e2m1fn_x2" else 1


# ---- layouts ----


def matrix_of(scales: Any, lines: int, blocks: int, batch: tuple[int, ...] = ()) -> Any:
    """Return scales as (..., lines, blocks) from one axis of tiles."""
    tiled = scales.reshape(*batch, lines // _LINES, blocks // _BLOCKS, 32, 4, _BLOCKS)
    ndim = len(batch)
    order = (*range(ndim), *(ndim + axis for axis in (0, 3, 2, 1, 4)))
    tiled = tiled.permute(order) if hasattr(tiled, "permute") else tiled.transpose(order)
    return tiled.reshape(*batch, lines, blocks)


def _tiled(matrix: Any) -> Any:
    """Return scales of shape (..., lines, blocks) along one axis, in tiles."""
    *batch, lines, blocks = matrix.shape
    cut = matrix.reshape(*batch, lines // _LINES, 4, 32, blocks // _BLOCKS, _BLOCKS)
    ndim = len(batch)
    order = (*range(ndim), *(ndim + axis for axis in (0, 3, 2, 1, 4)))
    cut = cut.permute(order) if hasattr(cut, "permute") else cut.transpose(order)
    return cut.reshape(-1)


def as_bytes(scales: Any) -> Any:
    """Return scales as bytes: frameworks lack operations on 8-bit floats."""
    return scales.view(_torch_uint8(scales)) if hasattr(scales, "new_zeros") else scales.view(np.uint8)


def _torch_uint8(array: Any) -> Any:
    return array.new_zeros(0).int().byte().dtype


def shape_of(operand_or_shape: Any, axis: int | None) -> tuple[tuple[int, ...], int]:
    """Return the logical shape of an operand and the axis that its blocks lie along."""
    is_shape = isinstance(operand_or_shape, (tuple, list))
    if not is_shape:
        _arrays.package_of(operand_or_shape, "operand_or_shape")
    elif axis is None:
        raise InvalidProblemError("axis: it is needed with a shape: -1 for a, -2 for b")
    shape = tuple(operand_or_shape if is_shape else operand_or_shape.shape)
    if len(shape) < 2 or not all(isinstance(extent, (int, np.integer)) and extent > 0 for extent in shape):
        raise InvalidProblemError(f"operand_or_shape: got shape {shape}, expected two axes or more, none of extent 0")
    if axis is not None and (number := integer_of(axis)) is not None:
        axis = number - len(shape) if number >= 0 else number
    if not is_shape:
        own = -2 if _arrays.is_column_major(operand_or_shape) else -1
        axis = own if axis is None else axis
        if axis != own and axis in (-1, -2):
            raise InvalidProblemError(
                f"axis: got {axis}, but blocks of an operand in {'rows' if own == -1 else 'columns'} lie along {own}; "
                "omit axis"
            )
        shape = _logical_shape(operand_or_shape, own)
    if axis not in (-1, -2):
        raise InvalidProblemError(f"axis={axis!r}, shape {shape}; blocks lie along -1 or -2 of two axes or more")
    return shape, axis


def _logical_shape(operand: Any, axis: int) -> tuple[int, ...]:
    """Return the shape of an operand in numbers, which may be packed along an axis."""
    along = len(operand.shape) + axis
    packing = packing_of(operand)
    return tuple(extent * packing if at == along else extent for at, extent in enumerate(operand.shape))


def _extents(
    operand_or_shape: Any, axis: int | None, form: BlockScalingFormat
) -> tuple[tuple[int, ...], int, int, int]:
    """Return batch axes, lines, blocks and the axis of the scales of an operand, which is of the format."""
    if not isinstance(operand_or_shape, (tuple, list)):
        _arrays.package_of(operand_or_shape, "operand_or_shape")
        dtype = _text(operand_or_shape.dtype).removesuffix("_x2")
        if dtype in ("float4_e2m1fn", "float8_e4m3fn", "float8_e5m2") and format_of(dtype) is not form:
            raise InvalidProblemError(f"block_scaling_format: {form.name}, and the operand is {dtype}")
    shape, axis = shape_of(operand_or_shape, axis)
    *batch, rows, columns = shape
    lines, k = (rows, columns) if axis == -1 else (columns, rows)
    if lines % _LINES or k % (form.block * _BLOCKS):
        raise InvalidProblemError(
            f"shape {shape}: {form.name} requires multiples of {form.block * _BLOCKS} along K and of {_LINES} along "
            "the other axis"
        )
    return tuple(batch), lines, k // form.block, axis


def check_scale(name: str, scale: Any, operand: Any, axis: int, package: str) -> None:
    """Refuse scales that are not those of an operand."""
    form = format_of(_arrays.dtype_name(operand, name))
    if isinstance(scale, (int, float)):
        raise InvalidProblemError(
            f"quantization_scales.{name}: a number; with block_scaling it is an array with a scale for each block"
        )
    _arrays.same_package(package, scale, f"quantization_scales.{name}")
    batch, lines, blocks, _ = _extents(_logical_shape(operand, axis), axis, form)
    wanted = int(np.prod(batch, dtype=np.int64)) * lines * blocks
    if not str(scale.dtype).endswith(form.scale_dtype) or tuple(scale.shape) != (wanted,):
        raise InvalidProblemError(
            f"quantization_scales.{name}: shape {tuple(scale.shape)}, {scale.dtype}; {form.name} wants "
            f"{form.scale_dtype} of shape ({wanted},), in tiles: see linalg.advanced.helpers.matmul.to_block_scale"
        )


def lines_of(scale: Any, operand: Any, axis: int) -> Any:
    """Return the scales of an operand as (..., lines, blocks)."""
    form = format_of(_arrays.dtype_name(operand, "operand"))
    batch, lines, blocks, _ = _extents(_logical_shape(operand, axis), axis, form)
    return matrix_of(as_bytes(scale), lines, blocks, batch)


@default_arithmetic
def widened(operand: Any, scale: Any, axis: int, dtype: Any) -> Any:
    """Return an NVFP4 operand times its scales: exact in 16 bits, which have room for both."""
    values = operand if axis == -1 else operand.swapaxes(-1, -2)
    codes = lines_of(scale, operand, axis) & 0x7F  # the sign is not looked at
    small = codes.view(scale.dtype)
    ones = as_bytes(small)[..., ::2] * 0 + _BIAS  # a scale for each 32, where there is one for each 16
    numbers = rocpy.dequantize_mx(values, ones)
    factors = small.astype(np.float32) if isinstance(small, np.ndarray) else small.float()
    repeated = np.repeat(factors, 16, -1) if isinstance(factors, np.ndarray) else factors.repeat_interleave(16, -1)
    product = numbers * repeated
    result = product.astype(dtype) if isinstance(product, np.ndarray) else product.to(dtype)
    return result if axis == -1 else result.swapaxes(-1, -2)


# ---- nvmath-python's helpers ----


@default_arithmetic
def create_mxfp8_scale(x: Any, exponent: int, stream: Any = None) -> Any:  # noqa: ARG001 (filled in x's own order)
    """Return scales of ``2 ** exponent`` for every block of an operand.

    Parameters
    ----------
    x
        The operand: numpy or torch.
    exponent
        From -127 to 127; 128 is NaN.
    stream
        Accepted and ignored; the array's framework fills the scales.

    Examples
    --------
    >>> import ml_dtypes, numpy as np
    >>> from rocpy.compat.nvmath.linalg.advanced.helpers.matmul import create_mxfp8_scale
    >>> create_mxfp8_scale(np.zeros((128, 128), ml_dtypes.float8_e4m3fn), 1)[:2].tolist()
    [128, 128]
    """
    number = integer_of(exponent)
    if number is None or not -_BIAS <= number <= 128:
        raise InvalidProblemError(f"exponent: got {exponent!r}, expected -127 to 128")
    package = _arrays.package_of(x, "x")
    count = int(np.prod(tuple(x.shape), dtype=np.int64)) // 32
    if package == "torch":
        return x.new_empty(count, dtype=_torch_uint8(x)).fill_(number + _BIAS)
    return np.full(count, number + _BIAS, np.uint8)


@default_arithmetic
def invert_mxfp8_scale(mx_scales: Any) -> Any:
    """Return the reciprocals of MXFP8 scales; NaN stays NaN, and ``2 ** 127`` becomes ``2 ** -127``."""
    _arrays.package_of(mx_scales, "mx_scales")
    if not str(mx_scales.dtype).endswith("uint8"):
        raise InvalidProblemError(f"mx_scales: got {mx_scales.dtype}, expected uint8")
    inverse = 2 * _BIAS - (mx_scales & 0xFF)
    if isinstance(mx_scales, np.ndarray):
        return np.where(mx_scales == _NAN, np.uint8(_NAN), inverse).astype(np.uint8)
    return inverse.masked_fill(mx_scales == _NAN, _NAN)


def get_block_scale_offset(
    index: tuple[Any, ...], operand_or_shape: Any, block_scaling_format: BlockScalingFormat, *, axis: int | None = None
) -> Any:
    """Return the offset of a block's scale in an array of tiled scales.

    Parameters
    ----------
    index
        Of the block: the operand's index, counted in blocks along the blocked axis; numbers or arrays of them.
    operand_or_shape
        The operand, or its shape in elements.
    block_scaling_format
        The format.
    axis
        The blocked axis, -1 or -2; inferred from the operand's layout.

    Examples
    --------
    >>> from rocpy.compat.nvmath.linalg.advanced.helpers.matmul import BlockScalingFormat, get_block_scale_offset
    >>> get_block_scale_offset((5, 5), (128, 128), BlockScalingFormat.NVFP4, axis=-1)
    593
    """
    batch, lines, blocks, axis = _extents(operand_or_shape, axis, _format(block_scaling_format))
    if len(index) != len(batch) + 2:
        raise InvalidProblemError(f"index: {len(index)} members; the operand has {len(batch) + 2} axes")
    line, block = (index[-2], index[-1]) if axis == -1 else (index[-1], index[-2])
    entry: Any = 0
    for position, extent in zip(index[:-2], batch, strict=True):
        entry = entry * extent + position
    tile = line // _LINES * (blocks // _BLOCKS) + block // _BLOCKS
    within = line % 32 * 16 + line % _LINES // 32 * 4 + block % _BLOCKS
    return (entry * lines * blocks) + tile * (_LINES * _BLOCKS) + within


def get_mxfp8_scale_offset(x: Any, index: tuple[Any, ...]) -> Any:
    """Return the offset of an element's scale in an array of tiled scales: the helper of nvmath-python before 1.0.

    Parameters
    ----------
    x
        The operand, whose layout determines the axis along which its blocks lie.
    index
        Of the element.
    """
    _, axis = shape_of(x, None)
    block = BlockScalingFormat.MXFP8.block
    if len(index) != len(x.shape):
        raise InvalidProblemError(f"index: {len(index)} members; the operand has {len(x.shape)} axes")
    at = len(index) + axis
    blocks = tuple(entry // block if position == at else entry for position, entry in enumerate(index))
    return get_block_scale_offset(blocks, x, BlockScalingFormat.MXFP8, axis=axis)


def to_block_scale(
    scale_tensor: Any, operand_or_shape: Any, block_scaling_format: BlockScalingFormat, *, axis: int | None = None,
    out: Any = None,
) -> Any:  # fmt: skip
    """Return scales in tiles from an array with the operand's axes, the blocked one counted in blocks."""
    form = _format(block_scaling_format)
    _check_scales("scale_tensor", scale_tensor, form)
    batch, lines, blocks, axis = _extents(operand_or_shape, axis, form)
    wanted = (*batch, lines, blocks) if axis == -1 else (*batch, blocks, lines)
    if tuple(scale_tensor.shape) != wanted:
        raise InvalidProblemError(f"scale_tensor: got shape {tuple(scale_tensor.shape)}, expected {wanted}")
    count = int(np.prod(wanted, dtype=np.int64))
    if out is not None and (tuple(out.shape) != (count,) or out.dtype != scale_tensor.dtype):
        raise InvalidProblemError(
            f"out: got shape {tuple(out.shape)}, {out.dtype}, expected ({count},), {scale_tensor.dtype}"
        )
    seen = as_bytes(scale_tensor)
    tiled = _tiled(seen if axis == -1 else seen.swapaxes(-1, -2)).view(scale_tensor.dtype)
    if out is None:
        return tiled
    out[...] = tiled
    return out


@default_arithmetic
def expand_block_scale(
    scales_1d: Any, operand_or_shape: Any, block_scaling_format: BlockScalingFormat, *, axis: int | None = None,
    output_dtype: Any = "smallest", device: Any = None,
) -> Any:  # fmt: skip
    """Return the factor of each element of an operand from scales in tiles.

    Parameters
    ----------
    scales_1d, operand_or_shape, block_scaling_format, axis
        As for :func:`to_block_scale`.
    output_dtype
        A dtype of the scales' package: float16, float32, float64, or that of the scales, which is ``"smallest"``:
        ``float8_e4m3fn`` for NVFP4 and, for MXFP8, the exponents in uint8.
    device
        Device of a torch result; by default that of the scales.
    """
    form = _format(block_scaling_format)
    _check_scales("scales_1d", scales_1d, form)
    batch, lines, blocks, axis = _extents(operand_or_shape, axis, form)
    wanted = int(np.prod(batch, dtype=np.int64)) * lines * blocks
    if tuple(scales_1d.shape) != (wanted,) or scales_1d.itemsize != 1:
        raise InvalidProblemError(
            f"scales_1d: got shape {tuple(scales_1d.shape)}, {scales_1d.dtype}, expected ({wanted},), of bytes"
        )
    matrix = _dense(matrix_of(as_bytes(scales_1d), lines, blocks, batch))
    kind: Any
    if isinstance(matrix, np.ndarray):
        codes = np.repeat(matrix, form.block, -1)
        kind = dtypes.lookup("float8_e8m0fnu" if form is BlockScalingFormat.MXFP8 else "float8_e4m3fn").numpy
    else:
        codes = (matrix if device is None else matrix.to(device)).repeat_interleave(form.block, -1)
        kind = None if form is BlockScalingFormat.MXFP8 else _torch_float8()
    factors = _factors(codes, kind, form, output_dtype)
    return factors if axis == -1 else factors.swapaxes(-1, -2)


def _factors(codes: Any, kind: Any, form: BlockScalingFormat, output_dtype: Any) -> Any:
    """Return scales from their bytes, in the type that was asked for."""
    wanted = _output_name(output_dtype, codes) or form.scale_dtype
    if wanted == form.scale_dtype:
        return codes if form is BlockScalingFormat.MXFP8 else codes.view(kind)
    if wanted not in _WIDTHS:
        raise InvalidOperandError(
            f"output_dtype: got {output_dtype!r}, expected 'smallest', {form.scale_dtype}, {', '.join(_WIDTHS)}"
        )
    if form is BlockScalingFormat.NVFP4:
        return _cast(codes.view(kind), wanted)  # every type has room for these
    if kind is not None:
        return _as_asked(_cast(codes.view(kind), "float64"), output_dtype)
    return _as_asked((codes.double() - _BIAS).exp2().masked_fill(codes == _NAN, float("nan")), output_dtype)


def _output_name(output_dtype: Any, array: Any) -> str:
    """Return the name of a result's type, empty for the smallest; with torch it is torch's own."""
    if isinstance(output_dtype, str) and output_dtype == "smallest":
        return ""
    if not isinstance(array, np.ndarray) and type(output_dtype).__module__ != "torch":
        raise InvalidOperandError(f"output_dtype: got {output_dtype!r}, expected 'smallest' or a torch.dtype")
    return _text(output_dtype)


def _text(dtype: Any) -> str:
    """Return a dtype's name, of those too that no product takes."""
    if type(dtype).__module__ == "torch":
        return str(dtype).removeprefix("torch.")
    try:
        return np.dtype(dtype).name
    except TypeError:
        return str(dtype)


def _torch_float8() -> Any:
    return sys.modules["torch"].float8_e4m3fn


def _check_scales(name: str, scales: Any, form: BlockScalingFormat) -> None:
    """Refuse scales of another type than the format's."""
    _arrays.package_of(scales, name)
    known = {form.scale_dtype, "uint8"} | ({"float8_e8m0fnu"} if form is BlockScalingFormat.MXFP8 else set())
    if _text(scales.dtype) not in known:
        raise InvalidProblemError(f"{name} is {scales.dtype}; the scales of {form.name} are {', '.join(sorted(known))}")


@default_arithmetic
def apply_mxfp8_scale(x: Any, scales_1d: Any, output_dtype: Any = "smallest") -> Any:
    """Return an MXFP8 operand times its scales; ``output_dtype`` as for :func:`expand_block_scale`."""
    shape_of(x, None)
    if isinstance(x, np.ndarray):
        wide, kind = x.astype(np.float64), np.dtype(np.float64)
    else:
        wide = x.double()
        kind = wide.dtype
    return _as_asked(wide * expand_block_scale(scales_1d, x, BlockScalingFormat.MXFP8, output_dtype=kind), output_dtype)


def _as_asked(wide: Any, output_dtype: Any) -> Any:
    """Return float64 numbers in a type whose normal numbers reach as far; nvmath-python has NaN and inf in float64."""
    wanted = _output_name(output_dtype, wide)
    if wanted and wanted not in _WIDTHS:
        raise InvalidOperandError(f"output_dtype: got {output_dtype!r}, expected 'smallest', {', '.join(_WIDTHS)}")
    if wanted == "float64":
        return wide
    sizes = abs(wide[wide != 0])
    low, high = (float(sizes.min()), float(sizes.max())) if len(sizes) else (1.0, 1.0)
    ranges = {name: np.finfo(name) for name in _WIDTHS[:2]}
    fitting = [name for name, own in ranges.items() if float(own.tiny) <= low and high <= float(own.max)]
    name = fitting[0] if fitting else "float64"
    if wanted and _WIDTHS.index(wanted) < _WIDTHS.index(name):
        raise InvalidProblemError(f"output_dtype: {wanted} does not hold these numbers; {name} does")
    return _cast(wide, wanted or name)


_WIDTHS = ("float16", "float32", "float64")


def _cast(array: Any, name: str) -> Any:
    if isinstance(array, np.ndarray):
        with np.errstate(over="ignore", under="ignore"):
            return array.astype(name)
    return {"float16": array.half, "float32": array.float, "float64": array.double}[name]()


@default_arithmetic
def quantize_to_fp4(x: Any, axis: int) -> Any:
    """Return an array in ``float4_e2m1fn``, with each number rounded to the nearest value of the format.

    Parameters
    ----------
    x
        float32, of one axis or more: torch, or numpy.
    axis
        -1 or -2: torch packs two neighbours along it to a byte, so that its extent, which must be even, is halved; with
        -2 the result lies in columns. numpy's elements have a byte each.

    Returns
    -------
    array
        Of x's framework. Ties go to the even code; beyond 6 numbers saturate, and NaN, which the format lacks, is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy.compat.nvmath.linalg.advanced.helpers.matmul import quantize_to_fp4, unpack_fp4
    >>> unpack_fp4(quantize_to_fp4(np.array([0.2, 0.3, -2.5, 9.0], np.float32), axis=-1), axis=-1).tolist()
    [0.0, 0.5, -2.0, 6.0]
    """
    package = _arrays.package_of(x, "x")
    if not str(x.dtype).endswith("float32"):
        raise InvalidProblemError(f"x: got {x.dtype}, expected float32")
    _check_axis(axis, x, "x")
    if package == "torch" and x.shape[axis] % 2:
        raise InvalidProblemError(f"x: shape {tuple(x.shape)}; two neighbours along axis {axis} share a byte: pad it")
    return _along(axis, x, lambda lines: narrowed(lines, "float4_e2m1fn"))


@default_arithmetic
def unpack_fp4(fp4_tensor: Any, axis: int) -> Any:
    """Return the numbers of an array in ``float4_e2m1fn`` in float32; torch's are unpacked along an axis, -1 or -2."""
    _arrays.package_of(fp4_tensor, "fp4_tensor")
    if _arrays.dtype_name(fp4_tensor, "fp4_tensor") != "float4_e2m1fn":
        raise InvalidProblemError(f"fp4_tensor: got {fp4_tensor.dtype}, expected float4_e2m1fn")
    _check_axis(axis, fp4_tensor, "fp4_tensor")
    return _along(axis, fp4_tensor, wide_of)


def _check_axis(axis: Any, array: Any, name: str) -> None:
    if axis not in (-1, -2) or len(array.shape) < -axis:
        raise InvalidProblemError(f"axis: got {axis!r}, expected -1 or -2, and {name} has shape {tuple(array.shape)}")


def _along(axis: int, array: Any, convert: Callable[[Any], Any]) -> Any:
    """Return an array converted with an axis as its last, and back in its place."""
    return convert(array) if axis == -1 else convert(_dense(array.swapaxes(-1, -2))).swapaxes(-1, -2)


def _dense(array: Any) -> Any:
    return np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array.contiguous()


def _format(value: Any) -> BlockScalingFormat:
    try:
        return BlockScalingFormat(value)
    except ValueError:
        raise InvalidProblemError(
            f"block_scaling_format: got {value!r}, expected a BlockScalingFormat, 'NVFP4' or 'MXFP8'"
        ) from None
