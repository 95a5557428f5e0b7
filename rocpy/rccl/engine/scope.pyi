# SPDX-License-Identifier: MIT
# Types of a group's block; scope.pyx has the documentation.
from collections.abc import Callable, Iterable
from types import TracebackType

from typing_extensions import disjoint_base

from rocpy.rccl.engine.pending import PendingGroup

@disjoint_base
class GroupScope:
    def __init__(self, launch: Callable[[PendingGroup, bool], None]) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

def run_grouped(actions: Iterable[Callable[[], object]]) -> tuple[int, str]: ...
