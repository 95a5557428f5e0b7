# SPDX-License-Identifier: MIT
"""Which activation a function or a module computes: known by identity, or by the syntax of its formula."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import nn

__all__ = ["ARITHMETIC", "FORMULAS", "Guard", "Known", "Operation", "X", "hold", "operation", "row_of_call", "total"]

F = nn.functional
_MISSING = object()

#: A table, a name in it, and the object that must stand there (or ``_MISSING``: none may).
Guard = tuple[Mapping[str, Any], str, Any]


def hold(guards: Iterable[Guard]) -> bool:
    """Whether each name still stands for the object that it stood for."""
    for table, name, value in guards:  # noqa: SIM110  (a generator takes twice as long)
        if table.get(name, _MISSING) is not value:
            return False
    return True


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """An activation that was recognised.

    Parameters
    ----------
    row
        Its name among rocpy's activations.
    forward
        The function that computes it.
    composite
        Whether it is spelled out in several of torch's functions, which autocast may run in types of their own.
    guards
        The names that its code reads, each with what it stood for.
    reads
        Attributes of the module that its code reads, with the values they had.
    methods
        Such attributes that were methods of the module itself, with their functions.
    absent
        Names that must be no attribute of the class, since the code reads the instance's.
    """

    row: str
    forward: Any
    composite: bool = False
    guards: tuple[Guard, ...] = field(default=(), repr=False)
    reads: tuple[tuple[str, Any], ...] = ()
    methods: tuple[tuple[str, Any], ...] = ()
    absent: tuple[str, ...] = ()


# ---- formulas: sums and products with their constants folded, in an order of their own ----

_ATOM: tuple[Any, ...] = ("x",)


def product(factors: Iterable[Any]) -> Any:
    """Return a product of formulas."""
    constant, others = 1.0, []
    for factor in factors:
        if isinstance(factor, float):
            constant *= factor
        elif factor[0] == "mul":
            constant *= factor[1]
            others += factor[2]
        else:
            others.append(factor)
    return constant if not others else ("mul", constant, sorted(others, key=repr))


def total(terms: Iterable[Any]) -> Any:
    """Return a sum of formulas."""
    constant, others = 0.0, []
    for term in terms:
        if isinstance(term, float):
            constant += term
        elif term[0] == "add":
            constant += term[1]
            others += term[2]
        else:
            others.append(term)
    return constant if not others else ("add", constant, sorted(others, key=repr))


#: The argument of an activation, as a formula.
X = product([_ATOM])


def _quotient(one: Any, other: Any) -> Any:
    return product([one, 1.0 / other]) if isinstance(other, float) and other else None


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, float) and isinstance(exponent, float):
        return base**exponent if base > 0 else None
    if isinstance(exponent, float) and exponent.is_integer() and 1 <= exponent <= 4:
        return product([base] * int(exponent))
    return None


def _unary(name: str) -> Callable[..., Any]:
    return lambda x: None if isinstance(x, float) else product([(name, x)])


def _root(x: Any) -> Any:
    return math.sqrt(x) if isinstance(x, float) and x >= 0 else None


#: What Python's operators do with formulas, by the names of their methods.
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Mult": lambda a, b: product([a, b]),
    "Add": lambda a, b: total([a, b]),
    "Div": _quotient,
    "Pow": _power,
}


def equal(one: Any, other: Any) -> bool:
    """Whether two formulas are the same; constants may differ by what folding them rounds."""
    if isinstance(one, float) or isinstance(other, float):
        return isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=1e-15)
    if isinstance(one, (tuple, list)) and type(one) is type(other) and len(one) == len(other):
        return all(equal(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other)


def _half_x_times(inner: Any) -> Any:
    return product([0.5, X, total([1.0, inner])])


_CUBIC = total([X, product([0.044715, X, X, X])])
#: The activations that may be spelled out.
FORMULAS = {
    "gelu": _half_x_times(product([("erf", product([X, 1.0 / math.sqrt(2.0)]))])),
    "gelu_tanh": _half_x_times(product([("tanh", product([math.sqrt(2.0 / math.pi), _CUBIC]))])),
    "silu": product([X, ("sigmoid", X)]),
}


# ---- torch's functions ----


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """A function that is known.

    Parameters
    ----------
    row
        The activation that it computes of its first argument, if any; of GELU the form is an option.
    formula
        What it does with formulas, if that is known.
    guards
        What its own code reads.
    """

    row: str = ""
    formula: Callable[..., Any] | None = None
    guards: tuple[Guard, ...] = field(default=(), repr=False)


def _is_torchs(function: Any) -> bool:
    """Whether a function of torch.nn.functional is the one that torch defines there."""
    return isinstance(function, FunctionType) and function.__code__.co_filename == F.__file__


@functools.cache
def _operations() -> dict[Any, Operation]:
    """Return torch's functions that are known; those that somebody has patched are not among them."""
    ops, neural = torch._C._VariableFunctions, torch._C._nn

    def read(table: Any, *names: str) -> tuple[Guard, ...]:
        source = ops if table is torch else table
        return tuple((vars(table), name, getattr(source, name)) for name in names)

    sigmoid, tanh, erf = _unary("sigmoid"), _unary("tanh"), _unary("erf")
    known: dict[Any, Operation] = {
        neural.gelu: Operation("gelu"),
        neural.silu: Operation("silu"),
        ops.relu: Operation("relu"),
        ops.relu_: Operation("relu"),
        ops.sigmoid: Operation("sigmoid", sigmoid),
        ops.sigmoid_: Operation("sigmoid"),
        ops.tanh: Operation(formula=tanh),
        ops.erf: Operation(formula=erf),
        torch._C._special.special_erf: Operation(formula=erf),
        ops.mul: Operation(formula=ARITHMETIC["Mult"]),
        ops.add: Operation(formula=ARITHMETIC["Add"]),
        ops.div: Operation(formula=_quotient),
        ops.true_divide: Operation(formula=_quotient),
        ops.pow: Operation(formula=_power),
        math.sqrt: Operation(formula=_root),
    }
    for name, operation in (
        ("silu", Operation("silu", guards=read(neural, "silu", "silu_"))),
        ("relu", Operation("relu", guards=read(torch, "relu", "relu_"))),
        ("sigmoid", Operation("sigmoid", sigmoid, method_guards("sigmoid"))),
        ("tanh", Operation("", tanh, method_guards("tanh"))),
    ):
        function = getattr(F, name, None)
        if _is_torchs(function):
            known[function] = operation
    return known


