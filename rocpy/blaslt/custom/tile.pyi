# SPDX-License-Identifier: MIT
# Types of products with tile programs; tile.pyx has the documentation.
from collections.abc import Sequence
from typing import Any

from rocpy.blaslt.engine.program import TileProgram
from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.scale_arguments import ScaleArguments

def product(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    program: TileProgram,
    inputs: Sequence[Any] = (),
    alpha: Any = 1.0,
    beta: Any = None,
    bias: Any = None,
    dtype: Any = None,
    compute: str | None = None,
    scales: ScaleArguments | None = None,
    options: Any = None,
    stream: Any = None,
    rank: int = 0,
) -> tuple[Any, ...]: ...
def algorithms(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    program: TileProgram,
    inputs: Sequence[Any] = (),
    bias: Any = None,
    dtype: Any = None,
    compute: str | None = None,
    scales: ScaleArguments | None = None,
    options: Any = None,
    requested: int = 16,
) -> list[Algorithm]: ...
