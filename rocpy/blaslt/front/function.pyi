# SPDX-License-Identifier: MIT
# Types of the function form; function.pyx has the documentation.
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypeVar, overload

import numpy.typing as npt

from rocpy.blaslt.model.call_arguments import AnyAlgorithm, AnyBounds, AnyEpilogue, AnyNumber, AnyOptions
from rocpy.blaslt.model.epilogues import PairEpilogue, PlainEpilogue
from rocpy.blaslt.operands.weight import Weight
from rocpy.typing import (
    ArrayLike,
    ComputeName,
    FrameworkArray,
    HostMemory,
    ResultDType,
    StreamLike,
    SupportsDetach,
)

# numpy's arrays carry their dtype in their type, and a result may have another; of a torch.nn.Parameter the result is a
# Tensor, which overlaps with the rule for all other arrays.
_Numpy: TypeAlias = npt.NDArray[Any]
_Host: TypeAlias = _Numpy | HostMemory
_Detached = TypeVar("_Detached")
_Array = TypeVar("_Array", bound=FrameworkArray)

# One overload for each kind of array and of result: an epilogue that gives the result alone, one that gives a dict
# too, amax; and what is known only when it runs, as of an epilogue of the user's, which may give several.
# fmt: off
@overload
def matmul(
    a: _Host, b: ArrayLike | Weight, /, c: ArrayLike | None = None, *, alpha: AnyNumber = 1.0,
    beta: AnyNumber | None = None, epilogue: PlainEpilogue | None = None, bias: ArrayLike | None = None,
    aux: ArrayLike | dict[str, Any] | None = None, clamp: AnyBounds | None = None,
    epilogue_inputs: None = None, scale_a: Any = None, scale_b: Any = None, scale_c: Any = None,
    scale_d: Any = None, amax: Literal[False] = False, dtype: ResultDType | None = None,
    compute: ComputeName | None = None, out: ArrayLike | None = None, options: AnyOptions | None = None,
    algorithm: AnyAlgorithm | None = None, autotune: bool | None = None, stream: StreamLike | None = None,
) -> _Numpy: ...
@overload
def matmul(  # type: ignore[overload-overlap]
    a: SupportsDetach[_Detached], b: ArrayLike | Weight, /, c: ArrayLike | None = None, *, alpha: AnyNumber = 1.0,
    beta: AnyNumber | None = None, epilogue: PlainEpilogue | None = None, bias: ArrayLike | None = None,
    aux: ArrayLike | dict[str, Any] | None = None, clamp: AnyBounds | None = None,
    epilogue_inputs: None = None, scale_a: Any = None, scale_b: Any = None, scale_c: Any = None,
    scale_d: Any = None, amax: Literal[False] = False, dtype: ResultDType | None = None,
    compute: ComputeName | None = None, out: ArrayLike | None = None, options: AnyOptions | None = None,
    algorithm: AnyAlgorithm | None = None, autotune: bool | None = None, stream: StreamLike | None = None,
) -> _Detached: ...
@overload
def matmul(
    a: _Array, b: ArrayLike | Weight, /, c: ArrayLike | None = None, *, alpha: AnyNumber = 1.0,
    beta: AnyNumber | None = None, epilogue: PlainEpilogue | None = None, bias: ArrayLike | None = None,
    aux: ArrayLike | dict[str, Any] | None = None, clamp: AnyBounds | None = None,
    epilogue_inputs: None = None, scale_a: Any = None, scale_b: Any = None, scale_c: Any = None,
    scale_d: Any = None, amax: Literal[False] = False, dtype: ResultDType | None = None,
    compute: ComputeName | None = None, out: ArrayLike | None = None, options: AnyOptions | None = None,
    algorithm: AnyAlgorithm | None = None, autotune: bool | None = None, stream: StreamLike | None = None,
) -> _Array: ...
@overload
def matmul(
    a: _Host, b: ArrayLike | Weight, /, c: ArrayLike | None = None, *, alpha: AnyNumber = 1.0,
    beta: AnyNumber | None = None, epilogue: PairEpilogue, bias: ArrayLike | None = None,
    aux: ArrayLike | dict[str, Any] | None = None, clamp: AnyBounds | None = None,
    epilogue_inputs: None = None, scale_a: Any = None, scale_b: Any = None, scale_c: Any = None,
    scale_d: Any = None, amax: bool = False, dtype: ResultDType | None = None,
    compute: ComputeName | None = None, out: ArrayLike | None = None, options: AnyOptions | None = None,
    algorithm: AnyAlgorithm | None = None, autotune: bool | None = None, stream: StreamLike | None = None,
) -> tuple[_Numpy, dict[str, _Numpy]]: ...
@overload
def matmul(  # type: ignore[overload-overlap]
    a: SupportsDetach[_Detached], b: ArrayLike | Weight, /, c: ArrayLike | None = None, *, alpha: AnyNumber = 1.0,
    beta: AnyNumber | None = None, epilogue: PairEpilogue, bias: ArrayLike | None = None,
    aux: ArrayLike | dict[str, Any] | None = None, clamp: AnyBounds | None = None,
    epilogue_inputs: None = None, scale_a: Any = None, scale_b: Any = None, scale_c: Any = None,
    scale_d: Any = None, amax: bool = False, dtype: ResultDType | None = None,
    compute: ComputeName | None = None, out: ArrayLike | None = None, options: AnyOptions | None = None,
    algorithm: AnyAlgorithm | None = None, autotune: bool | None = None, stream: StreamLike | None = None,
) -> tuple[_Detached, dict[str, _Detached]]: ...
@overload
def matmul(
    a: _Array, b: ArrayLike | Weight, /, c: ArrayLike | None = None, *, alpha: AnyNumber = 1.0,
    beta: AnyNumber | None = None, epilogue: PairEpilogue, bias: ArrayLike | None = None,
    aux: ArrayLike | dict[str, Any] | None = None, clamp: AnyBounds | None = None,
    epilogue_inputs: None = None, scale_a: Any = None, scale_b: Any = None, scale_c: Any = None,
    scale_d: Any = None, amax: bool = False, dtype: ResultDType | None = None,
    compute: ComputeName | None = None, out: ArrayLike | None = None, options: AnyOptions | None = None,
    algorithm: AnyAlgorithm | None = None, autotune: bool | None = None, stream: StreamLike | None = None,
) -> tuple[_Array, dict[str, _Array]]: ...
@overload
def matmul(
    a: _Host, b: ArrayLike | Weight, /, c: ArrayLike | None = None, *, alpha: AnyNumber = 1.0,
    beta: AnyNumber | None = None, epilogue: PlainEpilogue | None = None, bias: ArrayLike | None = None,
    aux: ArrayLike | dict[str, Any] | None = None, clamp: AnyBounds | None = None,
    epilogue_inputs: None = None, scale_a: Any = None, scale_b: Any = None, scale_c: Any = None,
    scale_d: Any = None, amax: Literal[True], dtype: ResultDType | None = None,
    compute: ComputeName | None = None, out: ArrayLike | None = None, options: AnyOptions | None = None,
    algorithm: AnyAlgorithm | None = None, autotune: bool | None = None, stream: StreamLike | None = None,
) -> tuple[_Numpy, dict[str, _Numpy]]: ...
@overload
def matmul(
    a: _Array, b: ArrayLike | Weight, /, c: ArrayLike | None = None, *, alpha: AnyNumber = 1.0,
    beta: AnyNumber | None = None, epilogue: PlainEpilogue | None = None, bias: ArrayLike | None = None,
    aux: ArrayLike | dict[str, Any] | None = None, clamp: AnyBounds | None = None,
    epilogue_inputs: None = None, scale_a: Any = None, scale_b: Any = None, scale_c: Any = None,
    scale_d: Any = None, amax: Literal[True], dtype: ResultDType | None = None,
    compute: ComputeName | None = None, out: ArrayLike | None = None, options: AnyOptions | None = None,
    algorithm: AnyAlgorithm | None = None, autotune: bool | None = None, stream: StreamLike | None = None,
) -> tuple[_Array, dict[str, _Array]]: ...
@overload
def matmul(
    a: _Host, b: ArrayLike | Weight, /, c: ArrayLike | None = None, *, alpha: AnyNumber = 1.0,
    beta: AnyNumber | None = None, epilogue: AnyEpilogue | None = None, bias: ArrayLike | None = None,
    aux: ArrayLike | dict[str, Any] | None = None, clamp: AnyBounds | None = None,
    epilogue_inputs: Mapping[str, Any] | None = None, scale_a: Any = None, scale_b: Any = None, scale_c: Any = None,
    scale_d: Any = None, amax: bool = False, dtype: ResultDType | None = None,
    compute: ComputeName | None = None, out: ArrayLike | None = None, options: AnyOptions | None = None,
    algorithm: AnyAlgorithm | None = None, autotune: bool | None = None, stream: StreamLike | None = None,
) -> _Numpy | Any: ...
@overload
def matmul(
    a: _Array, b: ArrayLike | Weight, /, c: ArrayLike | None = None, *, alpha: AnyNumber = 1.0,
    beta: AnyNumber | None = None, epilogue: AnyEpilogue | None = None, bias: ArrayLike | None = None,
    aux: ArrayLike | dict[str, Any] | None = None, clamp: AnyBounds | None = None,
    epilogue_inputs: Mapping[str, Any] | None = None, scale_a: Any = None, scale_b: Any = None, scale_c: Any = None,
    scale_d: Any = None, amax: bool = False, dtype: ResultDType | None = None,
    compute: ComputeName | None = None, out: ArrayLike | None = None, options: AnyOptions | None = None,
    algorithm: AnyAlgorithm | None = None, autotune: bool | None = None, stream: StreamLike | None = None,
) -> _Array | Any: ...
# fmt: on
