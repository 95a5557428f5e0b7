# SPDX-License-Identifier: MIT
"""Primitives that order keys: merge sort, radix sort, ranks, and the best few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocpy.cooperative.api.device import outside
from rocpy.cooperative.api.table import PHRASES, primitive

# What the package exports of this module.
__all__ = [
    "merge_sort_keys",
    "merge_sort_pairs",
    "radix_rank",
    "radix_sort_keys",
    "radix_sort_pairs",
    "topk_max_keys",
    "topk_max_pairs",
    "topk_min_keys",
    "topk_min_pairs",
]

_MERGE = {
    "op": (
        'op\n    ``"<"``, ``">"``, or a Python function of two keys: whether the first comes before the '
        "second. With\n    the names a NaN is the greatest."
    ),
    "valid": (
        "valid_items\n    Number of items that are sorted, the same in each thread; the others are unchanged. 0 or\n"
        "    less: none."
    ),
}
_BITS = {
    "bits": (
        "begin_bit, end_bit\n    The range of bits that are compared, from the lowest on; without `end_bit`, to "
        "the highest. A float's bits\n    are those of an integer with the same order; -0 equals 0, and a NaN is "
        "ordered beyond the infinity of its sign."
    ),
    "descending": "descending\n    Whether the greatest key comes first.",
}


@primitive("merge sort", "dtype items op", template="merge_sort", marks=_MERGE)
def merge_sort_keys(group: Any, keys: Any, op: Any = "<", *, valid_items: Any = None) -> Any:
    """Return the group's keys in sorted order; the sort is stable.

    Parameters
    ----------
    {group}
    {keys}
    {op}
    {valid}

    Returns
    -------
    number, structured value or ThreadData
        {fresh_keys}

    {setup}
    ... def order(x):
    ...     x[coop.threadIdx.x] = coop.merge_sort_keys(coop.this_block(), x[coop.threadIdx.x])
    >>> x = np.array([3, 1, 2])
    >>> order[1, 3](x)
    >>> x.tolist()
    [1, 2, 3]
    """
    outside("merge_sort_keys")


@primitive("merge sort", "dtype items op value_dtype", template="merge_sort", marks=_MERGE)
def merge_sort_pairs(group: Any, keys: Any, values: Any, op: Any = "<", *, valid_items: Any = None) -> Any:
    """Return the group's keys in sorted order, and the corresponding values.

    Parameters
    ----------
    {group}
    {keys}
    {values}
    {op}
    {valid}

    Returns
    -------
    tuple
        Keys and values. {fresh_keys}

    {setup}
    ... def order(x, places):
    ...     i = coop.threadIdx.x
    ...     x[i], places[i] = coop.merge_sort_pairs(coop.this_block(), x[i], i, ">")
    >>> x, places = np.array([3, 1, 2]), np.zeros(3, np.int64)
    >>> order[1, 3](x, places)
    >>> x.tolist(), places.tolist()
    ([3, 2, 1], [0, 2, 1])
    """
    outside("merge_sort_pairs")


_STRIPED = {"striped": "blocked_to_striped\n    Whether the sorted items are returned striped."}


@primitive("radix sort", "dtype items descending blocked_to_striped", template="radix_sort", marks=_BITS | _STRIPED)
def radix_sort_keys(
    group: Any,
    keys: Any,
    *,
    descending: bool = False,
    begin_bit: Any = 0,
    end_bit: Any = None,
    blocked_to_striped: bool = False,
) -> Any:
    """Return the group's keys in the order of their bits; the sort is stable.

    Parameters
    ----------
    {group}
    {keys}
    {descending}
    {bits}
    {striped}

    Returns
    -------
    number or ThreadData
        {fresh_keys}

    {setup}
    ... def order(x):
    ...     x[coop.threadIdx.x] = coop.radix_sort_keys(coop.this_block(), x[coop.threadIdx.x], end_bit=4)
    >>> x = np.array([0x13, 0x31, 0x22])
    >>> order[1, 3](x)
    >>> [hex(key) for key in x]
    ['0x31', '0x22', '0x13']
    """
    outside("radix_sort_keys")


@primitive(
    "radix sort", "dtype items descending blocked_to_striped value_dtype", template="radix_sort", marks=_BITS | _STRIPED
)
def radix_sort_pairs(
    group: Any,
    keys: Any,
    values: Any,
    *,
    descending: bool = False,
    begin_bit: Any = 0,
    end_bit: Any = None,
    blocked_to_striped: bool = False,
) -> Any:
    """Return the group's keys in the order of their bits, and the corresponding values.

    Parameters
    ----------
    {group}
    {keys}
    {values}
    {descending}
    {bits}
    {striped}

    Returns
    -------
    tuple
        Keys and values. {fresh_keys}

    {setup}
    ... def order(x, places):
    ...     i = coop.threadIdx.x
    ...     x[i], places[i] = coop.radix_sort_pairs(coop.this_block(), x[i], i, descending=True)
    >>> x, places = np.array([1.5, -1.0, 2.0]), np.zeros(3, np.int64)
    >>> order[1, 3](x, places)
    >>> x.tolist(), places.tolist()
    ([2.0, 1.5, -1.0], [2, 0, 1])
    """
    outside("radix_sort_pairs")


@primitive("radix sort", "dtype items descending", marks=_BITS)
def radix_rank(group: Any, keys: Any, *, descending: bool = False, begin_bit: Any = 0, end_bit: Any = None) -> Any:
    """Return the index that each key would have after a radix sort.

    Parameters
    ----------
    {group}
    {keys}
    {descending}
    {bits}

    Returns
    -------
    int32 or ThreadData of int32
        A ThreadData is valid until the same call runs again.

    {setup}
    ... def rank(x, out):
    ...     out[coop.threadIdx.x] = coop.radix_rank(coop.this_block(), x[coop.threadIdx.x])
    >>> out = np.zeros(3, np.int32)
    >>> rank[1, 3](np.array([30, 10, 20]), out)
    >>> out.tolist()
    [2, 0, 1]
    """
    outside("radix_rank")


_TOP = {
    "k": "k\n    The number of keys, 0 or more, the same in each thread.",
    "valid": (
        "valid_items\n    Number of valid items, the same in each thread; the others are ignored. 0 or less: none."
    ),
    "rest": (
        "The best come first, equal ones in their order; items from ``min(k, valid_items)`` on are undefined.\n"
        "    " + PHRASES["fresh_keys"]
    ),
}


def _topk(what: str, example: str, result: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    side = "max" if what == "greatest" else "min"
    marks = _TOP | {"what": what, "side": side, "example": example, "result": result}

    def keys_only(group: Any, keys: Any, k: Any, *, valid_items: Any = None) -> Any:
        """Return the k {what} keys of the group, in order. A NaN counts as the greatest.

        Parameters
        ----------
        {group}
        {keys}
        {k}
        {valid}

        Returns
        -------
        number or ThreadData
            {rest}

        {setup}
        ... def best(x, out):
        ...     found = coop.topk_{side}_keys(coop.this_block(), x[coop.threadIdx.x], 2)
        ...     if coop.threadIdx.x < 2:
        ...         out[coop.threadIdx.x] = found
        >>> out = np.zeros(2, np.int64)
        >>> best[1, 4](np.array([3, 1, 4, 2]), out)
        >>> out.tolist()
        {example}
        """
        outside(f"topk_{side}_keys")

    def pairs(group: Any, keys: Any, values: Any, k: Any, *, valid_items: Any = None) -> Any:
        """Return the k {what} keys of the group, in order, and the values that go with them.

        Parameters
        ----------
        {group}
        {keys}
        {values}
        {k}
        {valid}

        Returns
        -------
        tuple
            Keys and values. {rest}

        {setup}
        ... def best(x, out):
        ...     i = coop.threadIdx.x
        ...     key, place = coop.topk_{side}_pairs(coop.this_block(), x[i], i, 2)
        ...     if i < 2:
        ...         out[i] = place
        >>> out = np.zeros(2, np.int64)
        >>> best[1, 4](np.array([3, 1, 4, 2]), out)
        >>> out.tolist()
        {result}
        """
        outside(f"topk_{side}_pairs")

    recorded = []
    for function, choices, ending in ((keys_only, "", "keys"), (pairs, " value_dtype", "pairs")):
        function.__name__ = function.__qualname__ = f"topk_{side}_{ending}"
        record = primitive("top-k", "dtype items greatest" + choices, defined="some", template="topk", marks=marks)
        recorded.append(record(function))
    return recorded[0], recorded[1]


topk_max_keys, topk_max_pairs = _topk("greatest", "[4, 3]", "[2, 0]")
topk_min_keys, topk_min_pairs = _topk("least", "[1, 2]", "[1, 3]")
