# SPDX-License-Identifier: MIT
"""Operands with scales by blocks of K: in the order that the library reads, elements of four and six bits packed."""

from __future__ import annotations

import functools
import math
import sys
from typing import Any

import numpy as np

from rocpy import dtypes
from rocpy._fp_environment import default_arithmetic
from rocpy._messages.modules import is_tensor
from rocpy._operand import describe
from rocpy.blaslt.arrays.array_libraries import plain
from rocpy.blaslt.arrays.copies import contiguous
from rocpy.blaslt.arrays.framework import values
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.packed import Packed
from rocpy.blaslt.model.product_types import BLOCK, are_of_lines, check_blocks, scale_kind
from rocpy.blaslt.model.refusals import copy_refused, readable_form
from rocpy.blaslt.model.scale_arguments import ScaleArguments
from rocpy.blaslt.model.shapes import dense_strides, extents_of
from rocpy.blaslt.model.weight_operand import is_weight
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError
from rocpy.runtime.handles.call_stream import await_operand
from rocpy.runtime.memory import Buffer


def are_blocks(scale: Any) -> bool:
    """Whether a scale is an array of exponents, one for each block."""
    dtype = getattr(scale, "dtype", None)
    if dtype is None:
        return False
    try:
        return _is_exponent(dtype)
    except TypeError:  # not one that can be looked up
        return False


@functools.lru_cache(64)
def _is_exponent(dtype: Any) -> bool:
    try:
        return str(dtype) in ("uint8", "torch.uint8") or dtypes.lookup(dtype).name == "float8_e8m0fnu"
    except InvalidOperandError:
        return False


def have_blocks(scales: ScaleArguments | None) -> bool:
    """Whether a or b has a scale for each block."""
    return scales is not None and (are_blocks(scales.a) or are_blocks(scales.b))


def prepare(a: Any, b: Any, scales: ScaleArguments | None, options: Options) -> tuple[Any, Any]:
    """Return a and b as the library reads them where their scales are by blocks: along K, narrow elements packed."""
    if not have_blocks(scales):
        return a, b
    a, b = along_k(a, "a", options), along_k(b, "b", options)
    return a, _repacked(b, _extent_of_k(a), options)


def prepare_changes(changes: dict[str, Any], scales: ScaleArguments | None, options: Options, k: int) -> dict[str, Any]:
    """Return new operands of a planned product, whose sums have ``k`` terms, as :func:`prepare` does."""
    if not have_blocks(scales):
        return changes
    prepared = {name: along_k(value, name, options) if name in ("a", "b") else value for name, value in changes.items()}
    if "b" in prepared:
        prepared["b"] = _repacked(prepared["b"], k, options)
    return prepared


def along_k(array: Any, name: str, options: Options) -> Any:
    """Return an operand with neighbours along K adjacent in memory; of four and six bits packed."""
    if is_weight(array):
        return array.by_blocks() if are_blocks(array.scale) else along_k(array.matrix(), name, options)
    if isinstance(array, Packed) or not hasattr(array, "dtype"):
        return array
    array, right = plain(array, name), name == "b"
    try:
        row = _row_of(array.dtype)
    except (InvalidOperandError, TypeError):
        return array  # refused by name when it is parsed
    if row.bits == 8:
        return _transposed(array, name, options) if right else _lying(array, name, options)
    if row.bits > 8:
        return array
    if is_tensor(array):
        bytes_ = array.view(sys.modules["torch"].uint8)
        return Packed(
            _lying(bytes_.swapaxes(-1, -2) if right and array.ndim > 1 else bytes_, name, options), row.name, right
        )
    if not isinstance(array, np.ndarray):
        raise UnsupportedError(
            f"{name}: {row.name} of {type(array).__module__}.{type(array).__name__}; pass a numpy array with "
            "an ml_dtypes dtype, or torch's float4_e2m1fn_x2"
        )
    if options.copies == "error" and array.size:
        raise packing_refused(name, row.name)
    values = array.view(np.uint8)
    values = np.swapaxes(values, -1, -2) if right and array.ndim > 1 else values
    return Packed(pack(values, row.bits, name), row.name, right)


@functools.lru_cache(64)
def _row_of(dtype: Any) -> dtypes.DType:
    return dtypes.lookup(dtype)


