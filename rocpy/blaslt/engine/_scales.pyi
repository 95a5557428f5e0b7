# SPDX-License-Identifier: MIT
# Types of what other modules ask of scales; _scales.pyx has the documentation.
from typing import Any

def repeated(value: Any, like: Any, count: int) -> Any: ...
