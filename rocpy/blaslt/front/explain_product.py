# SPDX-License-Identifier: MIT
"""How one product would be computed, without computing it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from rocpy import platform
from rocpy.blaslt.front.planned import planned_product
from rocpy.blaslt.model.explanation import Explanation
from rocpy.blaslt.model.lowering import lower
from rocpy.blaslt.model.planned_product import PlannedProduct
from rocpy.blaslt.model.settings import ARRAYS
from rocpy.blaslt.selection.tuning_state import override


def explain_product(a: Any, b: Any, /, c: Any = None, **arguments: Any) -> Explanation:
    """Return how ``rocpy.matmul`` would compute these arguments, without computing it."""
    autotune, pinned = arguments.pop("autotune", None), arguments.pop("algorithm", None)
    as_asked = nullcontext() if autotune is None else override(autotune)
    with as_asked, planned_product(a, b, c, **arguments) as product:
        algorithms = product.plan()
        if pinned is not None and algorithms:
            product.pin(pinned)
        algorithm, source = product.choice
        chosen = platform.current()
        return Explanation(
            platform=chosen.name,
            device=product.device_name,
            problem=product.problem,
            algorithm=algorithm,
            candidates=len(algorithms),
            source=source,
            copies=_copied_names(product),
            packed=product.packed,
            unfused=product.why,
            absent=tuple(product.absent.items()),
        )


def _copied_names(product: PlannedProduct) -> tuple[str, ...]:
    """Return what a planned product copies: operands that cannot be read as they are, and a turned result."""
    names = [name for name in ARRAYS if name in {*product.copies, *product.staged, *product.converted}]
    problem = product.problem
    if problem.column_bias and 0 not in problem.result_shape and lower(problem).transposed:
        names.append("result")
    return tuple(names)
