# SPDX-License-Identifier: MIT
"""The table of primitives: one record each, which its name in kernels, its code and its tests are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from rocpy.cooperative._device import outside

F = TypeVar("F", bound=Callable[..., Any])

SCALAR, THREAD_DATA = "scalar", "ThreadData"


@dataclass(frozen=True)
class Primitive:
    """One primitive of blocks and warps.

    Attributes
    ----------
    name
        As in ``coop.<name>``.
    function
        What kernels name; its signature is the primitive's.
    payloads
        Kinds of values that it takes: ``"scalar"``, ``"ThreadData"``.
    defined
        Where its result is defined: ``"first"``, rank 0 unless ``all=True``; ``"all"``; ``"ranks < k"``.
    family
        Page of the guide and oracle that it belongs to.
    """

    name: str
    function: Callable[..., Any]
    payloads: tuple[str, ...]
    defined: str
    family: str


PRIMITIVES: dict[str, Primitive] = {}


def primitive(
    family: str, *, payloads: tuple[str, ...] = (SCALAR, THREAD_DATA), defined: str = "all"
) -> Callable[[F], F]:
    """Make a record of a function that has a signature and a docstring."""

    def register(function: F) -> F:
        name = function.__name__
        PRIMITIVES[name] = Primitive(name, function, payloads, defined, family)
        return function

    return register


@primitive("reduce", defined="first")
def reduce(group: Any, value: Any, op: Any, *, valid_items: Any = None, all: bool = False) -> Any:  # noqa: A002
    """Combine the values of the group's threads, from left to right, as a tree of neighbours.

    Parameters
    ----------
    group
        ``coop.this_block()`` or ``coop.this_warp(width)``.
    value
        A number of each thread, or a `ThreadData`, all of whose elements count.
    op
        ``"+"``, ``"*"``, ``"min"``, ``"max"``, ``"&"``, ``"|"``, ``"^"``, a numpy ufunc, or a Python function of two
        values. It must be associative; it need not be commutative.
    valid_items
        How many threads, counted from rank 0, take part; the same in each. Scalars only.
    all
        Whether each thread gets the result; otherwise it is defined in rank 0 alone.

    Returns
    -------
    number
        Of the type of `value`.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
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


def _like_reduce(name: str, what: str) -> Callable[..., Any]:
    def function(group: Any, value: Any, *, valid_items: Any = None, all: bool = False) -> Any:  # noqa: A002
        outside(name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Return the {what} of the values of the group's threads.

    Parameters
    ----------
    group
        ``coop.this_block()`` or ``coop.this_warp(width)``.
    value
        A number of each thread, or a `ThreadData`, all of whose elements count.
    valid_items
        How many threads, counted from rank 0, take part; the same in each. Scalars only.
    all
        Whether each thread gets the result; otherwise it is defined in rank 0 alone.

    Returns
    -------
    number
        Of the type of `value`.

    See Also
    --------
    reduce : the general form, with an example.
    """
    return primitive("reduce", defined="first")(function)


sum = _like_reduce("sum", "sum")  # noqa: A001
min = _like_reduce("min", "least")  # noqa: A001
max = _like_reduce("max", "greatest")  # noqa: A001

_SCAN = """{first}

    Parameters
    ----------
    group
        ``coop.this_block()`` or ``coop.this_warp(width)``.
    value
        A number of each thread, or a `ThreadData`; then the items are ordered by thread, and within it by index.{op}
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
    number or ThreadData, or a tuple of that and the aggregate
        Of the type of `value`. A returned ThreadData holds until the same call runs again.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def scan(x, out):
    ...     i = coop.threadIdx.x
    ...     out[i] = coop.{example}
    >>> out = np.empty(5, np.int64)
    >>> scan[1, 5](np.arange(1, 6), out)
    >>> out.tolist()
    {result}
    """

_OP = """
    op
        ``"+"``, ``"*"``, ``"min"``, ``"max"``, ``"&"``, ``"|"``, ``"^"``, a numpy ufunc, or a Python function of two
        values. It must be associative; it need not be commutative."""


def _scan(name: str, first: str, missing: str, example: str, result: str, *, has_op: bool) -> Callable[..., Any]:
    function: Callable[..., Any]
    if has_op:

        def function(
            group: Any,
            value: Any,
            op: Any,
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
    function.__doc__ = _SCAN.format(
        first=first, op=_OP if has_op else "", missing=missing, example=example, result=result
    )
    return primitive("scan")(function)


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
