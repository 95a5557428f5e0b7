# SPDX-License-Identifier: MIT
# Types of a grouped product's arguments; _plans.pyx has the documentation.
from typing import Any, Self

from typing_extensions import disjoint_base

@disjoint_base
class GroupedCall:
    a: Any
    b: Any
    offsets: Any
    groups: Any
    epilogue: Any
    bias: Any
    clamp: Any
    alpha: Any
    scale_a: Any
    scale_b: Any
    dtype: Any
    out: Any
    options: Any
    stream: Any
    def replaced(self, **changes: Any) -> Self: ...
