# SPDX-License-Identifier: MIT
# Types of arrays on raw memory and of operands' checks; operands.pyx has the documentation.
from collections.abc import Sequence
from typing import Any

from rocpy.runtime.memory import Buffer
from rocpy.typing import DTypeLike

def part_of(raw: Buffer, shape: Sequence[int], dtype: DTypeLike) -> Buffer: ...
def check_in_cpu_memory(
    kind: int, x: Any, out: Any, root: Any, rank: int, nranks: int
) -> tuple[tuple[int, int, str, object] | None, tuple[int, int, str, object] | None, Any]: ...
