# SPDX-License-Identifier: MIT
"""Primitives that move values between threads and memory: shuffle, broadcast, votes, load, store, exchange."""

from __future__ import annotations

from typing import Any

from rocpy.cooperative._device import outside
from rocpy.cooperative._primitives import SCALAR, THREAD_DATA, primitive


@primitive("shuffle", payloads=(SCALAR,))
def shuffle(group: Any, value: Any, mode: str, distance: Any) -> Any:
    """Return the value of another thread of the group.

    Parameters
    ----------
    group
        ``coop.this_block()`` or ``coop.this_warp(width)``.
    value
        A number of each thread.
    mode
        Whose value a thread of rank r gets: ``"up"``: r - distance; ``"down"`` and ``"offset"``: r + distance, which
        ``"offset"`` takes negative too; ``"rotate"``: (r + distance) modulo the size; ``"xor"``: r ^ distance;
        ``"index"``: distance itself. A thread whose source is outside the group keeps its own value.
    distance
        An integer; threads may give different ones.

    Returns
    -------
    number
        Of the type of `value`.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def shift(x):
    ...     i = coop.threadIdx.x
    ...     x[i] = coop.shuffle(coop.this_block(), x[i], "rotate", 1)
    >>> x = np.arange(5)
    >>> shift[1, 5](x)
    >>> x.tolist()
    [1, 2, 3, 4, 0]
    """
    outside("shuffle")


@primitive("shuffle")
def broadcast(group: Any, value: Any, source: Any = 0) -> Any:
    """Return the value of one thread of the group, in each thread.

    Parameters
    ----------
    group
        ``coop.this_block()`` or ``coop.this_warp(width)``.
    value
        A number or a `ThreadData` of each thread.
    source
        Rank of the thread whose value is taken; the same in each thread.

    Returns
    -------
    number or ThreadData
        Of the type of `value`. A returned ThreadData holds until the same call runs again.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def last(x):
    ...     i = coop.threadIdx.x
    ...     x[i] = coop.broadcast(coop.this_block(), x[i], 4)
    >>> x = np.arange(5)
    >>> last[1, 5](x)
    >>> x.tolist()
    [4, 4, 4, 4, 4]
    """
    outside("broadcast")


@primitive("vote", payloads=(SCALAR,))
def any(group: Any, value: Any) -> bool:  # noqa: A001
    """Return, in each thread, whether `value` is true in any thread of the group.

    Parameters
    ----------
    group
        ``coop.this_block()`` or ``coop.this_warp(width)``.
    value
        A condition of each thread.
    """
    outside("any")


@primitive("vote", payloads=(SCALAR,))
def all(group: Any, value: Any) -> bool:  # noqa: A001
    """Return, in each thread, whether `value` is true in every thread of the group.

    Parameters
    ----------
    group
        ``coop.this_block()`` or ``coop.this_warp(width)``.
    value
        A condition of each thread.
    """
    outside("all")


@primitive("vote", payloads=(SCALAR,))
def ballot(group: Any, value: Any) -> int:
    """Return, in each thread, a 64-bit mask of the ranks of the warp for which `value` is true.

    Parameters
    ----------
    group
        ``coop.this_warp(width)``.
    value
        A condition of each thread.

    Returns
    -------
    int
        A uint64; bit r belongs to rank r.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def odd(x, out):
    ...     out[coop.threadIdx.x] = coop.ballot(coop.this_warp(), x[coop.threadIdx.x] % 2 == 1)
    >>> out = np.zeros(4, np.uint64)
    >>> odd[1, 4](np.array([1, 2, 3, 4]), out)
    >>> [bin(mask) for mask in out]
    ['0b101', '0b101', '0b101', '0b101']
    """
    outside("ballot")


@primitive("vote", payloads=(SCALAR,))
def match(group: Any, value: Any) -> int:
    """Return a 64-bit mask of the ranks of the warp whose value is the thread's own.

    Parameters
    ----------
    group
        ``coop.this_warp(width)``.
    value
        A number of each thread.

    Returns
    -------
    int
        A uint64; bit r belongs to rank r.
    """
    outside("match")


@primitive("memory", payloads=(THREAD_DATA,))
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
        ``"transpose"`` and ``"warp_transpose"``: it is ``source[offset + r * n + k]``; they differ in how a GPU reads.
        The transposes need every thread of the group.
    valid_items
        How many elements of the tile there are; the others are not read.
    oob_default
        What those get; without it they keep what they held.
    offset
        Where the tile begins.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
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


@primitive("memory", payloads=(SCALAR, THREAD_DATA))
def store(
    group: Any, target: Any, value: Any, *, algorithm: str = "direct", valid_items: Any = None, offset: Any = 0
) -> None:
    """Write each thread's items to a tile of an array; `load` the other way round.

    Parameters
    ----------
    group
        ``coop.this_block()`` or ``coop.this_warp(width)``.
    target
        Array of one dimension.
    value
        A `ThreadData`, or a number, which is one item.
    algorithm
        As for `load`.
    valid_items
        How many elements of the tile there are; the others are not written.
    offset
        Where the tile begins.
    """
    outside("store")


@primitive("exchange", payloads=(THREAD_DATA,))
def exchange(group: Any, value: Any, mode: str, *, ranks: Any = None) -> Any:
    """Return the items of the group in another arrangement.

    Parameters
    ----------
    group
        ``coop.this_block()`` or ``coop.this_warp(width)``.
    value
        `ThreadData` of n items. Blocked: item k of rank r is number ``r * n + k``; striped: number ``k * size + r``;
        warp-striped: striped within each warp, whose items lie together.
    mode
        ``"blocked_to_striped"``, ``"striped_to_blocked"``, ``"blocked_to_warp_striped"``,
        ``"warp_striped_to_blocked"``; ``"scatter_to_blocked"`` and ``"scatter_to_striped"`` take each item's new number
        from `ranks`.
    ranks
        `ThreadData` of n integers, all different over the group; for the scatters alone.

    Returns
    -------
    ThreadData
        Of the type of `value`; it holds until the same call runs again.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
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
