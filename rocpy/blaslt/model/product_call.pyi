# SPDX-License-Identifier: MIT
# Types of a product's arguments; product_call.pyx has the documentation.
from collections.abc import Mapping
from typing import Any, Self

from typing_extensions import disjoint_base

from rocpy.blaslt.model.scale_arguments import ScaleArguments

__all__ = ["ProductCall"]

@disjoint_base
class ProductCall:
    a: Any
    b: Any
    c: Any
    bias: Any
    aux: Any
    out: Any
    alpha: Any
    beta: Any
    epilogue: Any
    inputs: Mapping[str, Any]
    clamp: Any
    dtype: Any
    compute: Any
    options: Any
    stream: Any
    scales: ScaleArguments | None
    algorithm: Any
    def __init__(self, a: Any = None, b: Any = None, c: Any = None, **arguments: Any) -> None: ...
    def replaced(self, **changes: Any) -> Self: ...
