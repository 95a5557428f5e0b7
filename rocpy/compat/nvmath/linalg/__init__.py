# SPDX-License-Identifier: MIT
"""``nvmath.linalg``: the plain matrix product, and ``advanced`` with epilogs."""

from rocpy.compat.nvmath._enums import ComputeType, DiagType, FillMode, SideMode
from rocpy.compat.nvmath._errors import InvalidMatmulState
from rocpy.compat.nvmath._generic import ExecutionCPU, ExecutionCUDA, Matmul, MatmulOptions, matmul
from rocpy.compat.nvmath._qualifiers import (
    DiagonalMatrixQualifier,
    GeneralMatrixQualifier,
    HermitianMatrixQualifier,
    MatrixQualifier,
    SymmetricMatrixQualifier,
    TriangularMatrixQualifier,
    matrix_qualifiers_dtype,
)
from rocpy.compat.nvmath._solver import DirectSolver, DirectSolverOptions, InvalidDirectSolverState, direct_solver
from rocpy.compat.nvmath.linalg import advanced

__all__ = [
    "ComputeType",
    "DiagType",
    "DiagonalMatrixQualifier",
    "DirectSolver",
    "DirectSolverOptions",
    "ExecutionCPU",
    "ExecutionCUDA",
    "FillMode",
    "GeneralMatrixQualifier",
    "HermitianMatrixQualifier",
    "InvalidDirectSolverState",
    "InvalidMatmulState",
    "Matmul",
    "MatmulOptions",
    "MatrixQualifier",
    "SideMode",
    "SymmetricMatrixQualifier",
    "TriangularMatrixQualifier",
    "advanced",
    "direct_solver",
    "matmul",
    "matrix_qualifiers_dtype",
]
