# SPDX-License-Identifier: MIT
# Types of the planned product; stateful.py and plan.pyx have the documentation.
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from typing_extensions import disjoint_base

from rocpy.blaslt.model import options as _options
from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.call_arguments import AnyAlgorithm, AnyEpilogue, AnyOptions
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.model.scale_arguments import ScaleArguments
from rocpy.blaslt.operands.weight import Weight
from rocpy.typing import ArrayLike, ComputeName, ResultDType, StreamLike

@disjoint_base
class Matmul:
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
    planned_algorithms: list[Algorithm] | None
    chosen: int
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
    @property
    def algorithms(self) -> list[Algorithm]: ...
    @property
    def choice(self) -> tuple[Algorithm | None, str]: ...
    def scalars(self) -> dict[str, Any]: ...
    @property
    def packed(self) -> bool: ...
    @property
    def device_name(self) -> str: ...
    @property
    def algorithm(self) -> Algorithm | None: ...
    def plan(
        self,
        *,
        algorithms: Sequence[Algorithm | Mapping[str, Any] | str] | None = None,
        max_algorithms: int = ...,
    ) -> list[Algorithm]: ...
    def pin(self, algorithm: AnyAlgorithm) -> Algorithm: ...
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
    ) -> None: ...
    def _read_operands(self) -> None: ...
    def _list(self, max_algorithms: int) -> list[Algorithm]: ...
    def _select(self, algorithms: list[Algorithm], rank: int) -> None: ...
    def _prepare(self) -> None: ...
    def _compose(self, copies: int) -> Any: ...
    def _bias_gradient_of_empty(self, result: Any) -> Any: ...
    def release_operands(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
