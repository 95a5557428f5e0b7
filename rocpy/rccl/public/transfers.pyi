# SPDX-License-Identifier: MIT
# Types of the calls of a communicator that move arrays.
from typing import Any, Literal, TypeVar, overload

from rocpy.rccl.handles.communicator import Handle
from rocpy.rccl.public.work import Work
from rocpy.typing import ArrayLike, FrameworkArray, StreamLike

_Array = TypeVar("_Array", bound=FrameworkArray)

__all__ = ["Transfers"]

class Transfers(Handle):
    def _outcome(self, result: Any) -> Any: ...
    @overload
    def all_to_all(
        self,
        x: _Array,
        *,
        block: Literal[True] = True,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array: ...
    @overload
    def all_to_all(
        self,
        x: _Array,
        *,
        block: Literal[False],
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> Work[_Array]: ...
    @overload
    def all_to_all(
        self,
        x: _Array,
        *,
        block: bool,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array | Work[_Array]: ...
    @overload
    def gather(
        self,
        x: _Array,
        *,
        block: Literal[True] = True,
        root: int = 0,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array | None: ...
    @overload
    def gather(
        self,
        x: _Array,
        *,
        block: Literal[False],
        root: int = 0,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> Work[_Array | None]: ...
    @overload
    def gather(
        self,
        x: _Array,
        *,
        block: bool,
        root: int = 0,
        out: ArrayLike | None = None,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array | Work[_Array | None] | None: ...
    @overload
    def scatter(
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
    def scatter(
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
    def scatter(
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
    def scatter(
        self,
        x: None = None,
        *,
        out: _Array,
        root: int = 0,
        block: Literal[True] = True,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array: ...
    @overload
    def scatter(
        self,
        x: None = None,
        *,
        out: _Array,
        root: int = 0,
        block: Literal[False],
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> Work[_Array]: ...
    @overload
    def scatter(
        self,
        x: None = None,
        *,
        out: _Array,
        root: int = 0,
        block: bool,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array | Work[_Array]: ...
    @overload
    def send(
        self,
        x: ArrayLike,
        peer: int,
        *,
        block: Literal[True] = True,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> None: ...
    @overload
    def send(
        self,
        x: ArrayLike,
        peer: int,
        *,
        block: Literal[False],
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> Work[None]: ...
    @overload
    def send(
        self, x: ArrayLike, peer: int, *, block: bool, timeout_s: float | None = None, stream: StreamLike | None = None
    ) -> Work[None] | None: ...
    @overload
    def recv(
        self,
        x: _Array,
        peer: int,
        *,
        block: Literal[True] = True,
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> _Array: ...
    @overload
    def recv(
        self,
        x: _Array,
        peer: int,
        *,
        block: Literal[False],
        timeout_s: float | None = None,
        stream: StreamLike | None = None,
    ) -> Work[_Array]: ...
    @overload
    def recv(
        self, x: _Array, peer: int, *, block: bool, timeout_s: float | None = None, stream: StreamLike | None = None
    ) -> _Array | Work[_Array]: ...
