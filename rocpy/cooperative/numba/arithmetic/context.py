# SPDX-License-Identifier: MIT
"""How kernels compute: operators, numpy's functions and expressions of whole arrays have the code of this package."""

from __future__ import annotations

import functools
import operator
import re
from typing import Any, ClassVar

import numpy as np
from numba.core import ir, types
from numba.core.typing import npydecl
from numba.cpython import numbers

from rocpy.cooperative.numba.arithmetic import floats, integers
from rocpy.cooperative.numba.memory.checks import checked

_OF_INTEGERS = re.compile("[bBhHiIlLqQ]+->[bBhHiIlLqQ]+$")  # loops of numpy's
_OF_FLOATS = re.compile("([fd])\\1->\\1+$")
_OF_COMPLEX = re.compile("([FD])\\1->\\1$")
_INTEGERS: dict[Any, Any] = {
    np.floor_divide: lambda *arguments: integers.rounded_down(*arguments)[0],
    np.remainder: lambda *arguments: integers.rounded_down(*arguments)[1],
    np.divmod: integers.both,
    np.fmod: integers.fmod,
    np.left_shift: functools.partial(integers.shift, True),
    np.right_shift: functools.partial(integers.shift, False),
    np.power: integers.power,
    np.sign: integers.sign,
    np.lcm: integers.lcm,
}
_FLOATS: dict[Any, Any] = {np.floor_divide: numbers.real_floordiv_impl, np.divmod: numbers.real_divmod_impl}
_COMPLEX: dict[Any, Any] = {np.true_divide: floats.complex_quotient, np.power: floats.complex_power}
# The functions of numpy's that operators are.
UFUNCS = {
    **{key: getattr(np, name) for key, name in npydecl.NumpyRulesArrayOperator._op_map.items()},
    divmod: np.divmod,
    pow: np.power,
}
_UNARY = {key: getattr(np, name) for key, name in npydecl.NumpyRulesUnaryArrayOperator._op_map.items()}
_MOST_FACTORS = 2**16  # beyond, Numba calls the mathematical library


@functools.cache
def kernel_context(base: Any) -> Any:
    """Return the class of the contexts of kernels: operators, numpy's functions and expressions of arrays agree."""
    if hasattr(base, "compiled"):
        return base

    class Context(base):
        """Numba's, with the arithmetic of this package, also in what it compiles for parts of a kernel."""

        # Such parts, which Numba shares with all that it compiles, without and with the checks of debug mode.
        compiled: ClassVar[dict[bool, dict[Any, Any]]] = {False: {}, True: {}}

        def get_function(self, function: Any, signature: Any, *arguments: Any, **options: Any) -> Any:
            """Return the code of a function."""
            key = getattr(function, "typing_key", function)
            own = _operation(key, signature)
            if own is not None:
                return lambda builder, operands, loc=None: own(self, builder, signature, operands)
            return checked(self, key, signature, super().get_function(function, signature, *arguments, **options))

        def get_ufunc_info(self, ufunc_key: Any) -> Any:
            """Return the code of a function of numpy's, by its loops."""
            loops = dict(super().get_ufunc_info(ufunc_key))
            for pattern, codes in ((_OF_INTEGERS, _INTEGERS), (_OF_FLOATS, _FLOATS), (_OF_COMPLEX, _COMPLEX)):
                if ufunc_key in codes:
                    loops |= {loop: codes[ufunc_key] for loop in loops if pattern.match(loop)}
            return loops

    return Context


def _operation(function: Any, signature: Any) -> Any:
    """Return the code of an operation on two numbers where Numba's does not do what numpy does; None elsewhere."""
    if len(signature.args) != 2:
        return None
    result, integer = signature.return_type, [isinstance(each, types.Integer) for each in signature.args]
    name = UFUNCS.get(function)
    least = getattr(signature.args[1], "literal_value", -1)
    if name is np.power and integer[1] and 0 <= least <= _MOST_FACTORS:
        return None
    if all(integer) and isinstance(integers.number_of(signature), types.Integer):
        return _INTEGERS.get(name)
    if isinstance(result, types.Complex):
        return _COMPLEX.get(name)
    return floats.power if name is np.power and integer[1] and result in (types.float32, types.float64) else None


def in_own_types(expression: Any, typeof: Any) -> Any:
    """Return an expression of whole arrays in which operators on integers are functions of numpy's.

    They compute in the operands' types, where operators compute in 64 bits.
    """
    return ir.Expr(
        **{**expression._kws, "op": "arrayexpr", "loc": expression.loc, "expr": _own(expression.expr, typeof)[0]}
    )


def _own(node: Any, typeof: Any) -> tuple[Any, bool]:
    """Return a node and whether integers or booleans are all that it consists of."""
    if isinstance(node, ir.Var):
        kind = typeof(node.name)
        return node, isinstance(getattr(kind, "dtype", kind), (types.Integer, types.Boolean))
    if not isinstance(node, tuple):
        return node, isinstance(getattr(node, "value", None), int)
    function, operands = node
    parts = [_own(each, typeof) for each in operands]
    whole = all(each for _, each in parts)
    ufunc = (_UNARY if len(parts) == 1 else UFUNCS).get(function) if whole else None
    divides = (ufunc or function) in (np.true_divide, operator.truediv)
    return (ufunc or function, [each for each, _ in parts]), whole and not divides
