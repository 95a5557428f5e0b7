# SPDX-License-Identifier: MIT
"""Matrix products with fused epilogues over hipBLASLt."""

import importlib
from typing import TYPE_CHECKING, Any

from rocpy.blaslt._explain import explain
from rocpy.blaslt._explanation import Explanation, GroupedExplanation
from rocpy.blaslt._options import Options, options
from rocpy.blaslt.algorithms import Algorithm
from rocpy.blaslt.call import matmul as matmul
from rocpy.blaslt.epilogues import EPILOGUES, Epilogue
from rocpy.blaslt.problem import OperandInfo, Problem
from rocpy.blaslt.stateful import Matmul
from rocpy.blaslt.weight import Weight

if TYPE_CHECKING:
    from rocpy.blaslt._support import Support, supported
    from rocpy.blaslt.grouped import grouped_matmul as grouped_matmul
    from rocpy.blaslt.quantization import dequantize, dequantize_mx, quantize, quantize_mx

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

# A plain product needs none of these: their modules are imported when they are first named.
_LATE = {
    "Support": "_support",
    "dequantize": "quantization",
    "dequantize_mx": "quantization",
    "grouped_matmul": "grouped",
    "quantize": "quantization",
    "quantize_mx": "quantization",
    "supported": "_support",
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module 'rocpy.blaslt' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(f"rocpy.blaslt.{_LATE[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
