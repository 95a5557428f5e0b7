# SPDX-License-Identifier: MIT
"""Layers and products for torch that train: recorded by autograd, compiled, exported, vectorised."""

from rocpy._operand import set_torch_dispatcher
from rocpy.torch import _vmap
from rocpy.torch._compile import inductor_pass
from rocpy.torch._counters import Counters, counters
from rocpy.torch._dispatch import dispatch
from rocpy.torch._freeze import FreezeReport, freeze
from rocpy.torch._functions import linear, matmul
from rocpy.torch._modules import MLP, GatedMLP, Linear
from rocpy.torch._replace import replace_linear
from rocpy.torch._report import ReplaceReport

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

_vmap.register()
set_torch_dispatcher(dispatch)
