# SPDX-License-Identifier: MIT
"""Primitives that move values between threads and memory: shuffle, broadcast, votes, load, store, exchange."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocpy.cooperative.api.device import outside
from rocpy.cooperative.api.table import SCALAR, THREAD_DATA, primitive

# What the package exports of this module.
__all__ = [
    "all",
    "any",
    "ballot",
    "broadcast",
    "exchange",
    "load",
    "match",
    "shuffle",
    "store",
]


@primitive("shuffle", "dtype mode", payloads=(SCALAR,))
def shuffle(group: Any, value: Any, mode: str, distance: Any) -> Any:
    """Return the value of another thread of the group.

    Parameters
    ----------
    {group}
    value
        A number of each thread.
    mode
        The rank whose value a thread of rank r receives: ``"up"``: r - distance; ``"down"`` and ``"offset"``: r +
        distance, which may be negative for ``"offset"``; ``"rotate"``: (r + distance) modulo the size; ``"xor"``: r ^
        distance; ``"index"``: distance itself. A thread whose source is outside the group keeps its own value.
    distance
        An integer, which may differ between threads.

    Returns
    -------
    number
        Of the type of `value`.

    {setup}
    ... def shift(x):
    ...     i = coop.threadIdx.x
    ...     x[i] = coop.shuffle(coop.this_block(), x[i], "rotate", 1)
    >>> x = np.arange(5)
    >>> shift[1, 5](x)
    >>> x.tolist()
    [1, 2, 3, 4, 0]
    """
    outside("shuffle")


@primitive("shuffle", "dtype items")
def broadcast(group: Any, value: Any, source: Any = 0) -> Any:
    """Return the value of one thread of the group, in each thread.

    Parameters
    ----------
    {group}
    value
        A number or a `ThreadData` of each thread.
    source
        Rank of the thread whose value is returned; the same in each thread.

    Returns
    -------
    number or ThreadData
        {fresh}

    {setup}
    ... def last(x):
    ...     i = coop.threadIdx.x
    ...     x[i] = coop.broadcast(coop.this_block(), x[i], 4)
    >>> x = np.arange(5)
    >>> last[1, 5](x)
    >>> x.tolist()
    [4, 4, 4, 4, 4]
    """
    outside("broadcast")


def _vote(name: str, what: str, result: str) -> Callable[..., bool]:
    def function(group: Any, value: Any) -> bool:
        """Return, in each thread, whether `value` is true in {what} of the group.

        Parameters
        ----------
        {group}
        value
            A condition of each thread.

        Returns
        -------
        bool

        {setup}
        ... def vote(x, out):
        ...     out[coop.threadIdx.x] = coop.{name}(coop.this_block(), x[coop.threadIdx.x] > 1)
        >>> out = np.zeros(3, bool)
        >>> vote[1, 3](np.array([1, 2, 3]), out)
        >>> out.tolist()
        [{result}, {result}, {result}]
        """
        outside(name)

    function.__name__ = function.__qualname__ = name
    return primitive("vote", "", payloads=(SCALAR,), marks={"what": what, "name": name, "result": result})(function)


any = _vote("any", "any thread", "True")  # noqa: A001
all = _vote("all", "every thread", "False")  # noqa: A001


@primitive("vote", "", payloads=(SCALAR,))
def ballot(group: Any, value: Any) -> int:
    """Return, in each thread, a 64-bit mask of the ranks of the warp for which `value` is true.

    Parameters
    ----------
    {warp}
    value
        A condition of each thread.

    Returns
    -------
    int
        A uint64; bit r belongs to rank r.

    {setup}
    ... def odd(x, out):
    ...     out[coop.threadIdx.x] = coop.ballot(coop.this_warp(), x[coop.threadIdx.x] % 2 == 1)
    >>> out = np.zeros(4, np.uint64)
    >>> odd[1, 4](np.array([1, 2, 3, 4]), out)
    >>> [bin(mask) for mask in out]
    ['0b101', '0b101', '0b101', '0b101']
    """
    outside("ballot")


@primitive("vote", "dtype", payloads=(SCALAR,))
def match(group: Any, value: Any) -> int:
    """Return a 64-bit mask of the ranks of the warp whose value is the thread's own.

    Parameters
    ----------
    {warp}
    value
        A number of each thread.

    Returns
    -------
    int
        A uint64; bit r belongs to rank r.

    {setup}
    ... def same(x, out):
    ...     out[coop.threadIdx.x] = coop.match(coop.this_warp(), x[coop.threadIdx.x])
    >>> out = np.zeros(3, np.uint64)
    >>> same[1, 3](np.array([5, 6, 5]), out)
    >>> [bin(mask) for mask in out]
    ['0b101', '0b10', '0b101']
    """
    outside("match")


@primitive("memory", "dtype items algorithm", payloads=(THREAD_DATA,))
def load(
    group: Any,
    source: Any,
    out: Any,
    *,
    algorithm: str = "direct",
    valid_items: Any = None,
    oob_default: Any = None,
    offset: Any = 0,
) -> None:
    """Fill each thread's `ThreadData` from a tile of an array.

    Parameters
    ----------
    group
        ``coop.this_block()`` or ``coop.this_warp(width)``; the tile has ``group.size() * n`` elements.
    source
        Array of one dimension.
    out
        `ThreadData` of n elements.
    algorithm
        ``"striped"``: element k of rank r is ``source[offset + k * size + r]``. ``"direct"``, ``"vectorize"``,
        ``"transpose"`` and ``"warp_transpose"``: it is ``source[offset + r * n + k]``; they differ in how a GPU reads
        memory. The transposes need every thread of the group.
    valid_items
        Number of valid elements in the tile; the others are not read. 0 or less: none.
    oob_default
        Value of those elements; without it they are unchanged.
    offset
        Where the tile begins.

    {setup}
    ... def sums(x, out):
    ...     items = coop.ThreadData(2, np.int64)
    ...     coop.load(coop.this_block(), x, items, algorithm="striped", valid_items=5, oob_default=0)
    ...     out[coop.threadIdx.x] = items[0] + items[1]
    >>> out = np.zeros(3, np.int64)
    >>> sums[1, 3](np.array([1, 2, 3, 10, 20]), out)
    >>> out.tolist()
    [11, 22, 3]
    """
    outside("load")


@primitive("memory", "dtype items algorithm", payloads=(SCALAR, THREAD_DATA))
def store(
    group: Any, target: Any, value: Any, *, algorithm: str = "direct", valid_items: Any = None, offset: Any = 0
) -> None:
    """Write each thread's items to a tile of an array: the inverse of `load`.

    Parameters
    ----------
    {group}
    target
        Array of one dimension.
    value
        A `ThreadData`, or a number, which is one item.
    algorithm
        As for `load`.
    valid_items
        Number of valid elements in the tile; the others are not written. 0 or less: none.
    offset
        Where the tile begins.

    {setup}
    ... def twice(out):
    ...     items = coop.ThreadData(2, np.int64)
    ...     items[0] = items[1] = coop.threadIdx.x
    ...     coop.store(coop.this_block(), out, items, algorithm="striped", valid_items=5)
    >>> out = np.zeros(5, np.int64)
    >>> twice[1, 3](out)
    >>> out.tolist()
    [0, 1, 2, 0, 1]
    """
    outside("store")


@primitive("exchange", "dtype items mode", payloads=(THREAD_DATA,))
def exchange(group: Any, value: Any, mode: str, *, ranks: Any = None, flags: Any = None) -> Any:
    """Return the items of the group in another arrangement.

    Parameters
    ----------
    {group}
    value
        `ThreadData` of n items. Blocked: item k of rank r has index ``r * n + k``; striped: index ``k * size + r``;
        warp-striped: striped within each warp, whose items are contiguous.
    mode
        ``"blocked_to_striped"``, ``"striped_to_blocked"``, ``"blocked_to_warp_striped"``,
        ``"warp_striped_to_blocked"``; ``"scatter_to_blocked"`` and ``"scatter_to_striped"`` take each item's new index
        from `ranks`; so do ``"scatter_to_striped_guarded"``, which drops items of a negative rank, and
        ``"scatter_to_striped_flagged"``, which drops those whose flag is 0.
    ranks
        `ThreadData` of n integers, all different within the group; for scatters only. Elements of the result to which
        no item is moved are undefined.
    flags
        `ThreadData` of n integers or booleans; for ``"scatter_to_striped_flagged"`` only.

    Returns
    -------
    ThreadData
        {fresh}

    {setup}
    ... def stripe(x, out):
    ...     items = coop.ThreadData(2, np.int64)
    ...     coop.load(coop.this_block(), x, items)
    ...     coop.store(coop.this_block(), out, coop.exchange(coop.this_block(), items, "blocked_to_striped"))
    >>> out = np.zeros(6, np.int64)
    >>> stripe[1, 3](np.arange(6), out)
    >>> out.tolist()
    [0, 3, 1, 4, 2, 5]
    """
    outside("exchange")
