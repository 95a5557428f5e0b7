# SPDX-License-Identifier: MIT
"""Floats of kernels: float64 that nobody asked for is noted; where float32 is asked for, literals follow the data."""

from __future__ import annotations

import builtins
import operator
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba.core import ir, types
from numba.core.compiler_machinery import register_pass
from numba.core.ir_utils import mk_unique_var, replace_vars_stmt

from rocpy.cooperative.numba.arithmetic.operands import IntegerInference

NOTES = "rocpy_float64"  # what they are called in the metadata of a compiled function
_WIDE = (types.float64, types.complex128)
_NARROW = (types.float32, types.float16, types.complex64)
_NAMES = frozenset({"float64", "double", "complex128", "float_", "longdouble"})
_COMPARISONS = frozenset(
    {operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.is_, operator.is_not}
)
_INTEGERS = (types.Integer, types.Boolean)


# float32 where it is asked for.


def _narrowed(value: Any) -> Any:
    """Return a literal of half the size; None for what is no float."""
    if type(value) in (float, complex):
        with np.errstate(over="ignore"):
            return np.float32(value) if type(value) is float else np.complex64(value)
    if type(value) is tuple:
        members = [_narrowed(each) for each in value]
        if any(each is not None for each in members):
            return tuple(old if new is None else new for old, new in zip(value, members, strict=True))
    return np.float32 if value is float else None


def narrow_literals(func_ir: Any) -> None:
    """Make float32 of the float literals and constants that a function names, and of ``float`` itself."""
    for block in func_ir.blocks.values():
        for statement in block.body:
            value = getattr(statement, "value", None)
            if isinstance(statement, ir.Assign) and isinstance(value, (ir.Const, ir.Global, ir.FreeVar)):
                narrow = _narrowed(value.value)
                if narrow is not None:
                    value.wide, value.value = value.value, narrow


def _narrow_attribute(statement: Any, typemap: Any) -> bool:
    """Make float32 of a float of a module, as ``math.pi``."""
    expression = statement.value
    if expression.op != "getattr" or typemap.get(statement.target.name) != types.float64:
        return False
    module = typemap.get(expression.value.name)
    if not isinstance(module, types.Module):
        return False
    wide = float(getattr(module.pymod, expression.attr))
    statement.value = ir.Const(np.float32(wide), statement.loc)
    statement.value.wide = wide
    return True


def _operands(expression: Any, typemap: Any) -> list[Any]:
    """Return the variables that an operation of numbers takes; none if it is no such operation."""
    if expression.op in ("binop", "inplace_binop"):
        return [expression.lhs, expression.rhs]
    if expression.op != "call" or expression.kws or expression.vararg is not None:
        return []
    function = typemap.get(expression.func.name)
    key = getattr(function, "typing_key", None)
    module = getattr(key, "__module__", None) or ""
    known = isinstance(key, np.ufunc) or module.partition(".")[0] in ("math", "numpy", "builtins")
    return list(expression.args) if isinstance(function, types.Function) and known else []


def _is_wide(signature: Any) -> bool:
    return signature is not None and any(each in _WIDE for each in (signature.return_type, *signature.args))


def _widened(statement: Any, typemap: Any, calltypes: Any) -> list[Any]:
    """Return the integers that make an operation one of float64, though it has no float64."""
    expression = statement.value
    operands = _operands(expression, typemap)
    kinds = [types.unliteral(typemap[each.name]) for each in operands]
    if not operands or not _is_wide(calltypes.get(expression)) or any(each in _WIDE for each in kinds):
        return []
    return [each for each, kind in zip(operands, kinds, strict=True) if isinstance(kind, _INTEGERS)]


def _cast(block: Any, at: int, operands: list[Any], func_ir: Any) -> int:
    """Put casts to float32 before a statement, which then takes those; return how many statements they are."""
    statement = block.body[at]
    scope, loc = block.scope, statement.loc
    statements = []
    renamed = {}
    for each in {one.name: one for one in operands}.values():
        function = ir.Var(scope, mk_unique_var("$rocpy_float32"), loc)
        narrow = ir.Var(scope, mk_unique_var("$rocpy_narrow"), loc)
        statements += [
            ir.Assign(ir.Global("float32", np.float32, loc), function, loc),
            ir.Assign(ir.Expr.call(function, (each,), (), loc), narrow, loc),
        ]
        renamed[each.name] = narrow
    for assignment in statements:
        func_ir._definitions[assignment.target.name].append(assignment.value)
    chosen = {each.name for each in operands}
    expression = statement.value

    def taken(variable: Any) -> Any:
        return renamed[variable.name] if variable.name in chosen else variable

    if expression.op == "call":
        expression.args = tuple(map(taken, expression.args))
    else:
        expression.lhs, expression.rhs = taken(expression.lhs), taken(expression.rhs)
    block.body[at:at] = statements
    return len(statements)


