# SPDX-License-Identifier: MIT
# Types of a block of described calls; described.pyx has the documentation.
from types import TracebackType
from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class Described:
    def __init__(self, comm: Any, text: str) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
