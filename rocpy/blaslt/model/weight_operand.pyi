# SPDX-License-Identifier: MIT
# Types of what Weights and their snapshots have in common; weight_operand.pyx has the documentation.
from typing import Any

from typing_extensions import disjoint_base

@disjoint_base
class WeightOperand:
    def __getattr__(self, name: str) -> Any: ...  # what Weight and its snapshots have

def is_weight(b: object) -> bool: ...
def snapshot_of(b: Any) -> Any: ...
