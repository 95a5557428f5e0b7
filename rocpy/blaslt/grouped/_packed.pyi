# SPDX-License-Identifier: MIT
# Types of what grouped_matmul's operator for torch calls.
from typing import Any

def compute_packed(a: Any, b: Any, **arguments: Any) -> Any: ...
