# SPDX-License-Identifier: MIT
"""Names available in kernels: thread indices, memory, barriers, atomics, groups. Outside a kernel they raise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from rocpy.errors import UnsupportedError


def outside(name: str) -> NoReturn:
    """Raise: the name means something inside a kernel only."""
    raise UnsupportedError(
        f"coop.{name} can only be used inside a kernel; decorate the function with coop.jit and launch it"
    )


class Index3:
    """Three 32-bit numbers of the current thread, such as ``coop.threadIdx.x``.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def ranks(out):
    ...     out[coop.blockIdx.x, coop.threadIdx.x] = coop.blockIdx.x * coop.blockDim.x + coop.threadIdx.x
    >>> out = np.empty((2, 3), np.int32)
    >>> ranks[2, 3](out)
    >>> out.tolist()
    [[0, 1, 2], [3, 4, 5]]
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"coop.{self.name}"

    @property
    def x(self) -> int:
        """First number."""
        outside(f"{self.name}.x")

    @property
    def y(self) -> int:
        """Second number."""
        outside(f"{self.name}.y")

    @property
    def z(self) -> int:
        """Third number."""
        outside(f"{self.name}.z")


threadIdx = Index3("threadIdx")  # noqa: N816 - the names that kernels have everywhere
blockIdx = Index3("blockIdx")  # noqa: N816
blockDim = Index3("blockDim")  # noqa: N816
gridDim = Index3("gridDim")  # noqa: N816


class Group:
    """Threads that cooperate: a block or a warp. Created by `this_block` and `this_warp`, inside a kernel."""

    def rank(self) -> int:
        """Return the thread's rank in the group, x fastest."""
        outside("this_block().rank")

    def size(self) -> int:
        """Return the number of threads in the group."""
        outside("this_block().size")


def this_block() -> Group:
    """Return the group of all threads of the block.

    Returns
    -------
    Group
        With ``rank()`` and ``size()``.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def total(x, out):
    ...     result = coop.sum(coop.this_block(), x[coop.threadIdx.x])
    ...     if coop.threadIdx.x == 0:
    ...         out[0] = result
    >>> out = np.empty(1, np.int64)
    >>> total[1, 100](np.arange(100), out)
    >>> int(out[0])
    4950
    """
    outside("this_block")


def this_warp(width: int = 0) -> Group:
    """Return the group of the thread's warp, or of an aligned run of `width` ranks in it.

    Parameters
    ----------
    width
        A power of two up to the warp size of the kernel, an option of `jit` (64 by default); 0 for
        that size.

    Returns
    -------
    Group
        With ``rank()`` and ``size()``. The last warp of a block may be incomplete.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def pairs(x, out):
    ...     i = coop.threadIdx.x
    ...     out[i] = coop.sum(coop.this_warp(2), x[i], all=True)
    >>> out = np.empty(6, np.int64)
    >>> pairs[1, 6](np.arange(6), out)
    >>> out.tolist()
    [1, 1, 5, 5, 9, 9]
    """
    outside("this_warp")


def syncthreads() -> None:
    """Wait until every thread of the block that has not returned from the kernel reaches this call.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def reverse(x):
    ...     held = coop.shared.array(4, np.int64)
    ...     i = coop.threadIdx.x
    ...     held[i] = x[i]
    ...     coop.syncthreads()
    ...     x[i] = held[3 - i]
    >>> x = np.arange(4)
    >>> reverse[1, 4](x)
    >>> x.tolist()
    [3, 2, 1, 0]
    """
    outside("syncthreads")


def syncwarp() -> None:
    """Wait until every thread of the warp that has not returned from the kernel reaches this call.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def swap(x):
    ...     held = coop.shared.array(4, np.int64)
    ...     i = coop.threadIdx.x
    ...     held[i] = x[i]
    ...     coop.syncwarp()
    ...     x[i] = held[i ^ 1]
    >>> x = np.arange(4)
    >>> swap[1, 4](x)
    >>> x.tolist()
    [1, 0, 3, 2]
    """
    outside("syncwarp")


def barrier(group: Group) -> None:
    """Wait until every thread of the group that has not returned from the kernel reaches this call.

    Parameters
    ----------
    group
        Block or warp.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def pairs(x):
    ...     held = coop.shared.array(4, np.int64)
    ...     i = coop.threadIdx.x
    ...     held[i] = x[i]
    ...     coop.barrier(coop.this_warp(2))
    ...     x[i] = held[i] + held[i ^ 1]
    >>> x = np.arange(4)
    >>> pairs[1, 4](x)
    >>> x.tolist()
    [1, 1, 5, 5]
    """
    outside("barrier")


def grid(ndim: int) -> Any:
    """Return the thread's index in the whole grid: a number, or a tuple of two or three.

    Parameters
    ----------
    ndim
        1, 2 or 3.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def places(out):
    ...     x, y = coop.grid(2)
    ...     out[y, x] = 10 * y + x
    >>> out = np.empty((2, 4), np.int64)
    >>> places[(2, 1), (2, 2)](out)
    >>> out.tolist()
    [[0, 1, 2, 3], [10, 11, 12, 13]]
    """
    outside("grid")


