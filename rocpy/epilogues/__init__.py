# SPDX-License-Identifier: MIT
"""Custom epilogues: functions of the product and of named inputs, traced once into an expression."""

from rocpy._messages.keywords import suggest_keywords_in
from rocpy._signatures import public_names
from rocpy.epilogues._custom import CustomEpilogue, epilogue
from rocpy.epilogues._ready import (
    bias_residual_gelu,
    dropout,
    geglu,
    interleave,
    residual_add,
    scale_clamp_cast,
    softcap,
    swiglu,
)
from rocpy.epilogues.expressions.expression import Expression
from rocpy.epilogues.expressions.gradient import Gradient
from rocpy.epilogues.lowering.triton import FusedKernel, Tile, compile_kernel

__all__ = [
    "CustomEpilogue",
    "Expression",
    "FusedKernel",
    "Gradient",
    "Tile",
    "bias_residual_gelu",
    "compile_kernel",
    "dropout",
    "epilogue",
    "geglu",
    "interleave",
    "residual_add",
    "scale_clamp_cast",
    "softcap",
    "swiglu",
]

suggest_keywords_in(globals(), __all__)
__dir__ = public_names(globals())
