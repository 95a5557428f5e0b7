# SPDX-License-Identifier: MIT
# Types of arrays on raw memory; _operands.pyx has the documentation.
from collections.abc import Sequence

from rocpy.runtime.memory import Buffer
from rocpy.typing import DTypeLike

def part_of(raw: Buffer, shape: Sequence[int], dtype: DTypeLike) -> Buffer: ...
