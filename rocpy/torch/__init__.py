# SPDX-License-Identifier: MIT
"""Layers and products for torch, with support for autograd, torch.compile, torch.export and torch.vmap."""

from rocpy._messages.keywords import suggest_keywords_in
from rocpy._operand import set_torch_dispatcher
from rocpy._signatures import public_names
from rocpy.torch import _required as _required
from rocpy.torch.compiler.backend import inductor_pass
from rocpy.torch.layers.functions import linear, matmul
from rocpy.torch.layers.modules import MLP, GatedMLP, Linear
from rocpy.torch.operators.counters import Counters, counters
from rocpy.torch.operators.dispatch import dispatch
from rocpy.torch.operators.vmap import register as _register_vmap
from rocpy.torch.replace.freeze import FreezeReport, freeze
from rocpy.torch.replace.replacement import replace_linear
from rocpy.torch.replace.report import ReplaceReport

__all__ = [
    "MLP",
    "Counters",
    "FreezeReport",
    "GatedMLP",
    "Linear",
    "ReplaceReport",
    "counters",
    "freeze",
    "inductor_pass",
    "linear",
    "matmul",
    "replace_linear",
]

__dir__ = public_names(globals())
# Not the functions: torch.compile would trace what stands for them.
suggest_keywords_in(globals(), ("MLP", "GatedMLP", "Linear"))
_register_vmap()
set_torch_dispatcher(dispatch)
