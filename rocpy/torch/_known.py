# SPDX-License-Identifier: MIT
"""Which activation a function or module computes: known by its class, or by the trace of its formula; never guessed."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch
from torch import fx, nn

__all__ = ["Changeable", "Known", "identify", "identify_call", "looks_like_activation", "trace"]

# Attributes of every module, which say nothing about what one computes.
_PLUMBING = frozenset(nn.Module().__dict__) - {"training"}


@dataclass(frozen=True, slots=True)
class Known:
    """An activation that was recognised.

    Parameters
    ----------
    row
        Its name among rocpy's activations.
    composite
        Whether it is spelled out in several of torch's functions, which autocast may run in types of their own.
    reads
        Attributes that its formula was read from, with the values they had.
    """

    row: str
    composite: bool = False
    reads: tuple[tuple[str, Any], ...] = ()


class Changeable(Exception):  # noqa: N818  (an answer, not an error)
    """What a module's code depends on that may be different at its next call."""


class _Tracer(fx.Tracer):  # type: ignore[misc]
    def __init__(self, method: str) -> None:
        super().__init__()
        self.traced_func_name = method

    def is_leaf_module(self, m: nn.Module, name: str) -> bool:  # noqa: ARG002
        """Stop at every submodule: what it computes is its own affair."""
        return True

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:  # noqa: ARG002
        """Return an attribute that a module keeps in its tables: a submodule, but no tensor."""
        if isinstance(attr_val, torch.Tensor):
            raise Changeable(f"it reads {attr} itself")
        return attr_val


def _logged(module: nn.Module, names: set[str], prefix: str = "") -> nn.Module:
    """Return a stand-in for a module that notes which of its attributes are read; the module is not touched."""
    cls = type(module)

    def read(self: Any, name: str) -> Any:
        names.add(prefix + name)
        return object.__getattribute__(self, name)

    made: nn.Module = object.__new__(type(cls.__name__, (cls,), {"__getattribute__": read}))
    object.__setattr__(made, "__dict__", dict(module.__dict__))
    return made


def trace(module: nn.Module, method: str = "forward") -> tuple[fx.Graph, tuple[tuple[str, Any], ...]]:
    """Return the graph of a module's method and the attributes it depends on, with their values.

    Raises
    ------
    Changeable
        If it depends on what cannot be checked at each call.
    """
    graphs, read = [], {}
    recorded = [torch.enable_grad(), torch.autocast("cpu", enabled=False)]
    apart = [torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16)]
    for grad, cast in (recorded, apart):
        names: set[str] = set()
        stand_in = _logged(module, names)
        children = {key: child and _logged(child, names, f"{key}.") for key, child in module._modules.items()}
        stand_in.__dict__["_modules"] = children
        names.clear()
        with grad, cast, _refusing_questions(getattr(type(module), method)):
            graphs.append(_Tracer(method).trace(stand_in))
        for name in names:
            child, _, own = name.rpartition(".")
            table = module._modules[child].__dict__ if child else module.__dict__
            if own in table and own not in _PLUMBING:
                if child:
                    raise Changeable(f"it reads {name}")
                read[own] = table[own]
    if len({_text(graph) for graph in graphs}) != 1:
        raise Changeable("it computes something else where gradients are recorded or autocast is on")
    for name, value in read.items():
        if not isinstance(value, (bool, int, float, str, type(None))) and not callable(value):
            raise Changeable(f"it reads {name}, which may change")
    return graphs[0], tuple(sorted(read.items(), key=lambda item: item[0]))


# What code asks to tell tensors from other things; a traced value would answer for itself.
_QUESTIONS = (isinstance, hasattr, callable, issubclass)
# Whose own questions, asked while tracing, are about their own things.
_TRACING = sys.stdlib_module_names - {"__main__"} | {"torch", "rocpy"}


