# SPDX-License-Identifier: MIT
# Types of a group's block; scope.pyx has the documentation.
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from typing_extensions import disjoint_base

from rocpy.rccl.engine.pending import PendingGroup

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

@disjoint_base
class GroupScope:
    def __new__(cls, launch: Callable[[PendingGroup], None]) -> Self: ...
    def __call__(self, function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

def run_grouped(actions: Iterable[Callable[[], object]]) -> tuple[int, str]: ...
