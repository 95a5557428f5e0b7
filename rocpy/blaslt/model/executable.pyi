# SPDX-License-Identifier: MIT
# Types of how products with epilogues of the user's are computed; executable.pyx has the documentation.
from typing import Any

from typing_extensions import disjoint_base

from rocpy.blaslt.model.product_call import ProductCall

__all__ = ["Executable"]

@disjoint_base
class Executable:
    # The function bound to its inputs.
    @property
    def bound(self) -> Any: ...
    @property
    def single(self) -> bool: ...
    def __init__(self, bound: Any) -> None: ...
    def begin(self, call: ProductCall) -> ProductCall | None: ...
    def finish(self, call: ProductCall, base: Any) -> tuple[Any, ...]: ...