def _begin_sum(block: Any, at: int, func_ir: Any, typemap: Any) -> bool:
    """Let ``sum`` of float32 begin with a zero of that type, where it would begin with the integer."""
    statement = block.body[at]
    expression = statement.value
    if expression.op != "call" or len(expression.args) != 1 or expression.kws or expression.vararg is not None:
        return False
    if getattr(typemap[expression.func.name], "typing_key", None) is not builtins.sum:
        return False
    leaves = list(_leaves(typemap[expression.args[0].name]))
    if not leaves or any(each not in _NARROW for each in leaves):
        return False
    zero = ir.Var(block.scope, mk_unique_var("$rocpy_zero"), statement.loc)
    begin = ir.Assign(ir.Const(np.float32(0), statement.loc), zero, statement.loc)
    func_ir._definitions[zero.name].append(begin.value)
    expression.args = (*expression.args, zero)
    block.body.insert(at, begin)
    return True


def narrow_operations(func_ir: Any, typemap: Any, calltypes: Any, wide: set[str]) -> bool:
    """Make operations of float32 of those that integers make operations of float64; return whether there are any.

    Those that set a variable of `wide` remain.
    """
    changed = False
    for block in func_ir.blocks.values():
        at = 0
        while at < len(block.body):
            statement = block.body[at]
            if isinstance(statement, ir.Assign) and isinstance(statement.value, ir.Expr):
                if statement.target.name in wide:
                    pass
                elif _narrow_attribute(statement, typemap):
                    changed = True
                elif _begin_sum(block, at, func_ir, typemap):
                    at += 1
                    changed = True
                elif operands := _widened(statement, typemap, calltypes):
                    at += _cast(block, at, operands, func_ir)
                    changed = True
            at += 1
    return changed


def narrow_beginnings(func_ir: Any, typemap: Any) -> bool:
    """Make float32 of integer literals that a variable of floats begins with, as in ``total = 0``."""
    literals = {}  # by name of the variable: where it gets its value
    for block in func_ir.blocks.values():
        for statement in block.body:
            if isinstance(statement, ir.Assign) and _is_small_literal(statement.target, statement.value, func_ir):
                literals[statement.target.name] = (block, statement)
    changed = False
    for block in func_ir.blocks.values():
        for statement in block.body:
            phi = statement.value if isinstance(statement, ir.Assign) else None
            if not isinstance(phi, ir.Expr) or phi.op != "phi" or typemap.get(statement.target.name) not in _WIDE:
                continue
            for i, each in enumerate(phi.incoming_values):
                if getattr(each, "name", None) in literals:
                    phi.incoming_values[i] = _narrow_copy(*literals[each.name], func_ir)
                    changed = True
    return changed


def _is_small_literal(target: Any, value: Any, func_ir: Any) -> bool:
    """Return whether a variable is an integer that float32 holds, so that nothing is lost if it was to be float64."""
    while isinstance(value, ir.Var):
        definitions = func_ir._definitions.get(value.name, ())
        if len(definitions) != 1:
            return False
        value = definitions[0]
    single = len(func_ir._definitions.get(target.name, ())) == 1
    return single and isinstance(value, ir.Const) and type(value.value) is int and abs(value.value) <= 2**24


def _narrow_copy(block: Any, statement: Any, func_ir: Any) -> Any:
    value = func_ir.get_definition(statement.target).value
    copy = ir.Var(block.scope, mk_unique_var("$rocpy_begin"), statement.loc)
    constant = ir.Assign(ir.Const(np.float32(value), statement.loc), copy, statement.loc)
    constant.value.wide = float(value)
    func_ir._definitions[copy.name].append(constant.value)
    block.body.insert(block.body.index(statement) + 1, constant)
    return copy


# Literals that meet float64 data.


def _leaves(type_: Any) -> Iterator[Any]:
    """Yield the types of the numbers that a value holds, or that a type as a value stands for."""
    if isinstance(type_, types.BaseTuple):
        for each in type_:
            yield from _leaves(each)
    elif isinstance(type_, (types.Array, types.DType, types.NumberClass)):
        yield type_.dtype
    elif isinstance(type_, types.BoundFunction):
        yield from _leaves(type_.this)
    else:
        yield types.unliteral(type_)