def gridsize(ndim: int) -> Any:
    """Return the extents of the whole grid in threads: a number, or a tuple of two or three.

    Parameters
    ----------
    ndim
        1, 2 or 3.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def double(x):
    ...     for i in range(coop.grid(1), x.shape[0], coop.gridsize(1)):
    ...         x[i] *= 2
    >>> x = np.arange(7)
    >>> double[1, 3](x)
    >>> x.tolist()
    [0, 2, 4, 6, 8, 10, 12]
    """
    outside("gridsize")


def ThreadData(count: int, dtype: Any) -> Any:  # noqa: N802 - it makes an array, as a class would
    """Return an array private to the thread, whose length is known when the kernel is compiled.

    Parameters
    ----------
    count
        Number of elements: a literal or a global constant.
    dtype
        Their type, such as ``np.float32``.

    Notes
    -----
    There is one array for each call in the source, as with ``coop.local.array``: the next execution of the same call
    returns the same memory.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def sums(x, out):
    ...     items = coop.ThreadData(2, np.int64)
    ...     coop.load(coop.this_block(), x, items)
    ...     out[coop.threadIdx.x] = items[0] + items[1]
    >>> out = np.empty(2, np.int64)
    >>> sums[1, 2](np.arange(4), out)
    >>> out.tolist()
    [1, 5]
    """
    outside("ThreadData")


class _Arrays:
    """Where a kernel gets arrays from: ``coop.shared`` and ``coop.local``."""

    def __init__(self, name: str, array: Callable[..., Any]) -> None:
        self.name = name
        self.array = array

    def __repr__(self) -> str:
        return f"coop.{self.name}"


def shared_array(shape: Any, dtype: Any) -> Any:
    """Return an array that the threads of the block share; one for each call in the source.

    Parameters
    ----------
    shape
        Number of elements or tuple of extents, known when the kernel is compiled. 0: the block's dynamic shared memory,
        whose size is the fourth setting of the launch.
    dtype
        Type of the elements.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def rotate(x):
    ...     fixed, dynamic = coop.shared.array(3, np.int64), coop.shared.array(0, np.int64)
    ...     i = coop.threadIdx.x
    ...     fixed[i] = dynamic[i] = x[i]
    ...     coop.syncthreads()
    ...     x[i] = 10 * fixed[(i + 1) % 3] + dynamic[i]
    >>> x = np.arange(3)
    >>> rotate[1, 3, None, 3 * 8](x)
    >>> x.tolist()
    [10, 21, 2]
    """
    outside("shared.array")


def local_array(shape: Any, dtype: Any) -> Any:
    """Return an array private to the thread; one for each call in the source.

    Parameters
    ----------
    shape
        Number of elements or tuple of extents, known when the kernel is compiled. The local arrays of a thread have at
        most 1 GiB on the CPU; on a GPU the limit depends on the architecture.
    dtype
        Type of the elements.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy import cooperative as coop
    >>> @coop.jit
    ... def binomials(out):
    ...     row = coop.local.array(5, np.int64)
    ...     row[:] = 0
    ...     row[0] = 1
    ...     for n in range(coop.threadIdx.x):
    ...         for k in range(n + 1, 0, -1):
    ...             row[k] += row[k - 1]
    ...     for k in range(5):
    ...         out[coop.threadIdx.x, k] = row[k]
    >>> out = np.empty((5, 5), np.int64)
    >>> binomials[1, 5](out)
    >>> out[4].tolist()
    [1, 4, 6, 4, 1]
    """
    outside("local.array")


shared = _Arrays("shared", shared_array)
local = _Arrays("local", local_array)


def _atomic(name: str) -> Callable[[Any, Any, Any], Any]:
    def function(array: Any, index: Any, value: Any) -> Any:
        outside(f"atomic.{name}")

    function.__name__ = function.__qualname__ = name
    return function


def _cas(array: Any, index: Any, expected: Any, value: Any) -> Any:
    outside("atomic.cas")


class _Atomics:
    """Read, change and write in one step, on an element of an array: ``coop.atomic.add(array, index, value)``.

    ``add``, ``sub``, ``max``, ``min``, ``and_``, ``or_``, ``xor``, ``exch`` and ``cas`` (``cas(array, index, expected,
    value)``); each returns what the element held before. Of a number and NaN ``max`` and ``min`` are the number, as the
    instructions of GPUs have it. An index is an integer, or a tuple of them; a negative one counts from the end.
    """

    add = staticmethod(_atomic("add"))
    sub = staticmethod(_atomic("sub"))
    max = staticmethod(_atomic("max"))
    min = staticmethod(_atomic("min"))
    and_ = staticmethod(_atomic("and_"))
    or_ = staticmethod(_atomic("or_"))
    xor = staticmethod(_atomic("xor"))
    exch = staticmethod(_atomic("exch"))
    cas = staticmethod(_cas)

    def __repr__(self) -> str:
        return "coop.atomic"


ATOMIC_OPERATIONS = ("add", "sub", "max", "min", "and_", "or_", "xor", "exch")
atomic = _Atomics()
