# SPDX-License-Identifier: MIT
"""Reads the forward of an activation: one argument, one formula, every name that it reads noted."""

from __future__ import annotations

import ast
import functools
from types import FunctionType, MethodType, ModuleType
from typing import Any

from torch import nn

from rocpy.torch.analysis.catalog import (
    ARITHMETIC,
    FORMULAS,
    METHODS,
    OPERATORS,
    Guard,
    Known,
    X,
    equal,
    operation,
    product,
    row_of_call,
)
from rocpy.torch.analysis.source import Unread, links, syntax_of

__all__ = ["identify", "looks_like_activation", "own_method", "resolve"]

_MISSING = object()
_DEPTH = 3


def own_method(module: nn.Module, name: str) -> FunctionType | None:
    """Return the plain function that a module's class has by a name; ``None`` where it is anything else."""
    method = getattr(type(module), name, None)
    return method if type(method) is FunctionType else None


def resolve(node: ast.expr, function: FunctionType) -> tuple[Any, tuple[Guard, ...]]:
    """Return what a global name, or a name in a module, stands for, and each name on the way; raises `LookupError`."""
    names = list(links(node))
    if not names:
        raise LookupError
    table: Any = function.__globals__
    guards: list[Guard] = []
    value: Any = None
    for name in names:
        if guards:
            if type(value) is not ModuleType:
                raise LookupError
            table = vars(value)
        value = table[name]
        guards.append((table, name, value))
    return value, tuple(guards)


def looks_like_activation(module: Any) -> bool:
    """Whether a report should say why this was not fused: an activation of torch's or transformers', or a formula."""
    if type(module).__module__ in ("torch.nn.modules.activation", "transformers.activations"):
        return True
    formula = _read_formula(module)
    return formula is not None and not isinstance(formula[1], float) and not equal(formula[1], X)


def _read_formula(module: Any) -> tuple[_Reader, Any] | None:
    """Return what a module's code computes of its input, with what was read for it; ``None`` where that is unknown."""
    if not isinstance(module, nn.Module) or module._modules or module._parameters or module._buffers:
        return None
    forward = own_method(module, "forward")
    if forward is None or "forward" in module.__dict__:
        return None
    reader = _Reader(module, forward)
    try:
        return reader, reader.call(forward, [X], 0)
    except (Unread, LookupError):
        return None


def identify(module: Any) -> Known | None:
    """Return which activation a module computes, or ``None`` where its code does not say that it is one of rocpy's."""
    read = _read_formula(module)
    if read is None:
        return None
    reader, value = read
    if isinstance(value, tuple) and value[0] == "row":
        return reader.known(value[1])
    if isinstance(value, float):
        return None
    if equal(value, product([("sigmoid", X)])):
        return reader.known("sigmoid")
    for row, formula in FORMULAS.items():
        if equal(value, formula):
            reader.guards += OPERATORS
            return reader.known(row, composite=True)
    return None