class _Literals:
    """Variables that have only literals and integers in them, which can be computed in float64 again."""

    def __init__(self, func_ir: Any, typemap: Any, wide: set[str]) -> None:
        self._func_ir, self._types, self._wide = func_ir, typemap, wide
        self._definitions: dict[str, list[tuple[Any, Any]]] = {}
        self._copies: dict[str, Any] = {}
        for block in func_ir.blocks.values():
            for statement in block.body:
                if isinstance(statement, ir.Assign):
                    self._definitions.setdefault(statement.target.name, []).append((block, statement))

    def __contains__(self, name: str) -> bool:
        return self._type_of(name) in _NARROW and self._only_literals(name, set())

    def _type_of(self, name: str) -> Any:
        return types.unliteral(self._types.get(name))

    def _only_literals(self, name: str, visited: set[str]) -> bool:
        if name in visited or isinstance(self._type_of(name), _INTEGERS):
            return True
        visited.add(name)
        definitions = self._definitions.get(name, [])
        if len(definitions) != 1 or name in self._wide:
            return False
        value = definitions[0][1].value
        if isinstance(value, (ir.Const, ir.Global, ir.FreeVar)) or self._member(value) is not None:
            return self._member(value) is not None or type(getattr(value, "wide", None)) in (float, complex)
        operands = self._operands_of(value)
        return bool(operands) and all(self._only_literals(each.name, visited) for each in operands)

    def _member(self, value: Any) -> Any:
        """Return the float64 that is read of a tuple of literals; None for anything else."""
        if not isinstance(value, ir.Expr) or value.op != "static_getitem" or type(value.index) is not int:
            return None
        definitions = self._definitions.get(value.value.name, [])
        members = getattr(definitions[0][1].value, "wide", None) if len(definitions) == 1 else None
        member = members[value.index] if isinstance(members, tuple) else None
        return member if type(member) in (float, complex) else None

    def _operands_of(self, value: Any) -> list[Any]:
        if isinstance(value, ir.Var):
            return [value]
        if not isinstance(value, ir.Expr):
            return []
        if value.op == "unary":
            return [value.value]
        if value.op == "phi":
            return [each if isinstance(each, ir.Var) else _UNDEFINED for each in value.incoming_values]
        return list(value.args) if _is_cast(value) else _operands(value, self._types)

    def copy(self, name: str) -> Any:
        """Return the variable's value in float64, which is computed after it."""
        if name in self._copies or isinstance(self._type_of(name), _INTEGERS):
            return self._copies.get(name) or self._definitions[name][0][1].target
        block, statement = self._definitions[name][0]
        value, loc = statement.value, statement.loc
        result = self._copies[name] = ir.Var(block.scope, mk_unique_var("$rocpy_wide"), loc)
        if isinstance(value, (ir.Const, ir.Global, ir.FreeVar)):
            new: Any = ir.Const(value.wide, loc)
        elif self._member(value) is not None:
            new = ir.Const(self._member(value), loc)
        elif _is_cast(value):
            new = self._copy_of(value.args[0])
        elif isinstance(value, ir.Var):
            new = self._copy_of(value)
        else:
            new = ir.Expr(value.op, loc, **value._kws)
        copied = ir.Assign(new, result, loc)
        if isinstance(new, ir.Expr):
            replace_vars_stmt(copied, {each.name: self._copy_of(each) for each in self._operands_of(value)})
        self._func_ir._definitions[result.name].append(new)
        self._wide.add(result.name)
        block.body.insert(block.body.index(statement) + 1, copied)
        return result

    def _copy_of(self, variable: Any) -> Any:
        return variable if isinstance(self._type_of(variable.name), _INTEGERS) else self.copy(variable.name)


_UNDEFINED = ir.Var(None, "$rocpy_undefined", ir.unknown_loc)


def _is_cast(value: Any) -> bool:
    """Return whether an expression is a cast of an integer that `narrow_operations` put there."""
    return isinstance(value, ir.Expr) and value.op == "call" and value.func.name.startswith("$rocpy_float32")


def _with_wide(statement: Any, typemap: Any) -> list[Any]:
    """Return the variables that a statement combines with float64, stores as that, or makes that of."""
    if isinstance(statement, (ir.SetItem, ir.StaticSetItem, ir.SetAttr)):
        stored = typemap[statement.target.name]
        if isinstance(stored, types.Record):
            field = getattr(statement, "attr", None) or getattr(statement, "index", None)
            stored = stored.typeof(field) if isinstance(field, str) else types.none
        return [statement.value] if any(each in _WIDE for each in _leaves(stored)) else []
    value = statement.value if isinstance(statement, ir.Assign) else None
    if not isinstance(value, ir.Expr):
        return []
    if value.op in ("phi", "cast"):
        wide = typemap.get(statement.target.name) in _WIDE
        sources = value.incoming_values if value.op == "phi" else [value.value]
        return [each for each in sources if isinstance(each, ir.Var)] if wide else []
    if value.op == "call":
        operands = [*value.args, *(each for _, each in value.kws)]
        leaves = [leaf for each in [value.func, *operands] for leaf in _leaves(typemap[each.name])]
    else:
        operands = _operands(value, typemap)
        leaves = [leaf for each in operands for leaf in _leaves(typemap[each.name])]
    return operands if any(each in _WIDE for each in leaves) else []


