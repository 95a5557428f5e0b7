# SPDX-License-Identifier: MIT
"""Matrix products with fused epilogues over hipBLASLt."""

import importlib
from typing import TYPE_CHECKING

from rocpy._messages.keywords import suggest_keywords, suggest_keywords_in
from rocpy._messages.suggestions import missing_attribute
from rocpy._signatures import public_names
from rocpy.blaslt.front.function import matmul as matmul
from rocpy.blaslt.front.stateful import Matmul
from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.epilogues import EPILOGUES, Epilogue
from rocpy.blaslt.model.options import Options, options
from rocpy.blaslt.model.problem import OperandInfo, Problem
from rocpy.blaslt.operands.weight import Weight

if TYPE_CHECKING:
    from rocpy.blaslt._explain import explain
    from rocpy.blaslt._support import Support, supported
    from rocpy.blaslt.arrays.quantization import dequantize, dequantize_mx, quantize, quantize_mx
    from rocpy.blaslt.grouped.function import grouped_matmul as grouped_matmul
    from rocpy.blaslt.model.explanation import Explanation, GroupedExplanation

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

suggest_keywords_in(globals(), __all__)
__dir__ = public_names(globals())

# A plain product needs none of these: their modules are imported when they are first named.
_LATE = {
    "Explanation": "model.explanation",
    "GroupedExplanation": "model.explanation",
    "Support": "_support",
    "dequantize": "arrays.quantization",
    "dequantize_mx": "arrays.quantization",
    "explain": "_explain",
    "grouped_matmul": "grouped.function",
    "quantize": "arrays.quantization",
    "quantize_mx": "arrays.quantization",
    "supported": "_support",
}


if not TYPE_CHECKING:  # type checkers would believe that there is every name

    def __getattr__(name: str) -> object:
        if name not in _LATE:
            raise missing_attribute("rocpy.blaslt", name, __all__)
        module = importlib.import_module(f"rocpy.blaslt.{_LATE[name]}")
        exported = globals()[name] = suggest_keywords(getattr(module, name))
        return exported
