# SPDX-License-Identifier: MIT
"""The choice of a planned product's kind: nothing else knows all of them."""

from __future__ import annotations

from typing import Any

from rocpy.blaslt.composed.plan import ComposedProduct
from rocpy.blaslt.model.epilogues import is_custom
from rocpy.blaslt.model.planned_product import PlannedProduct

__all__ = ["forced_product", "planned_product"]


def planned_product(a: Any, b: Any, /, c: Any = None, **arguments: Any) -> PlannedProduct:
    """Return the planned product of these arguments, which are those of :class:`rocpy.Matmul`."""
    if is_custom(arguments.get("epilogue")):
        from rocpy.blaslt.custom.plan import CustomProduct  # a product without such an epilogue needs none of it

        return CustomProduct(a, b, c, **arguments)
    return ComposedProduct(a, b, c, **arguments)


def forced_product(a: Any, b: Any, c: Any, algorithm: Any, out: Any, stream: Any, arguments: dict[str, Any]) -> Any:
    """Run a product by the algorithm that the user names."""
    with planned_product(a, b, c, stream=stream, **arguments) as product:
        return product.execute(out=out, algorithm=algorithm)
