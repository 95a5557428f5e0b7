# SPDX-License-Identifier: MIT
from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class WeightOperand: ...

def snapshot_of(b: Any) -> Any: ...
