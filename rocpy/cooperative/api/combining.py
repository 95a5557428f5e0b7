# SPDX-License-Identifier: MIT
"""Primitives that combine values: reductions of a group, of each slot of its threads, and scans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocpy.cooperative.api.device import outside
from rocpy.cooperative.api.table import PHRASES, THREAD_DATA, primitive

# What the package exports of this module.
__all__ = [
    "exclusive_scan",
    "exclusive_sum",
    "inclusive_scan",
    "inclusive_sum",
    "max",
    "min",
    "reduce",
    "reduce_batched",
    "sum",
]

_REDUCE = "dtype items op all"
_VALID = (
    "valid_items\n    Number of participating threads from rank 0 on, 1 or more; the same in each thread. Scalars only."
)


@primitive("reduce", _REDUCE, defined="first", marks={"valid": _VALID})
def reduce(group: Any, value: Any, op: Any = "+", *, valid_items: Any = None, all: bool = False) -> Any:  # noqa: A002
    """Combine the values of the group's threads, from left to right, in a tree of neighbours.

    Parameters
    ----------
    {group}
    {value}
    {op}
    {valid}
    {all}

    Returns
    -------
    number or structured value
        Of the type of an item.

    {setup}
    ... def product(x, out):
    ...     result = coop.reduce(coop.this_block(), x[coop.threadIdx.x], "*")
    ...     if coop.threadIdx.x == 0:
    ...         out[0] = result
    >>> out = np.empty(1, np.int64)
    >>> product[1, 5](np.arange(1, 6), out)
    >>> int(out[0])
    120
    """
    outside("reduce")


def _like_reduce(name: str, what: str, result: int) -> Callable[..., Any]:
    def function(group: Any, value: Any, *, valid_items: Any = None, all: bool = False) -> Any:  # noqa: A002
        """Return the {what} of the values of the group's threads.

        Parameters
        ----------
        {group}
        {value}
        {valid}
        {all}

        Returns
        -------
        number
            Of the type of an item.

        {setup}
        ... def whole(x, out):
        ...     out[coop.threadIdx.x] = coop.{name}(coop.this_block(), x[coop.threadIdx.x], all=True)
        >>> out = np.empty(3, np.int64)
        >>> whole[1, 3](np.array([4, 1, 2]), out)
        >>> out.tolist()
        [{result}, {result}, {result}]
        """
        outside(name)

    function.__name__ = function.__qualname__ = name
    marks = {"valid": _VALID, "what": what, "name": name, "result": str(result)}
    fill = primitive("reduce", _REDUCE, defined="first", template="reduce", marks=marks)
    return fill(function)


sum = _like_reduce("sum", "sum", 7)  # noqa: A001
min = _like_reduce("min", "least", 1)  # noqa: A001
max = _like_reduce("max", "greatest", 4)  # noqa: A001


@primitive("reduce", _REDUCE, payloads=(THREAD_DATA,), defined="some")
def reduce_batched(group: Any, value: Any, op: Any = "+", *, all: bool = False) -> Any:  # noqa: A002
    """Combine each element of the threads' items separately: as many reductions as a thread has items.

    Parameters
    ----------
    {group}
    value
        `ThreadData` of n items, one per batch.
    {op}
    all
        Whether each thread receives all results, batch k in element k. Otherwise they are striped: element k of rank r
        is batch ``k * size + r``, if there is such a batch; the other elements are undefined.

    Returns
    -------
    ThreadData
        {fresh}

    {setup}
    ... def columns(x, out):
    ...     own = coop.ThreadData(2, np.int64)
    ...     own[0], own[1] = x[coop.threadIdx.x, 0], x[coop.threadIdx.x, 1]
    ...     out[coop.threadIdx.x] = coop.reduce_batched(coop.this_block(), own, "+")[0]
    >>> out = np.empty(2, np.int64)
    >>> columns[1, 2](np.array([[1, 2], [10, 20]]), out)
    >>> out.tolist()
    [11, 22]
    """
    outside("reduce_batched")


_SCAN = """{first}

    Parameters
    ----------
    {group}
    {value}{scan_op}
    initial
        Comes before the first item; without it {missing}.
    aggregate
        Whether the combination of all items, without `initial`, is returned too.
    prefix
        A Python function: ``prefix(state, aggregate)`` is called once, and what it returns comes before the first item,
        in place of `initial`.
    state
        Array of the block or of the grid, which `prefix` may change, so that a loop over tiles carries on.

    Returns
    -------
    number, structured value or ThreadData, or a tuple of that and the aggregate
        {fresh}

    {setup}
    ... def scan(x, out):
    ...     i = coop.threadIdx.x
    ...     out[i] = coop.{example}
    >>> out = np.empty(5, np.int64)
    >>> scan[1, 5](np.arange(1, 6), out)
    >>> out.tolist()
    {result}
    """


def _scan(name: str, first: str, missing: str, example: str, result: str, *, has_op: bool) -> Callable[..., Any]:
    function: Callable[..., Any]
    if has_op:

        def function(
            group: Any,
            value: Any,
            op: Any = "+",
            *,
            initial: Any = None,
            aggregate: bool = False,
            prefix: Any = None,
            state: Any = None,
        ) -> Any:
            outside(name)
    else:

        def function(
            group: Any,
            value: Any,
            *,
            initial: Any = None,
            aggregate: bool = False,
            prefix: Any = None,
            state: Any = None,
        ) -> Any:
            outside(name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _SCAN
    fill = primitive(
        "scan",
        "dtype items op exclusive aggregate",
        template="scan",
        marks={
            "first": first,
            "scan_op": "\n" + PHRASES["op"] if has_op else "",
            "missing": missing,
            "example": example,
            "result": result,
        },
    )
    return fill(function)


_NONE = "the first item stands for itself"
_IDENTITY = "that is 0"
inclusive_scan = _scan(
    "inclusive_scan",
    "Combine, for each item, those before it and itself.",
    _NONE,
    'inclusive_scan(coop.this_block(), x[i], "max")',
    "[1, 2, 3, 4, 5]",
    has_op=True,
)
exclusive_scan = _scan(
    "exclusive_scan",
    "Combine, for each item, those before it.",
    "the first result is the operator's neutral element, which a Python function has none of",
    'exclusive_scan(coop.this_block(), x[i], "*")',
    "[1, 1, 2, 6, 24]",
    has_op=True,
)
inclusive_sum = _scan(
    "inclusive_sum",
    "Add up, for each item, those before it and itself.",
    _IDENTITY,
    "inclusive_sum(coop.this_block(), x[i])",
    "[1, 3, 6, 10, 15]",
    has_op=False,
)
exclusive_sum = _scan(
    "exclusive_sum",
    "Add up, for each item, those before it.",
    _IDENTITY,
    "exclusive_sum(coop.this_block(), x[i])",
    "[0, 1, 3, 6, 10]",
    has_op=False,
)
