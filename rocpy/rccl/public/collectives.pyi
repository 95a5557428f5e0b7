# SPDX-License-Identifier: MIT
# Types of the collectives of a communicator.
from typing import Literal, TypeVar, overload

from rocpy.rccl.handles.communicator import PreMulSum
from rocpy.rccl.model.operators import ReduceOp
from rocpy.rccl.public.transfers import Transfers
from rocpy.rccl.public.work import Work
from rocpy.typing import ArrayLike, FrameworkArray, StreamLike

_Array = TypeVar("_Array", bound=FrameworkArray)

__all__ = ["Collectives"]

class Collectives(Transfers):
    @overload
    def all_reduce(
        self,
        x: _Array,
        *,
        block: Literal[True] = True,
        op: ReduceOp | PreMulSum = "sum",
        out: ArrayLike | None = None,
        bias: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array: ...
    @overload
    def all_reduce(
        self,
        x: _Array,
        *,
        block: Literal[False],
        op: ReduceOp | PreMulSum = "sum",
        out: ArrayLike | None = None,
        bias: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> Work[_Array]: ...
    @overload
    def all_reduce(
        self,
        x: _Array,
        *,
        block: bool,
        op: ReduceOp | PreMulSum = "sum",
        out: ArrayLike | None = None,
        bias: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array | Work[_Array]: ...
    @overload
    def reduce(
        self,
        x: _Array,
        *,
        block: Literal[True] = True,
        root: int = 0,
        op: ReduceOp | PreMulSum = "sum",
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array | None: ...
    @overload
    def reduce(
        self,
        x: _Array,
        *,
        block: Literal[False],
        root: int = 0,
        op: ReduceOp | PreMulSum = "sum",
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> Work[_Array | None]: ...
    @overload
    def reduce(
        self,
        x: _Array,
        *,
        block: bool,
        root: int = 0,
        op: ReduceOp | PreMulSum = "sum",
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array | Work[_Array | None] | None: ...
    @overload
    def broadcast(
        self,
        x: _Array,
        *,
        block: Literal[True] = True,
        root: int = 0,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array: ...
    @overload
    def broadcast(
        self,
        x: _Array,
        *,
        block: Literal[False],
        root: int = 0,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> Work[_Array]: ...
    @overload
    def broadcast(
        self,
        x: _Array,
        *,
        block: bool,
        root: int = 0,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array | Work[_Array]: ...
    @overload
    def all_gather(
        self,
        x: _Array,
        *,
        block: Literal[True] = True,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array: ...
    @overload
    def all_gather(
        self,
        x: _Array,
        *,
        block: Literal[False],
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> Work[_Array]: ...
    @overload
    def all_gather(
        self,
        x: _Array,
        *,
        block: bool,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array | Work[_Array]: ...
    @overload
    def reduce_scatter(
        self,
        x: _Array,
        *,
        block: Literal[True] = True,
        op: ReduceOp | PreMulSum = "sum",
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array: ...
    @overload
    def reduce_scatter(
        self,
        x: _Array,
        *,
        block: Literal[False],
        op: ReduceOp | PreMulSum = "sum",
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> Work[_Array]: ...
    @overload
    def reduce_scatter(
        self,
        x: _Array,
        *,
        block: bool,
        op: ReduceOp | PreMulSum = "sum",
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array | Work[_Array]: ...
