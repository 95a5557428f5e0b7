# SPDX-License-Identifier: MIT
"""``nvmath.linalg.advanced.helpers.matmul``: scales by blocks, and the tiles that they lie in."""

from rocpy.compat.nvmath._block_scaling import (
    BlockScalingFormat,
    apply_mxfp8_scale,
    create_mxfp8_scale,
    expand_block_scale,
    get_block_scale_offset,
    invert_mxfp8_scale,
    to_block_scale,
)

__all__ = [
    "BlockScalingFormat",
    "apply_mxfp8_scale",
    "create_mxfp8_scale",
    "expand_block_scale",
    "get_block_scale_offset",
    "invert_mxfp8_scale",
    "to_block_scale",
]
