# SPDX-License-Identifier: MIT
# Types of the native product; plan.pyx has the documentation.
from collections.abc import Mapping
from typing import Any

from typing_extensions import disjoint_base

from rocpy.blaslt.model import options as _options
from rocpy.blaslt.model.call_arguments import AnyAlgorithm, AnyEpilogue, AnyOptions
from rocpy.blaslt.model.planned_product import PlannedProduct
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.model.scale_arguments import ScaleArguments
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
    def operand_arrays(self) -> dict[str, Any]: ...
    @property
    def options(self) -> _options.Options: ...
    @property
    def stream(self) -> Any: ...
    @property
    def clamp(self) -> tuple[float, float] | None: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def compute(self) -> str | None: ...
    @property
    def scale_values(self) -> ScaleArguments | None: ...
    @property
    def launched(self) -> Problem: ...
    @property
    def prototype(self) -> Any: ...
    @property
    def problem(self) -> Problem: ...
    @property
    def copies(self) -> tuple[str, ...]: ...
    @property
    def staged(self) -> tuple[str, ...]: ...
    @property
    def unfused(self) -> Any: ...
    def execute(
        self, *, out: ArrayLike | None = None, algorithm: AnyAlgorithm | None = None, stream: StreamLike | None = None
    ) -> Any: ...
    def reset_operands(
        self,
        *,
        a: ArrayLike | None = None,
        b: ArrayLike | Weight | None = None,
        c: ArrayLike | None = None,
        bias: ArrayLike | None = None,
        aux: ArrayLike | dict[str, Any] | None = None,
        alpha: complex | None = None,
        beta: complex | None = None,
        scale_a: Any = None,
        scale_b: Any = None,
        scale_c: Any = None,
        scale_d: Any = None,
        epilogue_inputs: Mapping[str, Any] | None = None,
    ) -> None: ...
    def read_operands(self) -> None: ...
    def _compose(self, recipe: Recipe) -> Any: ...
    def _bias_gradient_of_empty(self, result: Any) -> Any: ...
