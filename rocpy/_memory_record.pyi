# SPDX-License-Identifier: MIT
# Types of the records of memory; _memory_record.pyx has the documentation.
from collections.abc import Mapping
from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class MemoryRecord:
    array: Any
    name: str
    @property
    def is_exported(self) -> bool: ...
    def moved(self) -> bool: ...

def records_of(arrays: Mapping[str, Any], views: Mapping[str, Any] | None = None) -> tuple[MemoryRecord, ...]: ...
def any_moved(records: tuple[MemoryRecord, ...]) -> bool: ...
def refuse_gradients(records: tuple[MemoryRecord, ...]) -> int: ...