@contextmanager
def _refusing_questions(function: Any) -> Iterator[None]:
    """Note whether code outside torch asks what a value is, and refuse the trace if so."""
    asked = "type" in function.__code__.co_names if hasattr(function, "__code__") else True

    def watch(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal asked
        if event == "c_call" and argument in _QUESTIONS:
            package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            asked = asked or package not in _TRACING
        elif event == "call" and frame.f_code is torch.is_tensor.__code__:
            asked = True

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(before)
    if asked:
        raise Changeable("it asks for the type of a value")


def _text(graph: fx.Graph) -> str:
    return "\n".join(f"{node.op} {node.name} {node.target} {node.args} {node.kwargs}" for node in graph.nodes)


# ---- functions ----

_RELU = (nn.functional.relu, nn.functional.relu_, torch.relu, torch.relu_)
_SIGMOID = (nn.functional.sigmoid, torch.sigmoid, torch.sigmoid_)
_METHODS = {"relu": "relu", "relu_": "relu", "sigmoid": "sigmoid", "sigmoid_": "sigmoid"}


def identify_call(node: fx.Node) -> str | None:
    """Return the activation that one call of a traced graph computes of its first argument, if it is one of ours."""
    if node.op == "call_method":
        return _METHODS.get(str(node.target)) if len(node.args) == 1 and not node.kwargs else None
    if node.op != "call_function" or not node.args:
        return None
    options, rest = dict(node.kwargs), node.args[1:]
    if node.target is nn.functional.gelu:
        approximate = options.pop("approximate", "none")
        known = {"none": "gelu", "tanh": "gelu_tanh"}.get(str(approximate))
        return None if rest or options else known
    # Whether it overwrites its argument is nothing to who reads the result alone.
    options.pop("inplace", None)
    if options or any(not isinstance(value, bool) for value in rest):
        return None
    if node.target is nn.functional.silu:
        return "silu"
    if node.target in _RELU:
        return "relu"
    return "sigmoid" if node.target in _SIGMOID else None


# ---- modules ----


def identify(module: Any) -> Known | None:
    """Return which activation a module computes, or ``None`` where that is not proven to be one of ours."""
    cls = type(module)
    if cls is nn.GELU:
        row = {"none": "gelu", "tanh": "gelu_tanh"}.get(module.approximate)
        return None if row is None else Known(row, reads=(("approximate", module.approximate),))
    simple = {nn.ReLU: "relu", nn.SiLU: "silu", nn.Sigmoid: "sigmoid"}.get(cls)
    if simple is not None:
        return Known(simple)
    if not isinstance(module, nn.Module) or any(module.children()) or any(True for _ in module.parameters()):
        return None
    if any(True for _ in module.buffers()):
        return None
    try:
        graph, reads = trace(module)
    except Exception:  # noqa: BLE001  (whatever a module does with what is no tensor, it proves nothing)
        return None
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    result = next(node for node in graph.nodes if node.op == "output").args[0]
    if len(inputs) != 1 or not isinstance(result, fx.Node):
        return None
    if len(nodes) == 1 and nodes[0] is result and nodes[0].args[0] is inputs[0]:
        row = identify_call(result)
        return None if row is None else Known(row, reads=reads)
    formula = _formula(result, inputs[0])
    for row, expected in _FORMULAS.items():
        if formula is not None and _equal(formula, expected):
            return Known(row, composite=True, reads=reads)
    return None


def looks_like_activation(module: Any) -> bool:
    """Whether a report should say why this one was not fused."""
    return type(module).__module__ in ("torch.nn.modules.activation", "transformers.activations")


# ---- formulas: sums and products with their constants folded, in an order of their own ----

_X: tuple[Any, ...] = ("x",)
_UNARY = {torch.tanh: "tanh", torch.erf: "erf", torch.sigmoid: "sigmoid", nn.functional.sigmoid: "sigmoid"}
_UNARY |= {nn.functional.tanh: "tanh", torch.special.erf: "erf"}


def _product(factors: Iterable[Any]) -> Any:
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


def _total(terms: Iterable[Any]) -> Any:
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


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(exponent, float) and exponent.is_integer() and 1 <= exponent <= 4:
        return _product([base] * int(exponent))
    return None


def _formula(value: Any, x: fx.Node) -> Any:
    """Return a traced value as a formula of x, or ``None`` where it is made of anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if value is x:
        return _product([_X])
    if not isinstance(value, fx.Node) or value.kwargs or value.op not in ("call_function", "call_method"):
        return None
    parts = [_formula(argument, x) for argument in value.args]
    if any(part is None for part in parts):
        return None
    target = value.target
    if target in _UNARY or target in ("tanh", "erf", "sigmoid"):
        return _product([(_UNARY.get(target, str(target)), parts[0])]) if len(parts) == 1 else None
    if len(parts) != 2:
        return None
    if target in (operator.mul, torch.mul, "mul"):
        return _product(parts)
    if target in (operator.add, torch.add, "add"):
        return _total(parts)
    if target in (operator.truediv, torch.div, torch.true_divide, "div") and isinstance(parts[1], float):
        return _product([parts[0], 1.0 / parts[1]]) if parts[1] else None
    return _power(*parts) if target in (operator.pow, torch.pow, "pow") else None


def _equal(one: Any, other: Any) -> bool:
    """Whether two formulas are the same; constants may differ by what folding them rounds."""
    if isinstance(one, float) or isinstance(other, float):
        return isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=1e-15)
    if isinstance(one, (tuple, list)) and type(one) is type(other) and len(one) == len(other):
        return all(_equal(*pair) for pair in zip(one, other, strict=True))
    return bool(one == other)


def _half_x_times(inner: Any) -> Any:
    return _product([0.5, _X, _total([1.0, inner])])


_CUBIC = _total([_product([_X]), _product([0.044715, _X, _X, _X])])
_FORMULAS = {
    "gelu": _half_x_times(_product([("erf", _product([_X, 1.0 / math.sqrt(2.0)]))])),
    "gelu_tanh": _half_x_times(_product([("tanh", _product([math.sqrt(2.0 / math.pi), _CUBIC]))])),
    "silu": _product([_X, ("sigmoid", _product([_X]))]),
}
