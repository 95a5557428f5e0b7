# SPDX-License-Identifier: MIT
"""Types of the integers that an operation combines: Numba takes a literal for int64, and uint64 with it for float64."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numba.core import errors, ir, types
from numba.core.compiler_machinery import register_pass
from numba.core.ir_utils import mk_unique_var
from numba.core.typed_passes import NopythonTypeInference
from numba.core.typeinfer import TypeInferer
from numba.np import numpy_support

from rocpy.cooperative.numba.arithmetic.context import UFUNCS
from rocpy.cooperative.numba.arithmetic.integers import rounded

_SHIFTS = frozenset({operator.lshift, operator.rshift})
_COMPARISONS = frozenset({operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge})
_OPERATORS = frozenset(UFUNCS) - _COMPARISONS
_SIGNED_TOO = frozenset(UFUNCS[each] for each in _OPERATORS) | {
    np.fmod
}  # of which uint64 and an integer have one result
_QUOTIENTS = frozenset({operator.truediv, np.true_divide})
_ROUNDED = frozenset({round, math.trunc})


class _Operands:
    """The operations of one function whose operands are to be cast."""

    def __init__(self, func_ir: Any, typemap: Any, wide_quotients: bool) -> None:
        self._func_ir, self._types, self._wide_quotients = func_ir, dict(typemap), wide_quotients
        self._new: set[str] = set()  # numbers that are of uint64 once operands are cast
        self._others: set[str] = set()  # numbers that are not of uint64
        self.changed = False

    def cast_all(self) -> None:
        """Put casts before operations."""
        for block in self._func_ir.blocks.values():
            body: list[Any] = []
            for statement in block.body:
                value = statement.value if isinstance(statement, ir.Assign) else None
                if isinstance(value, ir.Expr):
                    body += self._exactly_rounded(block, value)
                    for field, variable, kind in list(self._casts(value)):
                        casts, result = self._cast(block, variable, kind, statement.loc)
                        body += casts
                        _put(value, field, result)
                if isinstance(value, (ir.Expr, ir.Var)):
                    self._follow(statement.target, value)
                body.append(statement)
            if len(body) > len(block.body):
                block.body = body

    def _follow(self, target: Any, value: Any) -> None:
        """Note that a number is of uint64 once operands are: what it is combined with is cast in the same round."""
        if isinstance(value, ir.Var):
            sources = [value]
        else:
            function, operands = self._operation(value) if value.op in ("binop", "inplace_binop") else (None, [])
            known = function in _OPERATORS and function not in (operator.truediv, operator.pow)
            sources = [each for _, each in operands[: 1 if function in _SHIFTS else 2]] if known else []
        if any(each.name in self._new for each in sources) and {self._type_of(each) for each in sources} == {
            types.uint64
        }:
            self._types[target.name] = types.uint64
            self._new.add(target.name)

    def begin_unsigned(self) -> None:
        """Make uint64 of the literals that a variable begins with which has a uint64 later, and is float64 for that."""
        assigned = {}
        for block in self._func_ir.blocks.values():
            assigned.update({each.target.name: (block, each) for each in block.body if isinstance(each, ir.Assign)})
        for _, statement in list(assigned.values()):
            phi = statement.value
            if (
                not isinstance(phi, ir.Expr)
                or phi.op != "phi"
                or self._types.get(statement.target.name) != types.float64
            ):
                continue
            sources = [each for each in phi.incoming_values if isinstance(each, ir.Var)]
            others = [each for each in sources if self._type_of(each) != types.uint64]
            if len(others) == len(sources) or any(self._literal(each, types.uint64) is None for each in others):
                continue
            for each in others:
                block, begin = assigned[each.name]
                casts, new = self._cast(block, each, types.uint64, begin.loc)
                at = next(i for i, one in enumerate(block.body) if one is begin) + 1
                block.body[at:at] = casts
                phi.incoming_values = [new if value is each else value for value in phi.incoming_values]

    def _type_of(self, variable: Any) -> Any:
        return types.unliteral(self._types.get(variable.name, types.unknown))

    def _literal(self, variable: Any, kind: Any) -> int | None:
        """Return the Python integer that a variable is, if a type has it."""
        value: Any = variable
        while isinstance(value, ir.Var):
            definitions = self._func_ir._definitions.get(value.name, ())
            value = definitions[0] if len(definitions) == 1 else None
        number = value.value if isinstance(value, (ir.Const, ir.Global, ir.FreeVar)) else None
        return number if type(number) is int and kind.minval <= number <= kind.maxval else None

    def _casts(self, expression: Any) -> Iterator[tuple[Any, Any, Any]]:
        """Yield which operand of an operation is to be cast, its variable and the type."""
        function, operands = self._operation(expression)
        kinds = [self._type_of(each) for _, each in operands]
        elements = [each.dtype if isinstance(each, types.Array) else each for each in kinds]
        whole = isinstance(function, np.ufunc) or elements != kinds
        if whole and self._wide_quotients and self._is_narrow_quotient(expression, function, elements):
            field, variable = operands[1 if kinds[0] is not elements[0] and kinds[1] is elements[1] else 0]
            yield field, variable, types.float64
            return
        if whole and not all(isinstance(each, types.Integer) for each in elements):
            return
        for mine, (field, variable) in enumerate(operands):
            if whole:
                wanted = self._of_function(UFUNCS.get(function, function), operands, kinds, elements, mine)
            else:
                wanted = self._of_operator(function, operands, kinds, mine)
            if wanted not in (None, kinds[mine]):
                yield field, variable, wanted

    def _is_narrow_quotient(self, expression: Any, function: Any, elements: Any) -> bool:
        """Return whether integers of 8 or 16 bits are divided, which Numba does in float32 and numpy in float64."""
        narrow = [
            each == types.boolean or (isinstance(each, types.Integer) and each.bitwidth <= 16) for each in elements
        ]
        outputs = [self._type_of(each) for each in expression.args[2:]] if expression.op == "call" else []
        rounded_later = any(getattr(each, "dtype", None) != types.float64 for each in outputs)
        return function in _QUOTIENTS and expression.op != "inplace_binop" and all(narrow) and not rounded_later

    def _of_function(self, function: Any, operands: Any, kinds: Any, elements: Any, mine: int) -> Any:
        """Return the type that a number gets in a function of numpy's, or beside an array: a literal, that of it."""
        other = elements[1 - mine]
        if kinds[mine] is not elements[mine] or (kinds[1 - mine] is other and other != types.uint64):
            return None
        if self._literal(operands[mine][1], other) is not None:
            return other
        literal = self._literal(operands[mine][1], types.int64) is not None
        return other if other == types.uint64 and function in _SIGNED_TOO and not literal else None

    def _of_operator(self, function: Any, operands: Any, kinds: Any, mine: int) -> Any:
        """Return the type that a number gets beside another one: a literal, uint64 beside that."""
        if kinds[mine] not in (types.int64, types.unknown) or (mine and function in _SHIFTS):
            return None
        literal = self._literal(operands[mine][1], types.int64)
        unsigned = function is divmod if literal is None else literal >= 0
        other = operands[1 - mine][1]
        return types.uint64 if unsigned and self._is_unsigned(other) and not self._is_narrow(other) else None

    def _is_unsigned(self, variable: Any) -> bool:
        """Return whether a number is of uint64, or would be if literals were of the type of what they meet."""

        def verdict(each: Any) -> bool | None:
            kind = self._type_of(each)
            if each is not variable and self._literal(each, types.uint64) is not None:
                return True
            if isinstance(kind, types.Integer):
                return kind == types.uint64 if each is variable else not kind.signed
            return None if kind in (types.float64, types.unknown) and each.name not in self._others else False

        result = self._consists(variable, verdict)
        if not result:
            self._others.add(variable.name)
        return result

    def _is_narrow(self, variable: Any) -> bool:
        """Return whether a number is of fewer bits, or computed of such; with literals these are int64 in Numba.

        So is the index of a range, which may be less than 0 once something is subtracted.
        """

        def verdict(each: Any) -> bool | None:
            kind = self._types.get(each.name)
            if isinstance(kind, types.RangeIteratorType) or self._literal(each, types.int64) is not None:
                return True
            return True if isinstance(kind, types.Integer) and kind.bitwidth < types.intp.bitwidth else None

        return self._consists(variable, verdict)

    def _consists(self, variable: Any, verdict: Callable[[Any], bool | None]) -> bool:
        """Return whether all that a number is computed of is so; None stands for what its parts decide."""
        rest, visited = [variable], {variable.name}
        while rest:
            each = rest.pop()
            decided = verdict(each)
            parts = self._parts(each) if decided is None else []
            if decided is False or (decided is None and not parts):
                return False
            rest += [part for part in parts if part.name not in visited]
            visited.update(part.name for part in parts)
        return True

    def _parts(self, variable: Any) -> list[Any]:
        """Return the variables that a number is computed of, or is; none where that is not known."""
        definitions = self._func_ir._definitions.get(variable.name, ())
        value = definitions[0] if len(definitions) == 1 else None
        if isinstance(value, ir.Var):
            return [value]
        if not isinstance(value, ir.Expr):
            return []
        if value.op == "phi":
            return [each for each in value.incoming_values if isinstance(each, ir.Var)]
        if value.op in ("unary", "exhaust_iter", "static_getitem", "pair_first", "iternext"):
            return [value.value]
        function, operands = self._operation(value)
        known = (value.op != "call" or function is divmod) and function in _OPERATORS - {operator.truediv}
        return [each for _, each in operands] if known else []

    def _operation(self, expression: Any) -> tuple[Any, list[tuple[Any, Any]]]:
        """Return the function that integers are combined by, and which part of the expression each operand is."""
        if expression.op in ("binop", "inplace_binop"):
            function = expression.immutable_fn if expression.op == "inplace_binop" else expression.fn
            return function, [("lhs", expression.lhs), ("rhs", expression.rhs)]
        if expression.op != "call" or expression.kws or expression.vararg is not None:
            return None, []
        key = getattr(self._types.get(expression.func.name), "typing_key", None)
        arguments = list(enumerate(expression.args))
        if isinstance(key, np.ufunc):
            return key, arguments[:2] if key.nin == 2 else []
        known = key in (divmod, max, min, pow) if key.__hash__ is not None else False
        return key, arguments if known and len(arguments) == 2 else []

    def _exactly_rounded(self, block: Any, expression: Any) -> list[Any]:
        """Let a call that rounds an integer, which Numba does in float64, be of this package's function."""
        if expression.op != "call" or expression.kws or expression.vararg is not None or not expression.args:
            return []
        key = getattr(self._types.get(expression.func.name), "typing_key", None)
        known = key in _ROUNDED if key.__hash__ is not None else False
        if not known or not isinstance(self._type_of(expression.args[0]), types.Integer):
            return []
        function = ir.Var(block.scope, mk_unique_var("$rocpy_rounded"), expression.loc)
        statement = ir.Assign(ir.Global(rounded.__name__, rounded, expression.loc), function, expression.loc)
        self._func_ir._definitions[function.name].append(statement.value)
        expression.func = function
        self.changed = True
        return [statement]

    def _cast(self, block: Any, variable: Any, kind: Any, loc: Any) -> tuple[list[Any], Any]:
        """Return the statements that cast a variable, and what they set."""
        other = ir.Var(block.scope, mk_unique_var("$rocpy_type"), loc)
        result = ir.Var(block.scope, mk_unique_var("$rocpy_cast"), loc)
        if isinstance(self._type_of(variable), types.Array):
            named: Any = ir.Const(1.0, loc)  # whose products are float64, in an expression with what they are part of
            value = ir.Expr.binop(operator.mul, variable, other, loc)
        else:
            named = ir.Global(str(kind), numpy_support.as_dtype(kind).type, loc)
            value = ir.Expr.call(other, (variable,), (), loc)
        statements = [ir.Assign(named, other, loc), ir.Assign(value, result, loc)]
        for each in statements:
            self._func_ir._definitions[each.target.name].append(each.value)
        self._types[result.name] = kind
        self._new.add(result.name)
        self.changed = True
        return statements, result


