# SPDX-License-Identifier: MIT
"""Debug mode: follows results that a primitive leaves undefined in a thread through a function's numbers to stores.

A number has a bit beside it. The mark in the thread's state takes it into and out of functions, and to a store.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from llvmlite import ir as llvm_ir
from numba.core import cgutils, ir, types

from rocpy.cooperative.api import movement
from rocpy.cooperative.api.table import PRIMITIVES
from rocpy.cooperative.numba.llvm_types import I32
from rocpy.cooperative.numba.runtime import UNDEFINED_OFFSET, field

_BIT = llvm_ir.IntType(1)
_ORIGINS = frozenset(each.function for each in PRIMITIVES.values())
_ATOMICS = "rocpy.cooperative.numba.atomics"  # the module of their code
_PRODUCTS = frozenset({operator.mul, operator.imul})
# Operators whose result is undefined where an operand is, whatever the other one.
_ARITHMETIC = frozenset(
    getattr(operator, prefix + name)
    for name in ("add", "sub", "truediv", "floordiv", "mod", "pow", "xor", "lshift", "rshift")
    for prefix in ("", "i")
)
_CONVERSIONS = frozenset({int, float, complex, abs, round})


class Undefined:
    """The bits of one function that is being lowered."""

    def __init__(self, lower: Any) -> None:
        self._lower = lower
        self._bits: dict[str, Any] = {}
        names: set[str] = set()
        statements = [each for block in lower.blocks.values() for each in block.body if isinstance(each, ir.Assign)]
        size = -1
        while size != len(names):
            size = len(names)
            for each in statements:
                if self._is_origin(each) or any(v.name in names for v, _ in self._operands(each.value)):
                    names.add(each.target.name)
        for name in sorted(names):
            self._bits[name] = cgutils.alloca_once_value(lower.builder, _BIT(0), zfill=False)

    def before(self, statement: Any) -> None:
        """Mark what a statement is about to store, or to return."""
        if isinstance(statement, (ir.SetItem, ir.StaticSetItem)):
            self._mark([statement.value])
        elif isinstance(statement, ir.Return):
            self._set_mark(self._any([statement.value]) or _BIT(0))
        elif key := self._callee(statement):
            call = statement.value
            stores = key is movement.store or getattr(key, "__module__", None) == _ATOMICS
            values = [*call.args[2:], *(each for _, each in call.kws)] if stores else []
            self._set_mark(self._any(values) or _BIT(0))

    def after(self, statement: Any) -> None:
        """Note whether what a statement has assigned is undefined."""
        if isinstance(statement, (ir.SetItem, ir.StaticSetItem)):
            if statement.value.name in self._bits:
                self._set_mark(_BIT(0))
            return
        if not isinstance(statement, ir.Assign):
            return
        builder = self._lower.builder
        bit = self._bits.get(statement.target.name)
        if self._callee(statement):
            if bit is not None:
                builder.store(builder.icmp_unsigned("!=", builder.load(self._field()), I32(0)), bit)
            self._set_mark(_BIT(0))
        elif bit is not None:
            builder.store(self._result(statement.value), bit)

    def _callee(self, statement: Any) -> Any:
        """Return the function of this package, or of the user, that a statement calls; None if it does not."""
        call = getattr(statement, "value", None)
        if not isinstance(statement, ir.Assign) or not isinstance(call, ir.Expr) or call.op != "call":
            return None
        function = self._lower.typeof(call.func.name)
        if isinstance(function, types.Dispatcher):
            return function
        key = getattr(function, "typing_key", None)
        if getattr(key, "__module__", None) == _ATOMICS:
            return key
        return key if _is_hashable(key) and key in _ORIGINS else None

    def _is_origin(self, statement: Any) -> bool:
        number = isinstance(self._lower.typeof(statement.target.name), (types.Number, types.Boolean))
        return number and self._callee(statement) is not None

    def _operands(self, value: Any) -> Iterator[tuple[Any, Any]]:
        """Yield what makes a value undefined, each with the factor that must not be zero for that, if there is one."""
        if isinstance(value, ir.Var):
            yield value, None
        elif not isinstance(value, ir.Expr):
            return
        elif value.op in ("unary", "cast"):
            yield value.value, None
        elif value.op in ("binop", "inplace_binop"):
            if value.fn in _ARITHMETIC:
                yield from ((value.lhs, None), (value.rhs, None))
            elif value.fn in _PRODUCTS:
                yield from ((value.lhs, value.rhs), (value.rhs, value.lhs))
        elif value.op == "call" and not value.kws:
            function = self._lower.typeof(value.func.name)
            key = getattr(function, "typing_key", None)
            converts = isinstance(function, types.NumberClass) or (_is_hashable(key) and key in _CONVERSIONS)
            if converts or getattr(key, "__module__", None) == "math":
                yield from ((each, None) for each in value.args)

    def _result(self, value: Any) -> Any:
        lower, builder = self._lower, self._lower.builder
        result = _BIT(0)
        for each, factor in self._operands(value):
            if each.name not in self._bits:
                continue
            bit = builder.load(self._bits[each.name])
            if factor is not None:
                loaded = lower.loadvar(factor.name)
                bit = builder.and_(bit, lower.context.is_true(builder, lower.typeof(factor.name), loaded))
            result = builder.or_(result, bit)
        return result

    def _any(self, variables: list[Any]) -> Any:
        """Return whether one of several is undefined; None if none of them can be."""
        builder, result = self._lower.builder, None
        for each in variables:
            if each.name in self._bits:
                bit = builder.load(self._bits[each.name])
                result = bit if result is None else builder.or_(result, bit)
        return result

    def _mark(self, variables: list[Any]) -> None:
        bit = self._any(variables)
        if bit is not None:
            self._set_mark(bit)

    def _set_mark(self, bit: Any) -> None:
        self._lower.builder.store(self._lower.builder.zext(bit, I32), self._field())

    def _field(self) -> Any:
        return field(self._lower.builder, UNDEFINED_OFFSET, I32)


def _is_hashable(key: Any) -> bool:
    return key is not None and key.__hash__ is not None
