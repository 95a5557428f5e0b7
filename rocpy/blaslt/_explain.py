# SPDX-License-Identifier: MIT
"""explain: how a product, or a grouped one, would be computed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from rocpy._messages.suggestions import check_keywords, keywords_of
from rocpy._operand import TorchLayerRequired, torch_dispatcher
from rocpy.blaslt.front.stateful import Matmul
from rocpy.blaslt.model.explanation import Explanation, GroupedExplanation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias, Unpack

    from rocpy.blaslt.model.call_arguments import ExplainedArguments, GroupedArguments
    from rocpy.blaslt.operands.weight import Weight
    from rocpy.typing import ArrayLike

    _Right: TypeAlias = ArrayLike | Weight

__all__ = ["explain"]


@overload
def explain(
    a: ArrayLike, b: _Right, /, c: ArrayLike | None = None, **arguments: Unpack[ExplainedArguments]
) -> Explanation: ...
@overload
def explain(
    a: ArrayLike, b: ArrayLike, /, *, offsets: ArrayLike | Sequence[int], **arguments: Unpack[GroupedArguments]
) -> GroupedExplanation: ...
@overload
def explain(
    a: Sequence[ArrayLike], b: _Right | Sequence[_Right], /, **arguments: Unpack[GroupedArguments]
) -> GroupedExplanation: ...
@overload
def explain(a: ArrayLike, b: Sequence[_Right], /, **arguments: Unpack[GroupedArguments]) -> GroupedExplanation: ...
def explain(a: Any, b: Any, /, c: Any = None, **arguments: Any) -> Explanation | GroupedExplanation:
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
        Platform, algorithm, lowering, workspace in bytes, and the source of the choice; for groups, one explanation per
        launch.

    Raises
    ------
    RocpyError
        The error that the product itself would raise.

    Notes
    -----
    Operands that autograd records or autocast casts are explained as they are computed: cast, and with the epilogue
    that also stores what the gradient reads. Tensors without memory, meta and fake ones, are explained by shape and
    type.

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

        passed = arguments if c is None else {"c": c, **arguments}
        check_keywords("explain", passed, keywords_of(grouped_matmul))
        return _explained(explain_groups, (a, b), arguments)
    from rocpy.blaslt.front.explain_product import explain_product  # here: `import rocpy` is faster without it

    check_keywords("explain", arguments, [*keywords_of(Matmul), "algorithm", "autotune"])
    return _explained(explain_product, (a, b, c), arguments)


def _explained(function: Any, operands: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
    try:
        return function(*operands, **arguments)
    except TorchLayerRequired:
        dispatcher = torch_dispatcher()
        if dispatcher is None:
            raise
    return dispatcher("explain", (function, operands), arguments)
