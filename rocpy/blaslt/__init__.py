# SPDX-License-Identifier: MIT
"""Matrix products with fused epilogues over hipBLASLt."""

from rocpy.blaslt._group_pieces import GroupedExplanation
from rocpy.blaslt._options import Options, options
from rocpy.blaslt._policy import Explanation, explain
from rocpy.blaslt._support import Support, supported
from rocpy.blaslt.algorithms import Algorithm
from rocpy.blaslt.call import matmul as matmul
from rocpy.blaslt.epilogues import EPILOGUES, Epilogue
from rocpy.blaslt.grouped import grouped_matmul as grouped_matmul
from rocpy.blaslt.problem import OperandInfo, Problem
from rocpy.blaslt.quantization import dequantize, dequantize_mx, quantize, quantize_mx
from rocpy.blaslt.stateful import Matmul
from rocpy.blaslt.weight import Weight

__all__ = [
    "EPILOGUES",
    "Algorithm",
    "Epilogue",
    "Explanation",
    "GroupedExplanation",
    "Matmul",
    "OperandInfo",
    "Options",
    "Problem",
    "Support",
    "Weight",
    "dequantize",
    "dequantize_mx",
    "explain",
    "grouped_matmul",
    "matmul",
    "options",
    "quantize",
    "quantize_mx",
    "supported",
]