def _put(expression: Any, field: Any, variable: Any) -> None:
    if isinstance(field, str):
        setattr(expression, field, variable)
    else:
        expression.args = tuple(variable if i == field else each for i, each in enumerate(expression.args))


def cast_operands(func_ir: Any, typemap: Any, *, wide_quotients: bool) -> bool:
    """Cast the integers that numpy, or the rule of kernels for 64 bits, takes to be of another type than Numba does.

    Return whether there are any: types are then to be inferred again. `wide_quotients`: those of integers are float64.
    """
    operands = _Operands(func_ir, typemap, wide_quotients)
    operands.cast_all()
    operands.begin_unsigned()
    return operands.changed


@register_pass(mutates_CFG=True, analysis_only=False)
class IntegerInference(NopythonTypeInference):
    """Type inference in which integers have the types that numpy has for them."""

    _name = "rocpy_integer_inference"
    _wide_quotients = True

    def run_pass(self, state: Any) -> bool:
        """Find the types, again as long as an operand changes."""
        returned = state.return_type  # that is given, not that of an earlier round
        try:
            super().run_pass(state)
        except Exception:
            # numpy has no function of uint64 and int64 for `x >> 1`: what types there are tell what to cast.
            if not cast_operands(state.func_ir, _some_types(state), wide_quotients=self._wide_quotients):
                raise
            return self.run_pass(state)
        while cast_operands(state.func_ir, state.typemap, wide_quotients=self._wide_quotients):
            state.return_type = returned
            super().run_pass(state)
        return True


def _some_types(state: Any) -> dict[str, Any]:
    """Return the types of a function's variables, as far as Numba finds them."""
    func_ir = state.func_ir
    inferred = TypeInferer(state.typingctx, func_ir, errors.WarningsFixer(errors.NumbaWarning))
    with state.typingctx.callstack.register(state.targetctx.target, inferred, func_ir.func_id, state.args):
        for index, (name, kind) in enumerate(zip(func_ir.arg_names, state.args, strict=True)):
            inferred.seed_argument(name, index, kind)
        inferred.build_constraint()
        with contextlib.suppress(Exception):  # a rule of Numba's may fail by itself, with what it does not expect
            inferred.propagate(raise_errors=False)
    return {name: each.get()[0] for name, each in inferred.typevars.items() if each.defined}
