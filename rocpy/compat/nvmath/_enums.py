# SPDX-License-Identifier: MIT
"""The enumerations of nvmath-python's matmul; members have the numbers of cuBLASLt, since programs store them."""

from __future__ import annotations

import enum


class MatmulEpilog(enum.IntEnum):
    """The epilog of a product. The numbers are also hipBLASLt's."""

    DEFAULT = 1
    RELU = 2
    RELU_AUX = 130
    BIAS = 4
    RELU_BIAS = 6
    RELU_AUX_BIAS = 134
    DRELU = 136
    DRELU_BGRAD = 152
    GELU = 32
    GELU_AUX = 160
    GELU_BIAS = 36
    GELU_AUX_BIAS = 164
    DGELU = 192
    DGELU_BGRAD = 208
    BGRADA = 256
    BGRADB = 512


class ComputeType(enum.IntEnum):
    """The type of the accumulation."""

    COMPUTE_16F = 64
    COMPUTE_16F_PEDANTIC = 65
    COMPUTE_32F = 68
    COMPUTE_32F_PEDANTIC = 69
    COMPUTE_32F_FAST_16F = 74
    COMPUTE_32F_FAST_16BF = 75
    COMPUTE_32F_FAST_TF32 = 77
    COMPUTE_32F_EMULATED_16BFX9 = 78
    COMPUTE_64F = 70
    COMPUTE_64F_PEDANTIC = 71
    COMPUTE_64F_EMULATED_FIXEDPOINT = 79
    COMPUTE_32I = 72
    COMPUTE_32I_PEDANTIC = 73


class CudaDataType(enum.IntEnum):
    """Element types; the numbers are those of ``hipDataType``."""

    CUDA_R_32F = 0
    CUDA_R_64F = 1
    CUDA_R_16F = 2
    CUDA_R_8I = 3
    CUDA_C_32F = 4
    CUDA_C_64F = 5
    CUDA_C_16F = 6
    CUDA_C_8I = 7
    CUDA_R_8U = 8
    CUDA_C_8U = 9
    CUDA_R_32I = 10
    CUDA_C_32I = 11
    CUDA_R_32U = 12
    CUDA_C_32U = 13
    CUDA_R_16BF = 14
    CUDA_C_16BF = 15
    CUDA_R_4I = 16
    CUDA_C_4I = 17
    CUDA_R_4U = 18
    CUDA_C_4U = 19
    CUDA_R_16I = 20
    CUDA_C_16I = 21
    CUDA_R_16U = 22
    CUDA_C_16U = 23
    CUDA_R_64I = 24
    CUDA_C_64I = 25
    CUDA_R_64U = 26
    CUDA_C_64U = 27
    CUDA_R_8F_E4M3 = 28
    CUDA_R_8F_E5M2 = 29
    CUDA_R_4F_E2M1 = 33


class MatmulReductionScheme(enum.IntFlag):
    """How the parts of a split K are added up."""

    NONE = 0
    INPLACE = 1
    COMPUTE_TYPE = 2
    OUTPUT_TYPE = 4
    MASK = 7


class MatmulNumericalImplFlags(enum.IntFlag):
    """Which arithmetic an algorithm may use. hipBLASLt has no such preference."""

    OP_TYPE_FMA = 1 << 0
    OP_TYPE_TENSOR_HMMA = 1 << 1
    OP_TYPE_TENSOR_IMMA = 1 << 2
    OP_TYPE_TENSOR_DMMA = 1 << 3
    OP_TYPE_TENSOR_MASK = 0xFE
    OP_TYPE_MASK = 0xFF
    ACCUMULATOR_16F = 1 << 8
    ACCUMULATOR_32F = 1 << 9
    ACCUMULATOR_64F = 1 << 10
    ACCUMULATOR_32I = 1 << 11
    ACCUMULATOR_TYPE_MASK = 0xFF << 8
    INPUT_TYPE_16F = 1 << 16
    INPUT_TYPE_16BF = 1 << 17
    INPUT_TYPE_TF32 = 1 << 18
    INPUT_TYPE_32F = 1 << 19
    INPUT_TYPE_64F = 1 << 20
    INPUT_TYPE_8I = 1 << 21
    INPUT_TYPE_8F_E4M3 = 1 << 22
    INPUT_TYPE_8F_E5M2 = 1 << 23
    INPUT_TYPE_MASK = 0xFF << 16
    GAUSSIAN = 1 << 32
    ALL = (1 << 64) - 1


class FillMode(enum.IntEnum):
    """The part of a structured matrix that is read."""

    LOWER = 0
    UPPER = 1
    FULL = 2


class DiagType(enum.IntEnum):
    """Whether the diagonal of a triangular matrix is read, or consists of ones."""

    NON_UNIT = 0
    UNIT = 1


class SideMode(enum.IntEnum):
    """The side that a structured matrix stands on."""

    LEFT = 0
    RIGHT = 1


class MatmulInnerShape(enum.IntEnum):
    """The instruction of a kernel. hipBLASLt does not report it."""

    UNDEFINED = 0
    MMA884 = 1
    MMA1684 = 2
    MMA1688 = 3
    MMA16816 = 4


class LibraryComputeType(enum.IntEnum):
    """``nvmath.ComputeType``: the numbers of CUDA's tensor libraries, other than those of :class:`ComputeType`."""

    COMPUTE_DEFAULT = 0
    COMPUTE_16F = 1
    COMPUTE_32F = 4
    COMPUTE_64F = 16
    COMPUTE_8U = 64
    COMPUTE_32U = 128
    COMPUTE_8I = 256
    COMPUTE_32I = 512
    COMPUTE_16BF = 1024
    COMPUTE_TF32 = 4096


class LibraryPropertyType(enum.IntEnum):
    """The parts of a library's version."""

    MAJOR_VERSION = 0
    MINOR_VERSION = 1
    PATCH_LEVEL = 2
