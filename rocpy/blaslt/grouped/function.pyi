# SPDX-License-Identifier: MIT
# Types of the grouped products; grouped.pyx has the documentation.
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar, overload

import numpy.typing as npt

from rocpy.blaslt.model.call_arguments import AnyBounds, AnyOptions, AnyReal
from rocpy.blaslt.model.epilogues import Epilogue, GroupedPairEpilogue, GroupedPlainEpilogue
from rocpy.blaslt.operands.weight import Weight
from rocpy.typing import ArrayLike, FrameworkArray, HostMemory, ResultDType, StreamLike

# As for matmul. With offsets the groups lie in one array and so does the result; else at least one of a and b is a
# sequence, and the results are a list.
_Numpy: TypeAlias = npt.NDArray[Any]
_Host: TypeAlias = _Numpy | HostMemory
_Array = TypeVar("_Array", bound=FrameworkArray)
_Right: TypeAlias = ArrayLike | Weight
_Offsets: TypeAlias = ArrayLike | Sequence[int]

# fmt: off
@overload
def grouped_matmul(
    a: _Host, b: ArrayLike, /, *, offsets: _Offsets, groups: int | None = None,
    epilogue: GroupedPlainEpilogue | None = None, bias: ArrayLike | None = None,
    clamp: AnyBounds | None = None, alpha: AnyReal = 1.0, scale_a: Any = None, scale_b: Any = None,
    dtype: ResultDType | None = None, out: ArrayLike | None = None, options: AnyOptions | None = None,
    stream: StreamLike | None = None,
) -> _Numpy: ...
@overload
def grouped_matmul(
    a: _Array, b: ArrayLike, /, *, offsets: _Offsets, groups: int | None = None,
    epilogue: GroupedPlainEpilogue | None = None, bias: ArrayLike | None = None,
    clamp: AnyBounds | None = None, alpha: AnyReal = 1.0, scale_a: Any = None, scale_b: Any = None,
    dtype: ResultDType | None = None, out: ArrayLike | None = None, options: AnyOptions | None = None,
    stream: StreamLike | None = None,
) -> _Array: ...
@overload
def grouped_matmul(
    a: _Host, b: ArrayLike, /, *, offsets: _Offsets, groups: int | None = None,
    epilogue: GroupedPairEpilogue, bias: ArrayLike | None = None,
    clamp: AnyBounds | None = None, alpha: AnyReal = 1.0, scale_a: Any = None, scale_b: Any = None,
    dtype: ResultDType | None = None, out: ArrayLike | None = None, options: AnyOptions | None = None,
    stream: StreamLike | None = None,
) -> tuple[_Numpy, dict[str, _Numpy]]: ...
@overload
def grouped_matmul(
    a: _Array, b: ArrayLike, /, *, offsets: _Offsets, groups: int | None = None,
    epilogue: GroupedPairEpilogue, bias: ArrayLike | None = None,
    clamp: AnyBounds | None = None, alpha: AnyReal = 1.0, scale_a: Any = None, scale_b: Any = None,
    dtype: ResultDType | None = None, out: ArrayLike | None = None, options: AnyOptions | None = None,
    stream: StreamLike | None = None,
) -> tuple[_Array, dict[str, _Array]]: ...
@overload
def grouped_matmul(
    a: Sequence[_Host], b: _Right | Sequence[_Right], /, *, offsets: None = None, groups: int | None = None,
    epilogue: GroupedPlainEpilogue | None = None, bias: ArrayLike | Sequence[ArrayLike | None] | None = None,
    clamp: AnyBounds | None = None, alpha: AnyReal = 1.0, scale_a: Any = None, scale_b: Any = None,
    dtype: ResultDType | None = None, out: Sequence[ArrayLike] | None = None, options: AnyOptions | None = None,
    stream: StreamLike | None = None,
) -> list[_Numpy]: ...
@overload
def grouped_matmul(
    a: Sequence[_Array], b: _Right | Sequence[_Right], /, *, offsets: None = None, groups: int | None = None,
    epilogue: GroupedPlainEpilogue | None = None, bias: ArrayLike | Sequence[ArrayLike | None] | None = None,
    clamp: AnyBounds | None = None, alpha: AnyReal = 1.0, scale_a: Any = None, scale_b: Any = None,
    dtype: ResultDType | None = None, out: Sequence[ArrayLike] | None = None, options: AnyOptions | None = None,
    stream: StreamLike | None = None,
) -> list[_Array]: ...
@overload
def grouped_matmul(
    a: Sequence[_Host], b: _Right | Sequence[_Right], /, *, offsets: None = None, groups: int | None = None,
    epilogue: GroupedPairEpilogue, bias: ArrayLike | Sequence[ArrayLike | None] | None = None,
    clamp: AnyBounds | None = None, alpha: AnyReal = 1.0, scale_a: Any = None, scale_b: Any = None,
    dtype: ResultDType | None = None, out: Sequence[ArrayLike] | None = None, options: AnyOptions | None = None,
    stream: StreamLike | None = None,
) -> tuple[list[_Numpy], dict[str, list[_Numpy]]]: ...
@overload
def grouped_matmul(
    a: Sequence[_Array], b: _Right | Sequence[_Right], /, *, offsets: None = None, groups: int | None = None,
    epilogue: GroupedPairEpilogue, bias: ArrayLike | Sequence[ArrayLike | None] | None = None,
    clamp: AnyBounds | None = None, alpha: AnyReal = 1.0, scale_a: Any = None, scale_b: Any = None,
    dtype: ResultDType | None = None, out: Sequence[ArrayLike] | None = None, options: AnyOptions | None = None,
    stream: StreamLike | None = None,
) -> tuple[list[_Array], dict[str, list[_Array]]]: ...
@overload
def grouped_matmul(
    a: _Host, b: Sequence[_Right], /, *, offsets: None = None, groups: int | None = None,
    epilogue: GroupedPlainEpilogue | None = None, bias: ArrayLike | Sequence[ArrayLike | None] | None = None,
    clamp: AnyBounds | None = None, alpha: AnyReal = 1.0, scale_a: Any = None, scale_b: Any = None,
    dtype: ResultDType | None = None, out: Sequence[ArrayLike] | None = None, options: AnyOptions | None = None,
    stream: StreamLike | None = None,
) -> list[_Numpy]: ...
@overload
def grouped_matmul(
    a: _Array, b: Sequence[_Right], /, *, offsets: None = None, groups: int | None = None,
    epilogue: GroupedPlainEpilogue | None = None, bias: ArrayLike | Sequence[ArrayLike | None] | None = None,
    clamp: AnyBounds | None = None, alpha: AnyReal = 1.0, scale_a: Any = None, scale_b: Any = None,
    dtype: ResultDType | None = None, out: Sequence[ArrayLike] | None = None, options: AnyOptions | None = None,
    stream: StreamLike | None = None,
) -> list[_Array]: ...
@overload
def grouped_matmul(
    a: ArrayLike | Sequence[ArrayLike], b: _Right | Sequence[_Right], /, *, offsets: _Offsets | None = None,
    groups: int | None = None, epilogue: GroupedPlainEpilogue | GroupedPairEpilogue | Epilogue | None = None,
    bias: ArrayLike | Sequence[ArrayLike | None] | None = None, clamp: AnyBounds | None = None,
    alpha: AnyReal = 1.0, scale_a: Any = None, scale_b: Any = None, dtype: ResultDType | None = None,
    out: ArrayLike | Sequence[ArrayLike] | None = None, options: AnyOptions | None = None,
    stream: StreamLike | None = None,
) -> Any: ...
# fmt: on
