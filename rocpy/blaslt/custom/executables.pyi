# SPDX-License-Identifier: MIT
# Types of how products with epilogues of the user's are computed; executables.pyx has the documentation.
from collections.abc import Mapping
from typing import Any

from typing_extensions import disjoint_base

from rocpy.blaslt.custom.binding import Bound
from rocpy.blaslt.custom.fused import Fused
from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.executable import Executable
from rocpy.blaslt.model.product_call import ProductCall
from rocpy.epilogues.lowering.match import NativeForm

__all__ = ["LibraryExecutable", "TileExecutable", "native_call", "planned_call"]

@disjoint_base
class LibraryExecutable(Executable):
    def __init__(
        self,
        bound: Bound,
        form: NativeForm,
        dtype: str,
        unit_scales: Mapping[str, float],
        rest: Any = None,
        algorithm: Algorithm | None = None,
    ) -> None: ...

@disjoint_base
class TileExecutable(Executable):
    def __init__(self, bound: Bound, fused: Fused, rank: int) -> None: ...
    def algorithms(self, call: ProductCall, requested: int) -> list[Algorithm]: ...

def native_call(form: NativeForm, call: ProductCall) -> ProductCall: ...
def planned_call(
    operands: dict[str, Any],
    inputs: dict[str, Any],
    alpha: Any,
    beta: Any,
    settings: dict[str, Any],
    options: Any,
    stream: Any,
    outs: tuple[Any, ...],
) -> ProductCall: ...