def method_guards(*names: str) -> tuple[Guard, ...]:
    """Return what says that methods of tensors are torch's own."""
    base = vars(torch._C.TensorBase)
    return tuple(
        guard for name in names for guard in ((vars(torch.Tensor), name, _MISSING), (base, name, base.get(name)))
    )


#: Python's operators on tensors.
OPERATORS: tuple[Guard, ...] = tuple(
    (vars(torch.Tensor), name, vars(torch.Tensor).get(name, _MISSING))
    for name in ("__mul__", "__rmul__", "__add__", "__radd__", "__truediv__", "__pow__")
)

#: Methods of tensors that are activations, or that formulas are made of.
METHODS: dict[str, Operation] = {
    "relu": Operation("relu", guards=method_guards("relu")),
    "relu_": Operation("relu", guards=method_guards("relu_")),
    "sigmoid": Operation("sigmoid", _unary("sigmoid"), method_guards("sigmoid")),
    "sigmoid_": Operation("sigmoid", guards=method_guards("sigmoid_")),
    "tanh": Operation(formula=_unary("tanh"), guards=method_guards("tanh")),
    "erf": Operation(formula=_unary("erf"), guards=method_guards("erf")),
    "mul": Operation(formula=ARITHMETIC["Mult"], guards=method_guards("mul")),
    "add": Operation(formula=ARITHMETIC["Add"], guards=method_guards("add")),
    "div": Operation(formula=_quotient, guards=method_guards("div")),
    "pow": Operation(formula=_power, guards=method_guards("pow")),
}
_FUNCTIONS = (BuiltinFunctionType, FunctionType)


def operation(function: Any) -> Operation | None:
    """Return what a function is known as."""
    return _operations().get(function) if type(function) in _FUNCTIONS else None


def row_of_call(known: Operation, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> str | None:
    """Return the activation that a call of torch's function computes of its first argument.

    Parameters
    ----------
    known
        The function.
    arguments, options
        The other arguments, all of them known values.
    """
    if not known.row:
        return None
    if known.row == "gelu":
        if arguments or not options.keys() <= {"approximate"}:
            return None
        form = options.get("approximate", "none")
        return {"none": "gelu", "tanh": "gelu_tanh"}.get(form) if type(form) is str else None
    # Whether it overwrites its argument is nothing to who reads the result alone.
    flags = [*arguments, *options.values()]
    if len(flags) > 1 or not options.keys() <= {"inplace"} or any(type(value) is not bool for value in flags):
        return None
    return known.row


@functools.cache
def torch_functions() -> frozenset[int]:
    """Return the ids of the functions that a straight-line forward may call: torch's, on tensors."""
    functions = [value for table in (torch._C._VariableFunctions, torch._C._nn) for value in _public(table)]
    functions += [value for value in _public(F) if _is_torchs(value) or type(value) is BuiltinFunctionType]
    functions += [getattr(torch.special, name) for name in torch.special.__all__ if hasattr(torch.special, name)]
    functions += [torch.einsum, torch.split, torch.stft, torch.norm, torch.chunk, torch.unique]
    return frozenset(id(value) for value in functions)


def _public(table: Any) -> list[Any]:
    return [value for name in dir(table) if not name.startswith("_") and callable(value := getattr(table, name))]
