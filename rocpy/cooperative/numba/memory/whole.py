# SPDX-License-Identifier: MIT
"""Calls that read or write each element of an array in code that is not the kernel's: methods, numpy's functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from numba.core import types

from rocpy.cooperative.numba.memory.writes import FRESH
from rocpy.cooperative.numba.types import refuse

_READ_IN_PART = frozenset({"take", "searchsorted", "digitize", "interp", "where", "item", "trace", "diag"})
_NOT_READ = frozenset({"zeros_like", "ones_like", "empty_like", "full_like", "shape", "size", "ndim"})
_READ = FRESH - _READ_IN_PART - _NOT_READ
_BUILTINS = frozenset({"sum", "min", "max", "any", "all", "sorted"})
FILL = "fill"
SORT = "sort"


def method_of(function: Any) -> str:
    """Return the name of the method that is called of an array; empty for any other function's type."""
    if not isinstance(function, types.BoundFunction) or not isinstance(function.this, types.Array):
        return ""
    key = function.typing_key
    return str(key[-1] if isinstance(key, tuple) else key).rpartition(".")[2]


def check_filled(call: Any, typeof: Callable[[str], Any]) -> None:
    """Refuse a call of ``fill`` with several values, which numpy does not take and Numba would broadcast."""
    for each in [*call.args, *(value for _, value in call.kws)]:
        kind = typeof(each.name)
        if isinstance(kind, types.BaseTuple) or (isinstance(kind, types.Array) and kind.ndim):
            raise refuse(f"fill takes one number, not {kind}: write x[:] = ...")


def arrays_read(call: Any, typeof: Callable[[str], Any]) -> Iterator[tuple[Any, Any]]:
    """Yield variable and type of each array whose elements a call reads.

    Parameters
    ----------
    call
        Expression of Numba's.
    typeof
        Type of a variable by its name.
    """
    function = typeof(call.func.name)
    name = method_of(function)
    if name:
        if name in _READ:
            yield call.func, function.this
        return
    key = getattr(function, "typing_key", None)
    name, module = getattr(key, "__name__", ""), str(getattr(key, "__module__", "")).partition(".")[0]
    if (module == "numpy" and name in _READ) or (module == "builtins" and name in _BUILTINS):
        for each in call.args:
            if isinstance(typeof(each.name), types.Array):
                yield each, typeof(each.name)
