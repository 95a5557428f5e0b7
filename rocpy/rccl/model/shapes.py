# SPDX-License-Identifier: MIT
"""Shapes of results: what is gathered is stacked along the first axis, what is given out is cut along it."""

from __future__ import annotations

from rocpy.errors import InvalidProblemError

_STACKED = ("all_gather", "gather")
_CUT = ("reduce_scatter", "scatter")
_TRADED = ("all_to_all",)


def result_shape(op: str, shape: tuple[int, ...], nranks: int, has_input: bool = True) -> tuple[int, ...]:
    """Return the shape of a collective's result.

    Parameters
    ----------
    op
        The collective.
    shape
        Shape of the input; of the result itself where there is no input (a scatter's other ranks).
    nranks
        How many ranks there are.
    has_input
        Whether `shape` is that of the input.

    Raises
    ------
    InvalidProblemError
        The first axis cannot be cut into a part for each rank.

    Examples
    --------
    >>> from rocpy.rccl.model.shapes import result_shape
    >>> result_shape("all_gather", (2, 3), 4), result_shape("reduce_scatter", (8, 3), 4)
    ((8, 3), (2, 3))
    """
    if not has_input:
        return shape
    if op in _STACKED:
        return (nranks * shape[0], *shape[1:]) if shape else (nranks,)
    if op in _CUT or op in _TRADED:
        if not shape or shape[0] % nranks:
            raise InvalidProblemError(
                f"x: shape {shape} cannot be split along its first axis into one part for each of {nranks} ranks"
            )
        return (shape[0] // nranks, *shape[1:]) if op in _CUT else shape
    return shape
