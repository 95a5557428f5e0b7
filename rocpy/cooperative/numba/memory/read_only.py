# SPDX-License-Identifier: MIT
"""Which variables lead into read-only arrays, where Numba's types do not tell it: in records, and in iterators."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numba.core import ir, types

from rocpy.cooperative.numba.types import refuse

MESSAGE = "a read-only array is written to: pass a writable one"
_VIEW_OPERATIONS = frozenset({"phi", "cast", "exhaust_iter", "pair_first", "iternext", "getiter", "getattr", "getitem"})
# Functions whose result Numba takes to be writable; it is the argument if that is of this layout, and a copy elsewhere.
_SAME_MEMORY = {"ascontiguousarray": "C", "asfortranarray": "F"}


class ReadOnly:
    """The variables of one function.

    Parameters
    ----------
    typemap
        Types of variables by name.
    values
        What each variable is assigned.
    """

    def __init__(self, typemap: Any, values: dict[str, list[Any]]) -> None:
        self._types, self._values = typemap, values
        self._visited: set[Any] = set()

    def refuse_stores(self, stores: Iterable[tuple[Any, Any]]) -> None:
        """Refuse what writes to a read-only array; a store is a variable, and where it is written to."""
        for variable, loc in stores:
            self._visited.clear()
            if self._leads_there(variable, None):
                error = refuse(MESSAGE)
                error.loc = loc  # from which `messages` has the line
                raise error

    def _leads_there(self, variable: Any, index: Any) -> bool:
        """Return whether a variable, or the member of an index where it is a tuple, has memory of such an array."""
        kind = self._types.get(variable.name)
        kind = getattr(kind, "array_type", kind)  # of `x.flat`
        if isinstance(kind, types.NumpyNdIterType):
            kind = kind.arrays[index or 0]
        if not getattr(kind, "mutable", True) and isinstance(kind, types.Array):
            return True
        if (variable.name, index) in self._visited:
            return False
        self._visited.add((variable.name, index))
        return any(self._comes_from_there(each, index) for each in self._values.get(variable.name, ()))

    def _comes_from_there(self, value: Any, index: Any) -> bool:
        if isinstance(value, ir.Var):
            return self._leads_there(value, index)
        if not isinstance(value, ir.Expr):
            return False
        if value.op == "static_getitem":
            whole = isinstance(self._types[value.value.name], types.BaseTuple) and isinstance(value.index, int)
            return self._leads_there(value.value, value.index if whole else None)
        if value.op == "build_tuple":
            return index is not None and self._leads_there(value.items[index], None)
        if value.op == "call":
            key = getattr(self._types[value.func.name], "typing_key", None)
            layout = _SAME_MEMORY.get(getattr(key, "__name__", ""))
            kind = self._types[value.args[0].name] if layout and value.args else None
            same = isinstance(kind, types.Array) and (kind.layout == layout or (kind.ndim == 1 and kind.is_contig))
            return same and self._leads_there(value.args[0], None)
        if value.op == "phi":
            sources = [each for each in value.incoming_values if isinstance(each, ir.Var)]
        else:
            sources = [value.value] if value.op in _VIEW_OPERATIONS else []
        return any(self._leads_there(each, index) for each in sources)
