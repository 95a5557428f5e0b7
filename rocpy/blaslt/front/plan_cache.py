# SPDX-License-Identifier: MIT
"""rocpy.plan_cache: the plans that ``rocpy.matmul`` caches."""

from __future__ import annotations

from rocpy._integers import integer_of
from rocpy._messages.keywords import suggest_keywords_in
from rocpy.blaslt.front import _plan_cache
from rocpy.errors import InvalidProblemError

__all__ = ["clear", "handles", "info", "live_plans", "resize"]


def info() -> dict[str, int]:
    """Return the ``hits`` and ``misses`` since the last :func:`clear`, and the cache's ``size`` and ``capacity``.

    Examples
    --------
    >>> import rocpy
    >>> sorted(rocpy.plan_cache.info())
    ['capacity', 'hits', 'misses', 'size']
    """
    return _plan_cache.info()


def clear() -> None:
    """Drop every plan, and the handles and workspaces that no call is using; the counters are reset to 0.

    Freeing handles waits for all work of their device; while a collective of it is pending they are not freed.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.plan_cache.clear()
    >>> rocpy.plan_cache.info()["size"]
    0
    """
    _plan_cache.clear()


def resize(capacity: int) -> None:
    """Set how many plans are cached.

    Parameters
    ----------
    capacity
        Number of plans; 0 disables the cache. The default is ``ROCPY_PLAN_CACHE``.

    Raises
    ------
    InvalidProblemError
        If `capacity` is not a number of plans.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.plan_cache.resize(rocpy.plan_cache.info()["capacity"])
    """
    number = integer_of(capacity)
    if number is None or not 0 <= number < 2**63:
        raise InvalidProblemError(f"capacity: got {capacity!r}, expected a number of plans, 0 or more")
    _plan_cache.resize(number)


def handles() -> int:
    """Return how many hipBLASLt handles are kept, each with its workspace.

    There is one for each device and stream in use. The next stream or graph of the device takes over that of a stream
    that was idle when it was closed, or of a graph that is gone. At most 256 idle ones are kept, or 64 while half of
    the device's memory is in use: a product that needs another one then frees those used least recently. That waits
    for the device, and is left while a collective of it is pending. :func:`clear` frees all that are idle.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.plan_cache.clear()
    >>> rocpy.plan_cache.handles()
    0
    """
    return _plan_cache.handles()


def live_plans() -> int:
    """Return how many plans exist, in the cache and outside it.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.plan_cache.live_plans() >= rocpy.plan_cache.info()["size"]
    True
    """
    return _plan_cache.live_plans()


suggest_keywords_in(globals(), __all__)
