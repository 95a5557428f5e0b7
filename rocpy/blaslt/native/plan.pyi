# SPDX-License-Identifier: MIT
# Types of the native product; plan.pyx has the documentation.
from typing import Any, Unpack

from typing_extensions import disjoint_base

from rocpy.blaslt.model.call_arguments import AnyEpilogue, ProductArguments
from rocpy.blaslt.model.planned_product import PlannedProduct
from rocpy.blaslt.operands.weight import Weight
from rocpy.blaslt.selection.recipes import Recipe
from rocpy.typing import ArrayLike

@disjoint_base
class NativeProduct(PlannedProduct):
    def __init__(
        self,
        a: ArrayLike,
        b: ArrayLike | Weight,
        /,
        c: ArrayLike | None = None,
        *,
        epilogue: AnyEpilogue | None = None,
        amax: bool = False,
        **arguments: Unpack[ProductArguments],
    ) -> None: ...
    @property
    def clamp(self) -> tuple[float, float] | None: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def compute(self) -> str | None: ...
    def read_operands(self) -> None: ...
    def _compose(self, recipe: Recipe) -> Any: ...
    def _bias_gradient_of_empty(self, result: Any) -> Any: ...
