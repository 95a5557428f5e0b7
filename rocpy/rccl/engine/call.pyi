# SPDX-License-Identifier: MIT
# Types of a checked call; call.pyx has the documentation.
from collections.abc import Iterable
from typing import Any

from typing_extensions import disjoint_base

from rocpy.rccl.engine.pending import GroupState

NAMES: tuple[str, ...]

@disjoint_base
class Call:
    @property
    def result(self) -> Any: ...
    @property
    def seq(self) -> int: ...
    @property
    def group(self) -> GroupState | None: ...
    @property
    def in_cpu_memory(self) -> bool: ...
    @property
    def op_name(self) -> str: ...
    @property
    def elements(self) -> int: ...
    def drop(self) -> None: ...

def hold_calls(calls: Iterable[Call]) -> None: ...
