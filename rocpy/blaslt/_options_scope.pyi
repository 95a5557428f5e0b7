# SPDX-License-Identifier: MIT
# Types of the block of options; _options_scope.pyx has the documentation.
from contextvars import ContextVar
from types import TracebackType

from typing_extensions import disjoint_base

from rocpy.blaslt.model.options import Options

ACTIVE: list[bool]
STACK: ContextVar[tuple[Block, ...]]

@disjoint_base
class Block:
    @property
    def options(self) -> Options: ...
    @property
    def is_left(self) -> bool: ...

@disjoint_base
class OptionsScope:
    def __enter__(self) -> Options: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