class _Reader:
    """Computes with formulas what a module's code computes with tensors."""

    def __init__(self, module: nn.Module, forward: FunctionType) -> None:
        self.module = module
        self.forward = forward
        self.guards: list[Guard] = []
        self.reads: dict[str, Any] = {}
        self.methods: dict[str, Any] = {}

    def known(self, row: str, composite: bool = False) -> Known:
        names = (*self.reads, *self.methods)
        return Known(
            row,
            self.forward,
            composite,
            tuple(self.guards),
            tuple(self.reads.items()),
            tuple(self.methods.items()),
            tuple(names),
        )

    def call(self, function: FunctionType, arguments: list[Any], depth: int) -> Any:
        """Return what a method of the module's gives."""
        body = syntax_of(function)
        signature = body.args
        names = [argument.arg for argument in (*signature.posonlyargs, *signature.args)]
        if (
            len(names) != 1 + len(arguments)
            or signature.vararg
            or signature.kwarg
            or signature.kwonlyargs
            or depth > _DEPTH
        ):
            raise LookupError
        # Its class may get another; its code may be exchanged.
        self.guards.append((_Code(function), "", function.__code__))
        values = dict(zip(names[1:], arguments, strict=True))
        read = functools.partial(self._value, names[0], values, function, depth)
        for statement in body.body:
            match statement:
                case ast.Expr(ast.Constant(str())):
                    continue
                case ast.Assign([ast.Name(name)], value):
                    values[name] = read(value)
                case ast.Return(ast.expr() as value):
                    return read(value)
                case _:
                    raise LookupError
        raise LookupError

    def _value(self, this: str, values: dict[str, Any], function: FunctionType, depth: int, node: ast.expr) -> Any:
        read = functools.partial(self._value, this, values, function, depth)
        match node:
            case ast.Constant(bool() | str() as value):
                return value
            case ast.Constant(int() | float() as value):
                return float(value)
            case ast.Name(name) if name in values:
                return values[name]
            case ast.BinOp(left, kind, right):
                return _applied(ARITHMETIC.get(type(kind).__name__), [read(left), read(right)])
            case ast.UnaryOp(ast.USub(), inner):
                return _applied(ARITHMETIC["Mult"], [-1.0, read(inner)])
            case ast.Attribute(ast.Name(name), attribute) if name == this:
                return self._attribute(attribute)
            case ast.Attribute() | ast.Name():
                value, guards = resolve(node, function)
                self.guards += guards
                return _constant(value)
            case ast.Call(callee, arguments, keywords):
                options = {keyword.arg or "**": read(keyword.value) for keyword in keywords}
                return self._called(this, values, function, depth, callee, [read(x) for x in arguments], options)
        raise LookupError

    def _attribute(self, name: str) -> Any:
        table = self.module.__dict__
        if name not in table or hasattr(type(self.module), name):
            raise LookupError
        value = _constant(table[name])
        self.reads[name] = table[name]
        return value

    def _called(
        self,
        this: str,
        values: Any,
        function: FunctionType,
        depth: int,
        callee: ast.expr,
        arguments: list[Any],
        options: Any,
    ) -> Any:
        match callee:
            case ast.Attribute(ast.Name(name), attribute) if name == this:
                return self._own_call(attribute, arguments, options, depth)
            case ast.Attribute(ast.expr() as inner, attribute) if not self._is_global(inner, values, function):
                known = METHODS.get(attribute)
                if known is None:
                    raise LookupError
                self.guards += known.guards
                return _run(known, [self._value(this, values, function, depth, inner), *arguments], options)
        target, guards = resolve(callee, function)
        self.guards += guards
        return self._function(target, arguments, options)

    @staticmethod
    def _is_global(node: ast.expr, values: Any, function: FunctionType) -> bool:
        first = next(links(node), None)
        return first is not None and first not in values and first in function.__globals__

    def _own_call(self, name: str, arguments: list[Any], options: Any, depth: int) -> Any:
        """Return the result of a function that is an attribute of the module."""
        table, cls = self.module.__dict__, type(self.module)
        if name in table and not hasattr(cls, name):
            value = table[name]
            if type(value) is MethodType and value.__self__ is self.module and type(value.__func__) is FunctionType:
                self.methods[name] = value.__func__
                return self.call(value.__func__, arguments, depth + 1) if not options else _refuse()
            self.reads[name] = value
            return self._function(value, arguments, options)
        raise LookupError

    def _function(self, target: Any, arguments: list[Any], options: Any) -> Any:
        if type(target) is functools.partial:
            if target.args or options.keys() & target.keywords.keys():
                raise LookupError
            target, options = target.func, {**target.keywords, **options}
        known = operation(target)
        if known is None:
            raise LookupError
        self.guards += known.guards
        return _run(known, arguments, options)


class _Code(dict[str, Any]):
    """A function's code, to be guarded as an entry of a table."""

    __slots__ = ("function",)

    def __init__(self, function: FunctionType) -> None:
        self.function = function

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ARG002
        return self.function.__code__


def _refuse() -> Any:
    raise LookupError


def _constant(value: Any) -> Any:
    if type(value) in (bool, str):
        return value
    if type(value) in (int, float):
        return float(value)
    raise LookupError


def _applied(formula: Any, values: list[Any]) -> Any:
    if formula is None or any(isinstance(x, (bool, str)) or (isinstance(x, tuple) and x[0] == "row") for x in values):
        raise LookupError
    try:
        value = formula(*values)
    except TypeError:  # of too many arguments
        raise LookupError from None
    if value is None:
        raise LookupError
    return value


def _run(known: Any, arguments: list[Any], options: Any) -> Any:
    if known.formula is not None and not options:
        return _applied(known.formula, arguments)
    row = row_of_call(known, tuple(arguments[1:]), options) if arguments and equal(arguments[0], X) else None
    if row is None:
        raise LookupError
    return ("row", row)
