# SPDX-License-Identifier: MIT
"""``nvmath.linalg``: the plain matrix product, and ``advanced`` with epilogs."""

from rocpy.compat.nvmath._configuration import matrix_qualifiers_dtype
from rocpy.compat.nvmath._enums import ComputeType
from rocpy.compat.nvmath._errors import InvalidMatmulState
from rocpy.compat.nvmath._generic import ExecutionCPU, ExecutionCUDA, Matmul, MatmulOptions, matmul
from rocpy.compat.nvmath.linalg import advanced

__all__ = [
    "ComputeType",
    "ExecutionCPU",
    "ExecutionCUDA",
    "InvalidMatmulState",
    "Matmul",
    "MatmulOptions",
    "advanced",
    "matmul",
    "matrix_qualifiers_dtype",
]
