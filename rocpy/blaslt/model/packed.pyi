# SPDX-License-Identifier: MIT
# Types of packed operands; packed.pyx has the documentation.
from typing import Any

from typing_extensions import disjoint_base

from rocpy.blaslt.model.problem import OperandInfo

@disjoint_base
class Packed:
    memory: Any
    dtype: str
    right: bool
    def __init__(self, memory: Any, dtype: str, right: bool) -> None: ...
    @property
    def info(self) -> OperandInfo: ...
