# SPDX-License-Identifier: MIT
# Types of the native product; plan.pyx has the documentation.
from collections.abc import Callable, Mapping
from typing import Any

from typing_extensions import disjoint_base

from rocpy._memory_record import MemoryRecord
from rocpy.blaslt.model.call_arguments import AnyEpilogue, AnyOptions
from rocpy.blaslt.model.planned_product import PlannedProduct
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.operands.weight import Weight
from rocpy.blaslt.selection.recipes import Recipe
from rocpy.typing import ArrayLike, ComputeName, ResultDType, StreamLike

@disjoint_base
class NativeProduct(PlannedProduct):
    def __init__(
        self,
        a: ArrayLike,
        b: ArrayLike | Weight,
        /,
        c: ArrayLike | None = None,
        *,
        alpha: complex = 1.0,
        beta: complex | None = None,
        epilogue: AnyEpilogue | None = None,
        bias: ArrayLike | None = None,
        aux: ArrayLike | dict[str, Any] | None = None,
        clamp: tuple[float, float] | None = None,
        epilogue_inputs: Mapping[str, Any] | None = None,
        scale_a: Any = None,
        scale_b: Any = None,
        scale_c: Any = None,
        scale_d: Any = None,
        amax: bool = False,
        dtype: ResultDType | None = None,
        compute: ComputeName | None = None,
        options: AnyOptions | None = None,
        stream: StreamLike | None = None,
    ) -> None: ...
    @property
    def clamp(self) -> tuple[float, float] | None: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def compute(self) -> str | None: ...
    @property
    def records(self) -> tuple[MemoryRecord, ...]: ...
    def read_operands(self) -> None: ...
    def take(
        self,
        changes: dict[str, Any],
        alpha: Any,
        beta: Any,
        scales: dict[str, Any],
        accept: Callable[[Problem], None] | None,
    ) -> None: ...
    def _compose(self, recipe: Recipe) -> Any: ...
    def _bias_gradient_of_empty(self, result: Any) -> Any: ...
