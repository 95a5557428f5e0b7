# SPDX-License-Identifier: MIT
"""Which arguments a kernel may write to, found in Numba's typed form of it.

An array that is passed on counts as written unless what it is passed to is known to read only.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba.core import ir, types
from numba.core.compiler_machinery import FunctionPass, register_pass

from rocpy.cooperative.api import device
from rocpy.cooperative.numba.memory.read_only import ReadOnly

WRITTEN = "rocpy_written"  # what the paths are called in the metadata of a compiled function

# An argument's number, followed by the index in it for each tuple; `_PART` at its end: something of what is there.
Path = tuple[Any, ...]
_PART = None

_WITHOUT_ARRAYS = (
    types.Number,
    types.Boolean,
    types.NoneType,
    types.UnicodeType,
    types.StringLiteral,
    types.SliceType,
    types.RangeType,
    types.RangeIteratorType,
    types.Module,
    types.DType,
    types.Dispatcher,
)
# Parameters of primitives that are written to; all others are read, and what a primitive returns is its own.
_PRIMITIVES_WRITE = frozenset({"out", "target", "state", "prefix_state"})
_ATOMICS = frozenset(getattr(device._Atomics, name) for name in (*device.ATOMIC_OPERATIONS, "cas"))
FRESH = frozenset(
    [
        "sum",
        "prod",
        "min",
        "max",
        "amin",
        "amax",
        "argmin",
        "argmax",
        "mean",
        "std",
        "var",
        "median",
        "ptp",
        "any",
        "all",
        "cumsum",
        "cumprod",
        "nonzero",
        "argsort",
        "copy",
        "item",
        "dot",
        "vdot",
        "matmul",
        "outer",
        "inner",
        "kron",
        "trace",
        "diff",
        "searchsorted",
        "where",
        "count_nonzero",
        "interp",
        "array_equal",
        "allclose",
        "flatten",
        "zeros_like",
        "ones_like",
        "empty_like",
        "full_like",
        "shape",
        "size",
        "ndim",
        "repeat",
        "take",
        "conj",
        "conjugate",
        "array",
        "bincount",
        "histogram",
        "isclose",
        "nanmin",
        "nanmax",
        "nansum",
        "nanmean",
        "percentile",
        "quantile",
        "unique",
        "sort",
        "concatenate",
        "stack",
        "sign",
        "round_",
        "digitize",
        "astype",
        "diag",
        "triu",
        "tril",
        "partition",
        "argpartition",
        "roll",
        "nanprod",
        "nanstd",
        "nanvar",
        "nanmedian",
        "nancumsum",
        "nancumprod",
        "append",
        "delete",
        "hstack",
        "vstack",
        "dstack",
        "column_stack",
        "cross",
        "cov",
        "corrcoef",
        "union1d",
        "intersect1d",
        "setdiff1d",
    ]
)
_VIEWS = frozenset(
    [
        "reshape",
        "ravel",
        "view",
        "transpose",
        "swapaxes",
        "squeeze",
        "diagonal",
        "asarray",
        "ascontiguousarray",
        "asfortranarray",
        "broadcast_to",
        "expand_dims",
        "flip",
        "fliplr",
        "flipud",
        "real",
        "imag",
        "atleast_1d",
        "atleast_2d",
    ]
)
_WRITING_METHODS = frozenset({"sort", "partition"})  # of arrays, though the function of that name makes a new one
_WRITING_FUNCTIONS = frozenset({"fill_diagonal"})  # of numpy's, to the first argument
_WRITING_BUILTINS = frozenset({"setattr", "delattr"})


@dataclass(frozen=True)
class Writes:
    """What a function does with the memory of its arguments.

    Attributes
    ----------
    written
        Paths of the arguments, or members of tuples, that it may write to.
    returned
        Paths of those that lie in what it returns.
    """

    written: tuple[tuple[int, ...], ...]
    returned: tuple[tuple[int, ...], ...]


def _may_hold(type_: Any) -> bool:
    if isinstance(type_, types.BaseTuple):
        return any(map(_may_hold, type_))
    return not isinstance(type_, _WITHOUT_ARRAYS)


def _part(paths: Iterable[Path]) -> set[Path]:
    return {path if path[-1] is _PART else (*path, _PART) for path in paths}


def _whole(paths: Iterable[Path]) -> set[Path]:
    return {path[:-1] if path[-1] is _PART else path for path in paths}


class _Analysis:
    """Follows arguments through a function's variables, in whatever order statements run."""

    def __init__(self, func_ir: Any, typemap: Any, calltypes: Any, arguments: Any) -> None:
        self._types, self._calls, self._arguments = typemap, calltypes, arguments
        self._paths: dict[str, set[Path]] = {}  # of what a variable's value has memory of
        self.written: set[Path] = set()
        self.stores: dict[str, tuple[Any, Any]] = {}  # variables that are certainly written to, and where
        self.returned: set[Path] = set()
        statements = [each for block in func_ir.blocks.values() for each in block.body]
        self._values: dict[str, list[Any]] = {}  # that a variable is assigned
        for each in statements:
            if isinstance(each, ir.Assign):
                self._values.setdefault(each.target.name, []).append(each.value)
        size = -1
        while size != (size := sum(map(len, self._paths.values()))):
            for each in statements:
                self._loc = each.loc
                self._visit(each)
        ReadOnly(typemap, self._values).refuse_stores(self.stores.values())

    def _store(self, variable: Any) -> None:
        self.written |= _whole(self._of(variable))
        self.stores.setdefault(variable.name, (variable, self._loc))

    def _of(self, variable: Any) -> set[Path]:
        return self._paths.get(variable.name, set())

    def _type_at(self, path: Path) -> Any:
        type_ = self._arguments[path[0]]
        for index in path[1:]:
            if index is _PART or not isinstance(type_, types.BaseTuple) or not 0 <= index < len(type_):
                return None
            type_ = type_[index]
        return type_

    def _member(self, variable: Any, index: Any) -> set[Path]:
        """Return the paths of a member of a tuple."""
        members = self._built(variable)
        if members is not None and isinstance(index, int):
            return set(self._of(members[index]))
        kind = self._types[variable.name]
        if not isinstance(kind, types.BaseTuple) or not isinstance(index, int):
            return _part(self._of(variable))
        index = index + len(kind) if index < 0 else index
        return {
            (*path, index) if self._type_at(path) == kind else (path if path[-1] is _PART else (*path, _PART))
            for path in self._of(variable)
        }

    def _built(self, variable: Any) -> list[Any] | None:
        """Return the variables that a tuple is built of in this function, None if there is another way to it."""
        values = self._values.get(variable.name, ())
        value = values[0] if len(values) == 1 else None
        if isinstance(value, ir.Var):
            return self._built(value)
        if not isinstance(value, ir.Expr):
            return None
        if value.op == "static_getitem":
            members = self._built(value.value)
            return self._built(members[value.index]) if members and isinstance(value.index, int) else None
        if value.op == "build_tuple":
            return list(value.items)
        return self._built(value.value) if value.op == "exhaust_iter" else None

    def _visit(self, statement: Any) -> None:
        if isinstance(statement, ir.Assign):
            new = self._value(statement)
            if new and _may_hold(self._types.get(statement.target.name)):
                self._paths.setdefault(statement.target.name, set()).update(new)
        elif isinstance(statement, (ir.SetItem, ir.StaticSetItem, ir.SetAttr, ir.DelItem, ir.StoreMap)):
            target = statement.dct if isinstance(statement, ir.StoreMap) else statement.target
            self._store(target)
            value = getattr(statement, "value", None)
            if isinstance(value, ir.Var) and not isinstance(self._types.get(target.name), types.Array):
                self._paths.setdefault(target.name, set()).update(_part(self._of(value)))
        elif isinstance(statement, ir.Return):
            self.returned |= _whole(self._of(statement.value))

    def _value(self, statement: Any) -> set[Path]:
        value = statement.value
        if isinstance(value, ir.Arg):
            return {(value.index,)}
        if isinstance(value, ir.Var):
            return set(self._of(value))
        if isinstance(value, ir.Yield):
            self.returned |= _whole(self._of(value.value))
            return set()
        if not isinstance(value, ir.Expr):
            return set()
        operands = [each for each in value.list_vars() if self._of(each)]
        if not operands:
            return set()
        if value.op == "call":
            return self._call(value)
        if value.op in ("phi", "cast", "exhaust_iter"):
            return set().union(*map(self._of, operands))
        if value.op == "static_getitem":
            return self._member(value.value, value.index)
        if value.op == "inplace_binop":
            self._store(value.lhs)
        elif value.op == "arrayexpr" or (value.op in ("binop", "unary") and self._is_array(statement.target)):
            return set()  # a new array
        return _part(set().union(*map(self._of, operands)))

    def _is_array(self, variable: Any) -> bool:
        return isinstance(self._types.get(variable.name), types.Array)

    def _call(self, call: Any) -> set[Path]:
        passed = [*call.args, *(each for _, each in call.kws)]
        passed += [] if call.vararg is None else [call.vararg]
        function = self._types[call.func.name]
        if isinstance(function, types.Dispatcher):
            own = self._writes_of(function.dispatcher, call)
            if own is not None:
                self.written |= _whole(self._through(call, own.written))
                self.stores |= {each.name: (each, self._loc) for i, each in enumerate(call.args) if (i,) in own.written}
                return _part(self._through(call, own.returned))
        elif isinstance(function, types.BoundFunction):
            key = function.typing_key
            name = str(key[-1] if isinstance(key, tuple) else key).rpartition(".")[2]
            reads = name in FRESH | _VIEWS and name not in _WRITING_METHODS
            return self._passed_on([call.func, *passed], reads=reads, fresh=name in FRESH)
        else:
            key = getattr(function, "typing_key", None)
            if str(getattr(key, "__module__", "")).startswith("rocpy.cooperative.api."):
                self._primitive(key, call)
                return set()
            written, fresh = _known(key, call)
            if written is not None:
                for each in written:
                    self._store(each)
                return self._passed_on(passed, reads=True, fresh=fresh)
        return self._passed_on(passed, reads=False, fresh=False)

    def _passed_on(self, passed: list[Any], *, reads: bool, fresh: bool) -> set[Path]:
        paths = set().union(*map(self._of, passed))
        if not reads:
            self.written |= _whole(paths)
        return set() if fresh else _part(paths)

    def _primitive(self, function: Any, call: Any) -> None:
        names = list(inspect.signature(function).parameters)
        named = [*zip(names, call.args, strict=False), *call.kws]
        for name, each in named:
            if name in _PRIMITIVES_WRITE or (function in _ATOMICS and name == "array"):
                self._store(each)

    def _writes_of(self, dispatcher: Any, call: Any) -> Writes | None:
        """Return what a compiled function does; None where it is not known, or which argument is which."""
        compiled = dispatcher.overloads.get(tuple(self._calls[call].args))
        variadic = dispatcher.py_func.__code__.co_flags & inspect.CO_VARARGS
        if compiled is None or call.kws or call.vararg is not None or variadic:
            return None
        own = (getattr(compiled, "metadata", None) or {}).get(WRITTEN)
        return own if isinstance(own, Writes) else None

    def _through(self, call: Any, paths: Iterable[Path]) -> Iterator[Path]:
        """Give the paths of the caller's arguments for those of a function that it calls."""
        for path in paths:
            if path[0] >= len(call.args):
                continue  # a default
            variable = call.args[path[0]]
            for own in self._of(variable):
                exact = self._type_at(own) == self._types[variable.name]
                yield (*own, *path[1:]) if exact else own


