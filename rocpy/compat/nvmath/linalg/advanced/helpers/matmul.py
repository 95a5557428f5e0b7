# SPDX-License-Identifier: MIT
"""``nvmath.linalg.advanced.helpers.matmul``: scales by blocks and the tiles that they lie in, and numbers of 4 bits."""

from rocpy.compat.nvmath._block_scaling import (
    BlockScalingFormat,
    apply_mxfp8_scale,
    create_mxfp8_scale,
    expand_block_scale,
    get_block_scale_offset,
    get_mxfp8_scale_offset,
    invert_mxfp8_scale,
    quantize_to_fp4,
    to_block_scale,
    unpack_fp4,
)

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
