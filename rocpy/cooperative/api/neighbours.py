# SPDX-License-Identifier: MIT
"""Primitives on neighbouring items and runs: discontinuity, adjacent difference, run-length decode, histogram."""

from __future__ import annotations

from typing import Any

from rocpy.cooperative.api.device import outside
from rocpy.cooperative.api.table import primitive

# What the package exports of this module.
__all__ = [
    "adjacent_difference",
    "discontinuity",
    "histogram",
    "run_length_decode",
    "run_length_decode_into",
]

_TILE = {
    "tile": (
        "tile_predecessor, tile_successor\n    The item before the group's first and the one after its last; only the "
        "values of rank 0 and of the last rank are used."
    )
}


@primitive("discontinuity", "dtype items mode op", marks=_TILE)
def discontinuity(
    group: Any,
    value: Any,
    mode: str = "heads",
    op: Any = "!=",
    *,
    tile_predecessor: Any = None,
    tile_successor: Any = None,
) -> Any:
    """Return flags of where runs of equal items begin or end: 1 there, 0 elsewhere.

    Parameters
    ----------
    {group}
    {value}
    mode
        ``"heads"``: 1 where an item differs from the one before it, and in the first without a `tile_predecessor`;
        ``"tails"``: where it differs from the one after it, and in the last without a `tile_successor`;
        ``"heads_and_tails"``: both.
    op
        ``"!="`` or a Python function of an item and the next: whether a run ends between the two.
    {tile}

    Returns
    -------
    int32 or ThreadData of int32, or a tuple of two
        A ThreadData is valid until the same call runs again.

    {setup}
    ... def heads(x, out):
    ...     out[coop.threadIdx.x] = coop.discontinuity(coop.this_block(), x[coop.threadIdx.x])
    >>> out = np.zeros(5, np.int32)
    >>> heads[1, 5](np.array([7, 7, 8, 8, 7]), out)
    >>> out.tolist()
    [1, 0, 1, 0, 1]
    """
    outside("discontinuity")


@primitive("adjacent difference", "dtype items mode op", marks=_TILE)
def adjacent_difference(
    group: Any,
    value: Any,
    mode: str = "left",
    op: Any = "-",
    *,
    valid_items: Any = None,
    tile_predecessor: Any = None,
    tile_successor: Any = None,
) -> Any:
    """Return each item combined with its neighbour.

    Parameters
    ----------
    {group}
    {value}
    mode
        ``"left"``: with the item before it; the first is unchanged without a `tile_predecessor`. ``"right"``: with the
        item after it; the last is unchanged without a `tile_successor`.
    op
        ``"-"``, a numpy ufunc, or a Python function of the item and its neighbour.
    valid_items
        Number of items, the same in each thread; the others are unchanged. 0 or less: none.
    {tile}

    Returns
    -------
    number, structured value or ThreadData
        {fresh}

    {setup}
    ... def steps(x):
    ...     x[coop.threadIdx.x] = coop.adjacent_difference(coop.this_block(), x[coop.threadIdx.x])
    >>> x = np.array([1, 4, 9, 16])
    >>> steps[1, 4](x)
    >>> x.tolist()
    [1, 3, 5, 7]
    """
    outside("adjacent_difference")


_RUNS = {
    "runs": (
        "value\n    The value of each run: a number or a structured value of each thread, or a `ThreadData`."
        "\nlengths\n    The length of each run, one per value: integers, 0 or more."
    )
}


@primitive("run length", "dtype items decoded relative", defined="some", marks=_RUNS)
def run_length_decode(
    group: Any, value: Any, lengths: Any, items: int, *, window: Any = 0, relative: bool = False
) -> Any:
    """Return a window of the decoded items of runs.

    Parameters
    ----------
    {group}
    {runs}
    items
        Number of decoded items per thread: a literal or a global constant.
    window
        Index of the first decoded item that is returned, 0 or more, the same in each thread.
    relative
        Whether each item's index in its run is returned too.

    Returns
    -------
    tuple
        ThreadData of decoded items, from `window` on, ordered by thread and then by index; with `relative`, a
        ThreadData of int32; and the total number of decoded items. Items beyond that number are undefined. The
        ThreadData are valid until the same call runs again.

    {setup}
    ... def decode(x, lengths, out):
    ...     i = coop.threadIdx.x
    ...     items, total = coop.run_length_decode(coop.this_block(), x[i], lengths[i], 2)
    ...     coop.store(coop.this_block(), out, items, valid_items=total)
    >>> out = np.zeros(5, np.int64)
    >>> decode[1, 3](np.array([7, 8, 9]), np.array([2, 0, 3]), out)
    >>> out.tolist()
    [7, 7, 9, 9, 9]
    """
    outside("run_length_decode")


@primitive("run length", "dtype items", marks=_RUNS)
def run_length_decode_into(group: Any, target: Any, value: Any, lengths: Any, *, offset: Any = 0) -> Any:
    """Write all decoded items of runs into an array.

    Parameters
    ----------
    {group}
    target
        Array of one dimension, of the values' type.
    {runs}
    offset
        Index of the first item in `target`, the same in each thread.

    Returns
    -------
    int64
        The number of items.

    {setup}
    ... def decode(x, lengths, out):
    ...     i = coop.threadIdx.x
    ...     coop.run_length_decode_into(coop.this_block(), out, x[i], lengths[i])
    >>> out = np.zeros(5, np.int64)
    >>> decode[1, 3](np.array([7, 8, 9]), np.array([2, 0, 3]), out)
    >>> out.tolist()
    [7, 7, 9, 9, 9]
    """
    outside("run_length_decode_into")


@primitive("histogram", "dtype items bins bins_per_thread")
def histogram(group: Any, value: Any, *, bins: int, bins_per_thread: int) -> Any:
    """Return how often each number from 0 to ``bins - 1`` occurs among the group's items.

    Parameters
    ----------
    {group}
    value
        Integers: a number of each thread, or a `ThreadData`. A value that is not a bin is an index out of range.
    bins
        Number of bins: a literal or a global constant.
    bins_per_thread
        Number of counters per thread, a literal or a global constant; all threads of the group together need one
        counter per bin.

    Returns
    -------
    ThreadData of int32
        Striped: element k of rank r counts bin ``k * size + r``; those beyond `bins` are 0. It is valid until the same
        call runs again.

    {setup}
    ... def count(x, out):
    ...     counts = coop.histogram(coop.this_block(), x[coop.threadIdx.x], bins=4, bins_per_thread=1)
    ...     coop.store(coop.this_block(), out, counts, algorithm="striped", valid_items=4)
    >>> out = np.zeros(4, np.int32)
    >>> count[1, 6](np.array([0, 1, 3, 3, 1, 3]), out)
    >>> out.tolist()
    [1, 2, 0, 3]
    """
    outside("histogram")
