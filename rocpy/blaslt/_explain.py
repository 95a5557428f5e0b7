# SPDX-License-Identifier: MIT
"""explain: how a product, or a grouped one, would be computed."""

from __future__ import annotations

from typing import Any

from rocpy._messages.suggestions import check_keywords, keywords_of
from rocpy.blaslt.front.explain_product import explain_product
from rocpy.blaslt.front.stateful import Matmul

__all__ = ["explain"]


def explain(a: Any, b: Any, /, c: Any = None, **arguments: Any) -> Any:
    """Return how ``rocpy.matmul`` or ``rocpy.grouped_matmul`` would compute these arguments, without computing it.

    Parameters
    ----------
    a, b, c
        Operands as for :func:`rocpy.matmul`.
    **arguments
        Keyword arguments of :func:`rocpy.matmul` except ``out``; with lists as a or b, or ``offsets=``, those of
        :func:`rocpy.grouped_matmul`.

    Returns
    -------
    Explanation or GroupedExplanation
        Platform, algorithm, lowering, workspace in bytes, and where the choice came from; of groups, one for each
        launch.

    Raises
    ------
    RocpyError
        What the product itself would raise.

    References
    ----------
    ``hipblasLtMatmulAlgoGetHeuristic``.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> x = np.ones((8, 16), np.float32)
    >>> print(rocpy.explain(x, rocpy.Weight(np.ones((16, 4), np.float32))).algorithm.lowering)
    native
    """
    if "offsets" in arguments or isinstance(a, list | tuple) or isinstance(b, list | tuple):
        from rocpy.blaslt.grouped.explain import explain_groups  # a plain product needs none of it
        from rocpy.blaslt.grouped.function import grouped_matmul

        check_keywords("explain", arguments, keywords_of(grouped_matmul))
        return explain_groups(a, b, **arguments)
    check_keywords("explain", arguments, [*keywords_of(Matmul), "algorithm", "autotune"])
    return explain_product(a, b, c, **arguments)
