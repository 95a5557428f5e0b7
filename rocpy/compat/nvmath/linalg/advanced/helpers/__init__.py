# SPDX-License-Identifier: MIT
"""``nvmath.linalg.advanced.helpers``: what goes with its products."""

from rocpy.compat.nvmath.linalg.advanced.helpers import matmul

__all__ = ["matmul"]
