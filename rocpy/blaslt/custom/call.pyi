# SPDX-License-Identifier: MIT
# Types of the function form with an epilogue of the user's; call.pyx has the documentation.
from typing import Any

from rocpy.blaslt.model.executable import Executable
from rocpy.blaslt.model.product_call import ProductCall

__all__ = ["by_algorithm", "executable_of"]

def executable_of(call: ProductCall, tuning: int) -> Executable | None: ...
def by_algorithm(call: ProductCall) -> Any: ...
