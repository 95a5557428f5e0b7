# SPDX-License-Identifier: MIT
# Types of the executions of a product with an epilogue of the user's; execution.pyx has the documentation.
from typing import Any

from typing_extensions import disjoint_base

from rocpy._memory_record import MemoryRecord
from rocpy.blaslt.composed.plan import ComposedProduct
from rocpy.blaslt.custom.binding import Bound
from rocpy.blaslt.custom.strategies import Strategy
from rocpy.blaslt.model.planned_product import PlannedProduct

__all__ = ["CustomExecution"]

@disjoint_base
class CustomExecution(PlannedProduct):
    operands: dict[str, Any]
    inputs: dict[str, Any]
    settings: dict[str, Any]
    right: Any
    alpha: Any
    beta: Any
    options: Any
    stream: Any
    bound: Bound
    single: bool
    released: bool
    _like: Any
    _plain: ComposedProduct
    _records: tuple[MemoryRecord, ...]
    _strategies: dict[str, Strategy]
    _positions: dict[int, tuple[str, int]]
    def enter(self) -> None: ...
    def leave(self) -> None: ...
    def check_usable(self) -> None: ...
    def position_of(self, rank: int) -> tuple[str, int]: ...
