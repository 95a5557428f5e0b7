# SPDX-License-Identifier: MIT
# Types of tile programs; program.pyx has the documentation.
from collections.abc import Sequence
from typing import Any

from typing_extensions import disjoint_base

OPCODES: dict[str, tuple[int, int]]

def available() -> bool: ...

@disjoint_base
class TileProgram:
    instructions: tuple[tuple[Any, ...], ...]
    result: int
    inputs: int
    outputs: tuple[str, ...]
    pairs: bool
    def __init__(
        self,
        instructions: Sequence[Sequence[Any]],
        result: int,
        inputs: int = 0,
        outputs: Sequence[str] = (),
        *,
        pairs: bool = False,
    ) -> None: ...
    @property
    def id(self) -> int: ...
