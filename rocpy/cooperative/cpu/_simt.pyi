# SPDX-License-Identifier: MIT
# Types of the fiber runtime's module; _simt.cpp has the documentation.
from collections.abc import Sequence
from typing import Any

class Config:
    def __init__(
        self,
        *,
        grid: Sequence[int],
        block: Sequence[int],
        dynamic_shared_bytes: int,
        shared_limit_bytes: int,
        warp_size: int,
        debug: bool,
        shuffle: bool,
        seed: int,
        threads: int,
        stack_bytes: int,
    ) -> None: ...

def symbols() -> dict[str, int]: ...
def key_of(values: tuple[Any, ...]) -> bytes | None: ...
def run(entries: dict[bytes, tuple[Any, ...]], config: Config, values: tuple[Any, ...]) -> int | None: ...
def take_error(address: int) -> dict[str, Any]: ...
def default_threads() -> int: ...
def measure_switch_ns(threads: int, rounds: int) -> float: ...
