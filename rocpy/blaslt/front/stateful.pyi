# SPDX-License-Identifier: MIT
# Types of Matmul; stateful.pyx has the documentation.
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeAlias, Unpack, overload

import numpy.typing as npt
from typing_extensions import TypeVar, disjoint_base

from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.call_arguments import AnyAlgorithm, AnyEpilogue, NewOperands, ProductArguments
from rocpy.blaslt.model.epilogues import PairEpilogue, PlainEpilogue
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.model.tuning_report import TuningReport
from rocpy.blaslt.operands.weight import Weight
from rocpy.typing import ArrayLike, FrameworkArray, HostMemory, StreamLike, SupportsDetach

__all__ = ["Matmul"]

# The kinds of arrays and of results are those of function.pyi.
_Numpy: TypeAlias = npt.NDArray[Any]
_Host: TypeAlias = _Numpy | HostMemory
_Array = TypeVar("_Array", bound=FrameworkArray)
_Detached = TypeVar("_Detached")

# What execute() returns: an array of a's framework, or a pair of it and a dict.
_Result = TypeVar("_Result", default=Any)

@disjoint_base
class Matmul(Generic[_Result]):
    # fmt: off
    @overload
    def __init__(
        self: Matmul[_Numpy], a: _Host,
        b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
        epilogue: PlainEpilogue | None = None, amax: Literal[False] = False, **arguments: Unpack[ProductArguments],
    ) -> None: ...
    @overload
    def __init__(
        self: Matmul[_Detached], a: SupportsDetach[_Detached],
        b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
        epilogue: PlainEpilogue | None = None, amax: Literal[False] = False, **arguments: Unpack[ProductArguments],
    ) -> None: ...
    @overload
    def __init__(
        self: Matmul[_Array], a: _Array,
        b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
        epilogue: PlainEpilogue | None = None, amax: Literal[False] = False, **arguments: Unpack[ProductArguments],
    ) -> None: ...
    @overload
    def __init__(
        self: Matmul[tuple[_Numpy, dict[str, _Numpy]]], a: _Host,
        b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
        epilogue: PairEpilogue, amax: bool = False, **arguments: Unpack[ProductArguments],
    ) -> None: ...
    @overload
    def __init__(
        self: Matmul[tuple[_Detached, dict[str, _Detached]]], a: SupportsDetach[_Detached],
        b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
        epilogue: PairEpilogue, amax: bool = False, **arguments: Unpack[ProductArguments],
    ) -> None: ...
    @overload
    def __init__(
        self: Matmul[tuple[_Array, dict[str, _Array]]], a: _Array,
        b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
        epilogue: PairEpilogue, amax: bool = False, **arguments: Unpack[ProductArguments],
    ) -> None: ...
    @overload
    def __init__(
        self: Matmul[tuple[_Numpy, dict[str, _Numpy]]], a: _Host,
        b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
        epilogue: PlainEpilogue | None = None, amax: Literal[True], **arguments: Unpack[ProductArguments],
    ) -> None: ...
    @overload
    def __init__(
        self: Matmul[tuple[_Array, dict[str, _Array]]], a: _Array,
        b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
        epilogue: PlainEpilogue | None = None, amax: Literal[True], **arguments: Unpack[ProductArguments],
    ) -> None: ...
    @overload
    def __init__(
        self: Matmul[_Numpy | Any], a: _Host,
        b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
        epilogue: AnyEpilogue | None = None, amax: bool = False, **arguments: Unpack[ProductArguments],
    ) -> None: ...
    @overload
    def __init__(
        self: Matmul[_Array | Any], a: _Array,
        b: ArrayLike | Weight, /, c: ArrayLike | None = None, *,
        epilogue: AnyEpilogue | None = None, amax: bool = False, **arguments: Unpack[ProductArguments],
    ) -> None: ...
    # fmt: on
    def execute(
        self, *, out: ArrayLike | None = None, algorithm: AnyAlgorithm | None = None, stream: StreamLike | None = None
    ) -> _Result: ...
    @property
    def problem(self) -> Problem: ...
    @property
    def launched(self) -> Problem: ...
    @property
    def options(self) -> Options: ...
    @property
    def stream(self) -> Any: ...
    @property
    def operand_arrays(self) -> dict[str, Any]: ...
    @property
    def copies(self) -> tuple[str, ...]: ...
    @property
    def staged(self) -> tuple[str, ...]: ...
    @property
    def unfused(self) -> Any: ...
    @property
    def packed(self) -> bool: ...
    @property
    def device_name(self) -> str: ...
    @property
    def algorithms(self) -> list[Algorithm]: ...
    @property
    def algorithm(self) -> Algorithm | None: ...
    @property
    def choice(self) -> tuple[Algorithm | None, str]: ...
    def plan(
        self,
        *,
        algorithms: Sequence[Algorithm | Mapping[str, Any] | str] | None = None,
        max_algorithms: int = ...,
    ) -> list[Algorithm]: ...
    def autotune(self, budget_ms: float = 200.0, *, max_algorithms: int = ...) -> TuningReport: ...
    def pin(self, algorithm: AnyAlgorithm) -> Algorithm: ...
    def export(self) -> dict[str, Any]: ...
    def reset_operands(self, **operands: Unpack[NewOperands]) -> None: ...
    def release_operands(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
