# SPDX-License-Identifier: MIT
# Types of what the function form calls.
from collections.abc import Mapping
from typing import Any

def run(preparation: Any) -> Any: ...
def compute_product(
    a: Any,
    b: Any,
    /,
    c: Any = None,
    *,
    alpha: complex = 1.0,
    beta: complex | None = None,
    epilogue: Any = None,
    bias: Any = None,
    aux: Any = None,
    clamp: tuple[float, float] | None = None,
    epilogue_inputs: Mapping[str, Any] | None = None,
    dtype: Any = None,
    compute: Any = None,
    options: Any = None,
) -> Any: ...
