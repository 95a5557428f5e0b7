# SPDX-License-Identifier: MIT
# Types of what grouped_matmul's operator for torch calls, and rocpy.explain.
from typing import Any

from rocpy.blaslt.model.explanation import GroupedExplanation

def compute_packed(a: Any, b: Any, **arguments: Any) -> Any: ...
def explain_packed(**arguments: Any) -> GroupedExplanation: ...
