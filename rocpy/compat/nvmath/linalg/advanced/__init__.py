# SPDX-License-Identifier: MIT
"""``nvmath.linalg.advanced``: the matrix product with epilogs."""

from rocpy.compat.nvmath._algorithm import Algorithm, AlgorithmCapabilities
from rocpy.compat.nvmath._configuration import (
    MatmulEpilogPreferences,
    MatmulOptions,
    MatmulPlanPreferences,
    MatmulQuantizationScales,
    matrix_qualifiers_dtype,
)
from rocpy.compat.nvmath._enums import ComputeType as MatmulComputeType
from rocpy.compat.nvmath._enums import MatmulEpilog, MatmulInnerShape, MatmulNumericalImplFlags, MatmulReductionScheme
from rocpy.compat.nvmath._errors import InvalidMatmulState
from rocpy.compat.nvmath._product import Matmul, matmul
from rocpy.compat.nvmath.linalg.advanced import helpers

__all__ = [
    "Algorithm",
    "AlgorithmCapabilities",
    "InvalidMatmulState",
    "Matmul",
    "MatmulComputeType",
    "MatmulEpilog",
    "MatmulEpilogPreferences",
    "MatmulInnerShape",
    "MatmulNumericalImplFlags",
    "MatmulOptions",
    "MatmulPlanPreferences",
    "MatmulQuantizationScales",
    "MatmulReductionScheme",
    "helpers",
    "matmul",
    "matrix_qualifiers_dtype",
]