def packing_refused(name: str, dtype: str) -> UnsupportedError:
    """Return the error for elements that must be packed, where the options forbid copies."""
    return UnsupportedError(
        f"{name}: {dtype} that is not packed along K, as the library reads it, and options(copies='error') forbids the "
        "copy; pass a rocpy.Weight as b, or torch's float4_e2m1fn_x2 packed along K"
    )


def of_weight(weight: Any, source: Any) -> tuple[Any, Any]:
    """Return the source of a Weight with scales by blocks as the library reads it, and its scales, dense along K."""
    if len(source.shape) != 2:
        raise InvalidProblemError(f"w: got shape {tuple(source.shape)}, expected two axes")
    if len(weight.scale.shape) != 2:
        raise InvalidProblemError(f"scale: got shape {tuple(weight.scale.shape)}, expected two axes, as w has")
    transposed = weight.layout == "nk"
    scale = weight.scale.swapaxes(-1, -2) if transposed else weight.scale
    b = _repacked(
        along_k(source.swapaxes(-1, -2) if transposed else source, "b", Options()), scale.shape[0] * BLOCK, Options()
    )
    return b, contiguous(scale.swapaxes(-1, -2)).swapaxes(-1, -2)


def pack(codes: np.ndarray[Any, Any], bits: int, name: str = "x") -> np.ndarray[Any, Any]:
    """Return codes of four or six bits, one to a byte, packed along the last axis, the first in the lowest bits."""
    extent = codes.shape[-1]
    check_blocks(extent, name)
    await_operand(codes)
    if bits == 4:
        codes = codes & 15
        return np.ascontiguousarray(codes[..., 0::2] | codes[..., 1::2] << 4)
    groups = (codes & 63).reshape(*codes.shape[:-1], extent // 4, 4).astype(np.uint32)
    words = groups[..., 0] | groups[..., 1] << 6 | groups[..., 2] << 12 | groups[..., 3] << 18
    packed = np.stack([words & 255, words >> 8 & 255, words >> 16], axis=-1).astype(np.uint8)
    return packed.reshape(*codes.shape[:-1], extent // 4 * 3)


def _extent_of_k(a: Any) -> int:
    """Return how many terms the sums of a left operand have."""
    if type(a) is Packed:
        return int(a.memory.shape[-1] * 8 // dtypes.lookup(a.dtype).bits)
    # What is no array is refused where it is read.
    shape = tuple(getattr(a, "shape", ()))
    return int(shape[-1]) if shape else 0


def _repacked(b: Any, k: int, options: Options) -> Any:
    """Return torch's right operand of four bits packed along K where it is packed along N, told by the extent of K."""
    if type(b) is not Packed or isinstance(b.memory, np.ndarray | Buffer) or b.memory.ndim < 2:
        return b
    if b.memory.shape[-1] != k or k == 0:
        return b
    if options.copies == "error":
        raise packing_refused("b", b.dtype)
    torch = sys.modules["torch"]
    await_operand(b.memory)
    both = b.memory  # (..., N / 2, K): neighbours along N share a byte
    codes = torch.stack([both & 15, both >> 4], dim=-2).flatten(-3, -2)
    return Packed((codes[..., 0::2] | codes[..., 1::2] << 4).contiguous(), b.dtype, True)


def lies_along_k(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether elements whose last axis is K are read as they lie, without a copy; an operand without elements is."""
    if len(shape) == 2 and strides[1] == 1 and strides[0] >= shape[1] > 1:
        return True
    if 0 in shape:
        return True
    usual = all(x >= 0 for x in strides) and (not strides or strides[-1] == 1)
    return usual and (len(shape) < 2 or shape[-2] <= 1 or strides[-2] >= shape[-1]) and shape[-1:] != (1,)


def _lying(array: Any, name: str, options: Options) -> Any:
    """Return an array whose last axis is adjacent in memory and whose others do not run backwards."""
    steps, shape = _steps(array), tuple(array.shape)
    if lies_along_k(shape, steps):
        return array
    if options.copies == "error":
        layout = f"shape {shape}, strides {steps}, {array.dtype}"
        raise copy_refused(name, layout, readable_form(name, blocks=True))
    return contiguous(array)


def _transposed(array: Any, name: str, options: Options) -> Any:
    if len(array.shape) < 2:
        return _lying(array, name, options)
    if isinstance(array, Buffer) or not hasattr(array, "swapaxes"):
        raise UnsupportedError(
            f"b: a {type(array).__name__} with block scales must be contiguous along K; pass a numpy or torch array"
        )
    shape, steps = tuple(array.shape), _steps(array)
    if lies_along_k((*shape[:-2], shape[-1], shape[-2]), (*steps[:-2], steps[-1], steps[-2])):
        return array
    return _lying(array.swapaxes(-1, -2), name, options).swapaxes(-1, -2)


def _steps(array: Any) -> tuple[int, ...]:
    if isinstance(array, Buffer):
        return dense_strides(tuple(array.shape))
    if callable(getattr(array, "stride", None)):
        return tuple(array.stride())
    if getattr(array, "strides", None) is not None:
        return tuple(step // array.dtype.itemsize for step in array.strides)
    return dense_strides(tuple(array.shape))


def kinds(scales: ScaleArguments | None, a: tuple[int, ...], b: tuple[int, ...]) -> dict[str, Any]:
    """Return what ``Problem.make`` takes of the scales of a product whose operands have these shapes."""
    result: dict[str, Any] = {}
    no_batch: tuple[int, ...] = ()
    single = {"scale_a": False, "scale_b": False, "scale_c": False, "scale_d": False}
    if scales is None:
        return result
    m, n, k, batch_shape, _ = extents_of(a, b)
    for name, value in scales.items():
        if value is None:
            continue
        kind, batch = "scalar", no_batch
        if not isinstance(value, int | float | np.generic):
            view = describe(value, name)
            shape = tuple(view["shape"])
            kind, batch = scale_kind(name, shape, view["dtype"], (m, n, k), batch_shape)
            single[name] = kind == "scalar" and shape != ()
        result[name] = kind if name in ("scale_a", "scale_b") else True
        if batch:
            result[name + "_batch"] = batch
    if scales.amax:
        result["amax"] = True
    of_factors = {result.get("scale_a"), result.get("scale_b")}
    single_a, single_b = single["scale_a"], single["scale_b"]
    lines = (single_a or single_b) and are_of_lines(m, n, single_a, single_b)
    if of_factors == {"scalar", "vector"} or (of_factors == {"scalar"} and lines):
        result["scale_a"] = result["scale_b"] = "vector"
    return result


def dense(scale: Any, shape: tuple[int, ...], strides: tuple[int, ...], transposed: bool) -> Any:
    """Return scales dense in memory, with the last two axes exchanged if ``transposed``; ``None`` where they are."""
    if transposed and len(shape) > 1:
        shape = (*shape[:-2], shape[-1], shape[-2])
        strides = (*strides[:-2], strides[-1], strides[-2])
        if isinstance(scale, Buffer):
            buffer = Buffer(shape, scale.dtype, device=scale.device_index)
            buffer.copy_from(np.ascontiguousarray(scale.to_numpy().swapaxes(-1, -2)))
            return buffer
        scale = scale.swapaxes(-1, -2) if hasattr(scale, "swapaxes") else scale
    usual = dense_strides(shape)
    if all(x == y or extent <= 1 for x, y, extent in zip(strides, usual, shape, strict=True)):
        return None
    return contiguous(scale)


def unpack(memory: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Return the codes that :func:`pack` packed, one to a byte; of torch's arrays too."""
    extent = memory.shape[-1] * 8 // bits
    shape = (*memory.shape[:-1], extent)
    if bits == 4:
        return _stacked(memory, [memory & 15, memory >> 4]).reshape(shape)
    triples = memory.reshape(*memory.shape[:-1], extent // 4, 3)
    first, second, third = triples[..., 0], triples[..., 1], triples[..., 2]
    codes = [first & 63, (first >> 6) | (second & 15) << 2, (second >> 4) | (third & 3) << 4, third >> 2]
    return _stacked(memory, codes).reshape(shape)


def _stacked(like: Any, parts: list[Any]) -> Any:
    if isinstance(like, np.ndarray):
        return np.stack(parts, axis=-1)
    return sys.modules["torch"].stack(parts, dim=-1)


@functools.cache
@default_arithmetic
def _values_of(dtype: str) -> np.ndarray[Any, Any]:
    """Return the numbers that the codes of a type stand for, in float32."""
    row = dtypes.lookup(dtype)
    codes = np.arange(1 << row.bits, dtype=np.uint8)
    numbers: np.ndarray[Any, Any] = codes.view(row.numpy).astype(np.float32)
    return numbers


def _looked_up(codes: Any, dtype: str) -> Any:
    """Return the numbers of bytes that are codes of a type, by the array library that the bytes belong to."""
    table = _values_of(dtype)
    if isinstance(codes, np.ndarray):
        return table[codes]
    torch = sys.modules["torch"]
    return torch.from_numpy(table).to(codes.device)[codes.long()]


# Exponents of the largest numbers of the types that have scales by blocks, and of float32.
_LARGEST = {"float8_e4m3fn": 8, "float8_e5m2": 15, "float6_e2m3fn": 2, "float6_e3m2fn": 4, "float4_e2m1fn": 2}
_LARGEST_FLOAT32 = 127


def balance(a: Any, b: Any, scales: ScaleArguments) -> tuple[int, int, int]:
    """Return exponents by which a and b are multiplied so that neither, times its scales, is beyond float32.

    The third one is that by which the product is multiplied then. All are 0 for scales below 2^112, whatever the types.
    """
    spare_a, spare_b = (_spare(operand, scale) for operand, scale in ((a, scales.a), (b, scales.b)))
    down_a, down_b = max(0, -spare_a), max(0, -spare_b)
    # The other operand takes up what it can, so that nothing small is lost.
    up_a, up_b = min(down_b, max(0, spare_a)), min(down_a, max(0, spare_b))
    return up_a - down_a, up_b - down_b, down_a + down_b - up_a - up_b


def _spare(operand: Any, scale: Any) -> int:
    """Return how much larger an operand's largest scale might be, as an exponent."""
    codes = _as_bytes(scale)
    codes = codes[codes != 255]
    most = int(codes.max()) - 127 if math.prod(codes.shape) else 0
    dtype = operand.dtype if type(operand) is Packed else dtypes.lookup(operand.dtype).name
    return _LARGEST_FLOAT32 - _LARGEST[dtype] - most


def dequantized(operand: Any, scale: Any, name: str, exponent: int = 0) -> Any:
    """Return an operand times its scales by blocks, in float32: an array of its framework, a Buffer's of numpy.

    It is multiplied by 2 to the ``exponent`` too.
    """
    right = name == "b"
    if type(operand) is Packed:
        memory = _as_bytes(operand.memory)
        bits = dtypes.lookup(operand.dtype).bits
        numbers = _looked_up(memory if bits == 8 else unpack(memory, bits), operand.dtype)
        numbers = numbers.swapaxes(-1, -2) if right and numbers.ndim > 1 else numbers
    else:
        numbers = _as_bytes(operand)
        numbers = _looked_up(numbers, dtypes.lookup(operand.dtype).name)
    factors = _looked_up(_as_bytes(scale), "float8_e8m0fnu")
    factors = factors * 2.0**exponent if exponent else factors
    if type(factors) is not type(numbers):
        factors = values(factors) if isinstance(numbers, np.ndarray) else sys.modules["torch"].from_numpy(factors)
    lone = numbers.ndim == 1
    if lone and factors.ndim > 2:
        raise UnsupportedError(
            f"scale_{name}: shape {tuple(factors.shape)} for an {name} of one axis: this product is composed from the "
            "framework's own operations, which need the batch axes on the operand too; broadcast it"
        )
    # Blocks of K apart from each other: (..., M, K / 32, 32), and of b (..., K / 32, 32, N).
    axis = -2 if right and not lone else -1
    shape = tuple(numbers.shape)
    position = len(shape) + axis
    cut = numbers.reshape(*shape[:position], shape[position] // BLOCK, BLOCK, *shape[position + 1 :])
    if lone:
        product = cut * factors.reshape(-1, 1)
    else:
        product = cut * (factors[..., :, None, :] if right else factors[..., None])
    wide = tuple(product.shape)
    return product.reshape(*wide[: len(wide) + axis - 1], shape[position], *shape[position + 1 :])


def _as_bytes(array: Any) -> Any:
    """Return the bytes of an array of 8-bit elements, as numpy's or torch's."""
    if is_tensor(array):
        return array.view(sys.modules["torch"].uint8)
    host = values(array)
    return host if host.dtype == np.uint8 else np.ascontiguousarray(host).view(np.uint8)
