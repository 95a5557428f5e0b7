# SPDX-License-Identifier: MIT
"""Results of 8 and 4 bits with scales by blocks: a wide result is quantized along its contiguous axis."""

from __future__ import annotations

import math
from typing import Any

import rocpy
from rocpy._fp_environment import default_arithmetic
from rocpy.blaslt.arrays.array_libraries import library_of
from rocpy.blaslt.arrays.quantization import narrowed, quantize_mx_upward, widened
from rocpy.compat.nvmath._block_scaling import BlockScalingFormat, as_bytes, format_of, to_block_scale

# The largest number of float4_e2m1fn, and the smallest positive of float8_e4m3fn.
_LARGEST, _LEAST = 6.0, 2.0**-9


@default_arithmetic
def quantized(result: Any, dtype: str, column_major: bool) -> tuple[Any, Any]:
    """Return a result in a narrow type, with blocks along its contiguous axis, and its scales in tiles."""
    axis = -2 if column_major else -1
    form = format_of(dtype)
    lines = result.swapaxes(-1, -2) if column_major else result
    shape = tuple(lines.shape)
    if form is BlockScalingFormat.MXFP8:
        values, scales = quantize_mx_upward(lines, dtype)
        scales = as_bytes(scales)
    else:
        values, scales = _nvfp4(lines)
    tiles = to_block_scale(scales, shape, form, axis=-1)
    return (values if axis == -1 else values.swapaxes(-1, -2)), tiles


def _nvfp4(lines: Any) -> tuple[Any, Any]:
    """Return numbers in float4_e2m1fn, and a factor of float8_e4m3fn for each 16: the largest magnitude over 6."""
    library = library_of(lines, "result")
    wide = library.cast(lines, "float64")
    blocks = wide.reshape(*wide.shape[:-1], wide.shape[-1] // 16, 16)
    largest = library.largest(blocks, -1, keep=False)
    finite = library.isfinite(largest)
    wanted = library.where(finite & (largest > 0), library.clip(largest / _LARGEST, _LEAST, math.inf), 1.0)
    scales = narrowed(wanted, "float8_e4m3fn")
    factors = library.cast(widened(scales), "float64")
    scaled = (library.where(finite[..., None], blocks, 0.0) / factors[..., None]).reshape(wide.shape)
    if not bool(finite.all()):
        scales = library.narrow(library.where(finite, factors, math.nan), rocpy.dtypes.lookup("float8_e4m3fn"))
    return narrowed(scaled, "float4_e2m1fn"), scales
