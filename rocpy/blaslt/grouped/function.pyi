# SPDX-License-Identifier: MIT
# Types of the grouped products; grouped.pyx has the documentation.
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar, overload

import numpy.typing as npt

from rocpy.blaslt.model import options as _options
from rocpy.blaslt.model.epilogues import Epilogue
from rocpy.blaslt.operands.weight import Weight
from rocpy.typing import ArrayLike, DTypeLike, StreamLike

_Numpy: TypeAlias = npt.NDArray[Any]
_Array = TypeVar("_Array", bound=ArrayLike)

# Rows of all groups in one array, or a list of them: numpy's arrays carry their dtype in their type, and a result may
# have another.
@overload
def grouped_matmul(
    a: _Numpy,
    b: ArrayLike | Weight | Sequence[ArrayLike | Weight],
    /,
    *,
    offsets: ArrayLike | Sequence[int] | None = None,
    groups: int | None = None,
    epilogue: str | Epilogue | None = None,
    bias: ArrayLike | Sequence[ArrayLike | None] | None = None,
    clamp: tuple[float, float] | None = None,
    alpha: float = 1.0,
    scale_a: Any = None,
    scale_b: Any = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | Sequence[ArrayLike] | None = None,
    options: _options.Options | _options.options | dict[str, Any] | None = None,
    stream: StreamLike | None = None,
) -> _Numpy: ...
@overload
def grouped_matmul(
    a: _Array,
    b: ArrayLike | Weight | Sequence[ArrayLike | Weight],
    /,
    *,
    offsets: ArrayLike | Sequence[int] | None = None,
    groups: int | None = None,
    epilogue: str | Epilogue | None = None,
    bias: ArrayLike | Sequence[ArrayLike | None] | None = None,
    clamp: tuple[float, float] | None = None,
    alpha: float = 1.0,
    scale_a: Any = None,
    scale_b: Any = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | Sequence[ArrayLike] | None = None,
    options: _options.Options | _options.options | dict[str, Any] | None = None,
    stream: StreamLike | None = None,
) -> _Array: ...
@overload
def grouped_matmul(
    a: Sequence[_Numpy],
    b: Sequence[ArrayLike | Weight],
    /,
    *,
    offsets: ArrayLike | Sequence[int] | None = None,
    groups: int | None = None,
    epilogue: str | Epilogue | None = None,
    bias: ArrayLike | Sequence[ArrayLike | None] | None = None,
    clamp: tuple[float, float] | None = None,
    alpha: float = 1.0,
    scale_a: Any = None,
    scale_b: Any = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | Sequence[ArrayLike] | None = None,
    options: _options.Options | _options.options | dict[str, Any] | None = None,
    stream: StreamLike | None = None,
) -> list[_Numpy]: ...
@overload
def grouped_matmul(
    a: Sequence[_Array],
    b: Sequence[ArrayLike | Weight],
    /,
    *,
    offsets: ArrayLike | Sequence[int] | None = None,
    groups: int | None = None,
    epilogue: str | Epilogue | None = None,
    bias: ArrayLike | Sequence[ArrayLike | None] | None = None,
    clamp: tuple[float, float] | None = None,
    alpha: float = 1.0,
    scale_a: Any = None,
    scale_b: Any = None,
    dtype: DTypeLike | None = None,
    out: ArrayLike | Sequence[ArrayLike] | None = None,
    options: _options.Options | _options.options | dict[str, Any] | None = None,
    stream: StreamLike | None = None,
) -> list[_Array]: ...
def explain_packed(a: ArrayLike, b: ArrayLike, **arguments: Any) -> list[Any]: ...
