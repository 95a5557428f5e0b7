# SPDX-License-Identifier: MIT
# Types of the function form; call.pyx has the documentation.
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, TypeVar, overload

import numpy.typing as npt

from rocpy.blaslt.model import options as _options
from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.epilogues import Epilogue, PairEpilogue, PlainEpilogue
from rocpy.blaslt.operands.weight import Weight
from rocpy.epilogues import CustomEpilogue
from rocpy.typing import ArrayLike, ComputeName, ResultDType, StreamLike

# numpy's arrays carry their dtype in their type, and a result may have another.
_Numpy: TypeAlias = npt.NDArray[Any]
_Array = TypeVar("_Array", bound=ArrayLike)

@overload
def matmul(
    a: _Numpy,
    b: ArrayLike | Weight,
    /,
    c: ArrayLike | None = None,
    *,
    alpha: complex = 1.0,
    beta: complex | None = None,
    epilogue: PlainEpilogue | None = None,
    bias: ArrayLike | None = None,
    aux: ArrayLike | dict[str, Any] | None = None,
    clamp: tuple[float, float] | None = None,
    epilogue_inputs: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    scale_c: Any = None,
    scale_d: Any = None,
    amax: Literal[False] = False,
    dtype: ResultDType | None = None,
    compute: ComputeName | None = None,
    out: ArrayLike | None = None,
    options: _options.Options | _options.options | _options.OptionsDict | None = None,
    algorithm: Algorithm | Mapping[str, Any] | int | str | None = None,
    autotune: bool | None = None,
    stream: StreamLike | None = None,
) -> _Numpy: ...
@overload
def matmul(
    a: _Numpy,
    b: ArrayLike | Weight,
    /,
    c: ArrayLike | None = None,
    *,
    alpha: complex = 1.0,
    beta: complex | None = None,
    epilogue: PairEpilogue,
    bias: ArrayLike | None = None,
    aux: ArrayLike | dict[str, Any] | None = None,
    clamp: tuple[float, float] | None = None,
    epilogue_inputs: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    scale_c: Any = None,
    scale_d: Any = None,
    amax: bool = False,
    dtype: ResultDType | None = None,
    compute: ComputeName | None = None,
    out: ArrayLike | None = None,
    options: _options.Options | _options.options | _options.OptionsDict | None = None,
    algorithm: Algorithm | Mapping[str, Any] | int | str | None = None,
    autotune: bool | None = None,
    stream: StreamLike | None = None,
) -> tuple[_Numpy, dict[str, _Numpy]]: ...
@overload
def matmul(
    a: _Array,
    b: ArrayLike | Weight,
    /,
    c: ArrayLike | None = None,
    *,
    alpha: complex = 1.0,
    beta: complex | None = None,
    epilogue: PlainEpilogue | None = None,
    bias: ArrayLike | None = None,
    aux: ArrayLike | dict[str, Any] | None = None,
    clamp: tuple[float, float] | None = None,
    epilogue_inputs: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    scale_c: Any = None,
    scale_d: Any = None,
    amax: Literal[False] = False,
    dtype: ResultDType | None = None,
    compute: ComputeName | None = None,
    out: ArrayLike | None = None,
    options: _options.Options | _options.options | _options.OptionsDict | None = None,
    algorithm: Algorithm | Mapping[str, Any] | int | str | None = None,
    autotune: bool | None = None,
    stream: StreamLike | None = None,
) -> _Array: ...
@overload
def matmul(
    a: _Array,
    b: ArrayLike | Weight,
    /,
    c: ArrayLike | None = None,
    *,
    alpha: complex = 1.0,
    beta: complex | None = None,
    epilogue: PairEpilogue,
    bias: ArrayLike | None = None,
    aux: ArrayLike | dict[str, Any] | None = None,
    clamp: tuple[float, float] | None = None,
    epilogue_inputs: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    scale_c: Any = None,
    scale_d: Any = None,
    amax: bool = False,
    dtype: ResultDType | None = None,
    compute: ComputeName | None = None,
    out: ArrayLike | None = None,
    options: _options.Options | _options.options | _options.OptionsDict | None = None,
    algorithm: Algorithm | Mapping[str, Any] | int | str | None = None,
    autotune: bool | None = None,
    stream: StreamLike | None = None,
) -> tuple[_Array, dict[str, _Array]]: ...
@overload
def matmul(
    a: ArrayLike,
    b: ArrayLike | Weight,
    /,
    c: ArrayLike | None = None,
    *,
    alpha: complex = 1.0,
    beta: complex | None = None,
    epilogue: PlainEpilogue | PairEpilogue | Epilogue | CustomEpilogue | None = None,
    bias: ArrayLike | None = None,
    aux: ArrayLike | dict[str, Any] | None = None,
    clamp: tuple[float, float] | None = None,
    epilogue_inputs: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    scale_c: Any = None,
    scale_d: Any = None,
    amax: bool = False,
    dtype: ResultDType | None = None,
    compute: ComputeName | None = None,
    out: ArrayLike | None = None,
    options: _options.Options | _options.options | _options.OptionsDict | None = None,
    algorithm: Algorithm | Mapping[str, Any] | int | str | None = None,
    autotune: bool | None = None,
    stream: StreamLike | None = None,
) -> Any: ...
