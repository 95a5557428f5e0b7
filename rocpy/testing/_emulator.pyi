# SPDX-License-Identifier: MIT
# Types of the extension module that calls the platform's emulator.
from collections.abc import Sequence

def run(
    code: bytes,
    kernel: str,
    grid: Sequence[int],
    block: Sequence[int],
    arguments: list[bytes],
    ranges: list[tuple[int, int, bool]],
    *,
    shared_bytes: int,
    trace_lines: int,
    limit: int,
) -> tuple[int, str]: ...
def decode(architecture: str, code: bytes) -> str: ...
def opcodes() -> str: ...