def _known(key: Any, call: Any) -> tuple[list[Any] | None, bool]:
    """Return which operands a function of Python's or numpy's writes to, and whether its result has memory of its own.

    The operands are None if the function is not known.
    """
    out = [each for name, each in call.kws if name == "out"]
    if isinstance(key, np.ufunc):
        return [*call.args[key.nin :], *out], not call.args[key.nin :] and not out
    name, module = getattr(key, "__name__", ""), str(getattr(key, "__module__", "")).partition(".")[0]
    if module == "builtins":
        return (None if name in _WRITING_BUILTINS else []), False
    if module == "numpy" and name in _WRITING_FUNCTIONS:
        return list(call.args[:1]), False
    if module == "numpy" and name in FRESH | _VIEWS:
        return out, name in FRESH and not out
    if key in (operator.getitem, operator.contains):
        return [], False
    return None, False


@register_pass(mutates_CFG=False, analysis_only=True)
class FindWrites(FunctionPass):
    """Notes which arguments a function may write to."""

    _name = "rocpy_find_writes"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Note it in the metadata of what is compiled."""
        analysis = _Analysis(state.func_ir, state.typemap, state.calltypes, state.args)
        state.metadata[WRITTEN] = Writes(_sorted(analysis.written), _sorted(analysis.returned))
        return False


def _sorted(paths: set[Path]) -> tuple[tuple[int, ...], ...]:
    return tuple(sorted(paths))