def widen_literals(func_ir: Any, typemap: Any, wide: set[str]) -> bool:
    """Make float64 again of literals that meet float64; return whether there are any, whose names `wide` gets."""
    literals = _Literals(func_ir, typemap, wide)
    changed = False
    for block in func_ir.blocks.values():
        for statement in list(block.body):
            widened = {each.name for each in _with_wide(statement, typemap) if each.name in literals}
            if widened:
                replace_vars_stmt(statement, {name: literals.copy(name) for name in widened})
                changed = True
    return changed


# Notes of float64.


def _uses(func_ir: Any) -> tuple[Counter[str], dict[str, str]]:
    """Return how often each variable is used, and the array that the value of a store goes to."""
    used: Counter[str] = Counter()
    stored: dict[str, str] = {}
    for block in func_ir.blocks.values():
        for statement in block.body:
            if isinstance(statement, ir.Del):
                continue
            target = statement.target.name if isinstance(statement, ir.Assign) else None
            used.update(each.name for each in statement.list_vars() if each.name != target)
            if isinstance(statement, (ir.SetItem, ir.StaticSetItem)):
                stored[statement.value.name] = statement.target.name
    return used, stored


def notes_of(state: Any) -> list[tuple[str, int]]:
    """Return the places, file and line, where a function that names no float64 computes in it."""
    func_ir, typemap, calltypes = state.func_ir, state.typemap, state.calltypes
    code = func_ir.func_id.code
    used, stored = _uses(func_ir)
    locations: list[tuple[str, int]] = []
    called: list[tuple[str, int]] = []
    own = not _NAMES.intersection(code.co_names) and not _NAMES.intersection(map(str, code.co_consts))
    for block in func_ir.blocks.values():
        for statement in block.body:
            if not isinstance(statement, ir.Assign) or not isinstance(statement.value, ir.Expr):
                continue
            expression = statement.value
            signature = calltypes.get(expression)
            if expression.op == "call" and isinstance(typemap[expression.func.name], types.Dispatcher):
                called += _notes_of_callee(typemap[expression.func.name].dispatcher, signature)
            elif own and _operands(expression, typemap) and _is_wide(signature):
                comparison = expression.op == "binop" and expression.fn in _COMPARISONS
                rounded_at_once = used[statement.target.name] == 1 and _stores_narrow(
                    stored.get(statement.target.name), typemap
                )
                if not comparison and not (rounded_at_once and _widened(statement, typemap, calltypes)):
                    locations.append((statement.loc.filename, statement.loc.line))
    return [*sorted(set(locations)), *sorted(set(called) - set(locations))]


def _stores_narrow(array: str | None, typemap: Any) -> bool:
    return array is not None and getattr(typemap.get(array), "dtype", None) in _NARROW


def _notes_of_callee(dispatcher: Any, signature: Any) -> list[tuple[str, int]]:
    overloads = getattr(dispatcher, "overloads", {})
    compiled = overloads.get(tuple(signature.args)) if signature is not None else None
    return list(compiled.metadata.get(NOTES, ())) if compiled is not None else []


def surprises(arguments: tuple[types.Type, ...]) -> bool:
    """Return whether float64 surprises in a kernel of such arguments: floats of 32 bits or less, and none of 64."""
    types_of_leaves = [leaf for each in arguments for leaf in _leaves(each)]
    return any(each in _NARROW for each in types_of_leaves) and not any(each in _WIDE for each in types_of_leaves)


@register_pass(mutates_CFG=True, analysis_only=False)
class NotingInference(IntegerInference):
    """Type inference that notes where float64 is computed in."""

    _name = "rocpy_noting_inference"

    def run_pass(self, state: Any) -> bool:
        """Find the types."""
        changed = super().run_pass(state)
        state.metadata[NOTES] = notes_of(state)
        return bool(changed)


@register_pass(mutates_CFG=True, analysis_only=False)
class NarrowInference(IntegerInference):
    """Type inference in which literals are float32 and integers follow the floats that they meet."""

    _name = "rocpy_narrow_inference"
    _wide_quotients = False

    def run_pass(self, state: Any) -> bool:
        """Find the types, again as long as an operation changes."""
        returned = state.return_type  # that is given, not that of an earlier round
        wide: set[str] = set()
        narrow_literals(state.func_ir)
        super().run_pass(state)
        while (
            narrow_operations(state.func_ir, state.typemap, state.calltypes, wide)
            or narrow_beginnings(state.func_ir, state.typemap)
            or widen_literals(state.func_ir, state.typemap, wide)
        ):
            state.return_type = returned
            super().run_pass(state)
        state.metadata[NOTES] = notes_of(state)
        return True
