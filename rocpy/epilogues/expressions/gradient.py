# SPDX-License-Identifier: MIT
"""The gradient of an expression, as an expression: of the product and of the inputs, from those of results."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rocpy._fp_environment import default_arithmetic
from rocpy.epilogues.expressions.evaluate import added, evaluate, reduced, type_of
from rocpy.epilogues.expressions.expression import Builder, Expression, free_name
from rocpy.epilogues.expressions.inputs import check_names, refuse_missing
from rocpy.epilogues.expressions.types import NUMBER, category, name_of
from rocpy.errors import InvalidOperandError, InvalidProblemError

__all__ = ["Gradient", "gradient_of"]


@dataclass(frozen=True, slots=True)
class Gradient:
    """The backward pass of an epilogue; created by :meth:`CustomEpilogue.vjp`.

    Parameters
    ----------
    expression
        A function of the product, of the epilogue's inputs and of its results' gradients. Its results are the
        gradients, each of the product's shape; those of inputs that broadcast must still be summed.
    names
        The variable of each gradient: the product or an input; variables without a gradient are omitted. An input that
        goes with all of the product's columns and with half of them has two, whose sums are added.
    gradients
        Names of the inputs of the expression that are the results' gradients.
    forward
        The epilogue's own expression.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> gate = rocpy.epilogue(lambda x, bias: np.tanh(x + bias)).vjp()
    >>> print(gate.expression)
    f_gradient(x, bias, grad) = (t2, t2) where t1 = tanh(x + bias); t2 = grad * (1 - t1 * t1)
    >>> gate.names, gate.saved
    (('x', 'bias'), ('x', 'bias'))
    """

    expression: Expression
    names: tuple[str, ...]
    gradients: tuple[str, ...]
    forward: Expression

    @property
    def product(self) -> str:
        """What the product is called among the names: ``"x"``, or ``"x_"`` where an input has that name."""
        return self.forward.product

    @property
    def saved(self) -> tuple[str, ...]:
        """What it reads from the forward pass: the product before the epilogue, and inputs."""
        own = tuple(name for name in self.expression.used_inputs if name not in self.gradients)
        return (self.product, *own) if self.expression.reads_x else own

    @default_arithmetic
    def __call__(
        self, x: Any, inputs: Mapping[str, Any] | None, gradients: Sequence[Any], wanted: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Return the gradients by name, each of the shape and type of what it is one of.

        Parameters
        ----------
        x
            The product before the epilogue; where it is not read, any array of its shape, type and framework.
        inputs
            The epilogue's inputs, by name; those that are neither read nor wanted may be left out.
        gradients
            Those of its results, each of the result's shape, or one number for all its elements.
        wanted
            Names; all by default. Whole numbers and truth values have none.

        Raises
        ------
        InvalidOperandError
            If one of them is neither an array nor a real number.
        InvalidProblemError
            If a gradient is missing or has another shape, an input is missing, or there is no variable of a name.

        Examples
        --------
        >>> import numpy as np, rocpy
        >>> scaled = rocpy.epilogue(lambda x, scale: x * scale).vjp()
        >>> x, g = np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)
        >>> scaled(x, {"scale": np.full(3, 2, np.float32)}, [g])["scale"]
        array([2., 2., 2.], dtype=float32)
        """
        if not hasattr(gradients, "__len__"):
            raise InvalidOperandError(
                f"gradients: got {type(gradients).__name__}; pass a list with one for each result"
            )
        if len(gradients) != len(self.gradients):
            raise InvalidProblemError(
                f"got {len(gradients)} gradients, expected {len(self.gradients)}, one for each result"
            )
        if inputs is not None and not isinstance(inputs, Mapping):
            raise InvalidProblemError(f"inputs: got {type(inputs).__name__}, expected a dict of the inputs by name")
        inputs = {**dict(self.forward.defaults), **(inputs or {})}
        check_names("wanted", self.forward, wanted or (), "variable", (self.product, *self.forward.inputs))
        self._check_shapes(x, gradients)
        values_by_name = {**inputs, **dict(zip(self.gradients, gradients, strict=True))}
        likes = {**inputs, self.product: x}
        typed = _typed(self, x, inputs)
        refuse_missing(
            self.forward, [name for name in typed.names if name not in likes and (wanted is None or name in wanted)]
        )
        chosen = [
            index
            for index, name in enumerate(typed.names)
            if (wanted is None or name in wanted) and category(type_of(likes[name], name)[0]) == 2
        ]
        if not chosen:
            return {}
        part = _part(typed.expression, tuple(chosen))
        refuse_missing(self.forward, [name for name in part.used_inputs if name not in values_by_name])
        names = [typed.names[index] for index in chosen]
        # Sums are taken before they are rounded.
        values = evaluate(part, x, values_by_name, out_types=[_wide(likes[name], name) for name in names])
        by_name: dict[str, Any] = {}
        for name, value in zip(names, values, strict=True):
            part = reduced(value, likes[name])
            by_name[name] = added(by_name[name], part) if name in by_name else part
        return by_name

    def _check_shapes(self, x: Any, gradients: Sequence[Any]) -> None:
        type_of(x, self.product)  # refuses what is no array
        if not hasattr(x, "shape"):
            return  # a number, which has no framework: evaluate refuses it
        shape = tuple(x.shape)
        if self.forward.halved and shape:
            shape = (*shape[:-1], shape[-1] // 2)
        for name, value in zip(self.gradients, gradients, strict=True):
            if type_of(value, name)[1] != NUMBER and tuple(value.shape) != shape:
                raise InvalidProblemError(
                    f"{name}: got shape {tuple(value.shape)}, expected the result's shape {shape}"
                )


def _typed(gradient: Gradient, x: Any, inputs: Mapping[str, Any]) -> Gradient:
    """Return the gradient for operands of known types: a cast to the type of whole numbers hands none on."""
    forward = gradient.forward
    likes = [node.args[1] for node in forward.nodes if node.op == "cast_like"]
    if not likes:
        return gradient
    refuse_missing(forward, [name for name in forward.used_inputs if name not in inputs])
    types = forward.types(name_of(x.dtype), {name: type_of(inputs[name], name) for name in forward.used_inputs})
    return gradient if all(category(types[like]) == 2 for like in likes) else gradient_of(_cast(forward, types))


@functools.lru_cache(maxsize=256)
def _cast(forward: Expression, types: tuple[str, ...]) -> Expression:
    """Return an expression with the casts to another value's type as casts to types."""
    builder = Builder(forward.inputs)
    copies: list[int] = []
    for index, node in enumerate(forward.nodes):
        args = [copies[arg] for arg in node.args]
        if node.op == "cast_like":
            copies.append(builder.op("cast", args[0], value=types[index]))
        else:
            copies.append(builder.op(node.op, *args, value=node.value) if args else builder.leaf(node))
    return builder.finish([copies[one] for one in forward.outputs], forward.single, forward.defaults, forward.name)


def _wide(like: Any, name: str) -> str:
    return "float64" if type_of(like, name)[0] == "float64" else "float32"


@functools.lru_cache(maxsize=256)
def _part(expression: Expression, chosen: tuple[int, ...]) -> Expression:
    builder = Builder(expression.inputs)
    copies = builder.copy(expression)
    return builder.finish([copies[expression.outputs[one]] for one in chosen], False, (), expression.name)


@functools.lru_cache(maxsize=256)
def gradient_of(expression: Expression) -> Gradient:
    """Return the gradient of an expression."""
    count = len(expression.outputs)
    names = [free_name("grad" if expression.single else f"grad{index}", expression.inputs) for index in range(count)]
    builder = Builder((*expression.inputs, *names))
    copies = builder.copy(expression)
    # By node, and whether it is of half the product's columns: an input that broadcasts may go with both.
    terms: dict[tuple[int, bool], list[int]] = {}
    halves = expression.halves
    for output, name in zip(expression.outputs, names, strict=True):
        terms.setdefault((output, bool(halves[output])), []).append(builder.input(name))
    picked: dict[int, dict[int, list[int]]] = {}
    totals: dict[tuple[str, bool], int] = {}
    for index, half in itertools.product(range(len(expression.nodes) - 1, -1, -1), (True, False)):
        node = expression.nodes[index]
        own = terms.pop((index, half), [])
        if not half and index in picked:
            own.append(_interleaved(builder, picked.pop(index)))
        if not own:
            continue
        total = functools.reduce(lambda left, right: builder.op("add", left, right), own)
        if node.op in ("x", "input"):
            totals[expression.product if node.op == "x" else node.value, half] = total
            continue
        if node.op == "pick":
            picked.setdefault(node.args[0], {}).setdefault(node.value, []).append(total)
            continue
        rule = _RULES.get(node.op)
        if rule is None:
            continue
        args = [copies[arg] for arg in node.args]
        write = _Writer(builder)
        for arg, term in zip(node.args, rule(write, total, copies[index], *args, node=node), strict=True):
            if term is not None and expression.nodes[arg].op != "const":
                terms.setdefault((arg, half or node.op == "interleave"), []).append(term)
    order = [
        (name, half)
        for name in (expression.product, *expression.inputs)
        for half in (False, True)
        if (name, half) in totals
    ]
    derived = builder.finish([totals[one] for one in order], False, (), f"{expression.name}_gradient")
    return Gradient(derived, tuple(name for name, _ in order), tuple(names), expression)


def _interleaved(builder: Builder, lanes: Mapping[int, list[int]]) -> int:
    values = []
    for lane in (0, 1):
        parts = lanes.get(lane)
        values.append(
            builder.const(0.0) if not parts else functools.reduce(lambda x, y: builder.op("add", x, y), parts)
        )
    return builder.op("interleave", *values)


class _Writer:
    """Short names for the operations that gradients are made of."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *args: self.builder.op(name.rstrip("_"), *(self._index(arg) for arg in args))

    def _index(self, value: float) -> int:
        # Places are ints; numbers that are meant come as floats.
        return self.builder.const(value) if isinstance(value, float) else value

    def number(self, value: int) -> int:
        """Return a whole number's place; beside it every type stays as it is."""
        return self.builder.const(value)

    def value(self, index: int) -> float | None:
        """Return the value of a node that is a constant."""
        return self.builder.value(index)

    def is_const(self, index: int) -> bool:
        """Whether a node is a constant."""
        return self.builder.value(index) is not None


_ROOT = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
_TANH = math.sqrt(2.0 / math.pi)


def _mul(write: Any, g: int, y: int, a: int, b: int, node: Any) -> Any:  # noqa: ARG001
    return (None if write.is_const(a) else write.mul(g, b)), (None if write.is_const(b) else write.mul(g, a))


def _div(write: Any, g: int, y: int, a: int, b: int, node: Any) -> Any:  # noqa: ARG001
    top = write.div(g, b)
    return (None if write.is_const(a) else top), (None if write.is_const(b) else write.neg(write.mul(top, y)))


def _extreme(other: str) -> Callable[..., Any]:
    def rule(write: Any, g: int, y: int, a: int, b: int, node: Any) -> Any:  # noqa: ARG001
        # As in torch: where both are the same, each has half of it; beside NaN each has all of it.
        shared = write.where(write.eq(a, b), write.mul(g, 0.5), g)
        first = write.where(getattr(write, other)(a, b), 0.0, shared)
        return first, (None if write.is_const(b) else write.where(getattr(write, other)(b, a), 0.0, shared))

    return rule


def _clamp(write: Any, g: int, y: int, a: int, low: int, high: int, node: Any) -> Any:  # noqa: ARG001
    # As in torch: the upper bound wins where they are out of order.
    inside = write.and_(write.ge(a, low), write.le(a, high))
    is_low = write.and_(write.lt(low, high), write.lt(a, low))
    is_high = write.or_(write.gt(a, high), write.lt(high, low))
    below = None if write.is_const(low) else write.where(is_low, g, 0.0)
    above = None if write.is_const(high) else write.where(is_high, g, 0.0)
    return write.where(inside, g, 0.0), below, above


def _bounded(within: str, beyond: str) -> Callable[..., Any]:
    def rule(write: Any, g: int, y: int, a: int, bound: int, node: Any) -> Any:  # noqa: ARG001
        # As in torch: at its bound the operand has all of it.
        inside = write.where(getattr(write, within)(a, bound), g, 0.0)
        return inside, (None if write.is_const(bound) else write.where(getattr(write, beyond)(a, bound), g, 0.0))

    return rule


def _power(write: Any, g: int, y: int, a: int, node: Any) -> Any:  # noqa: ARG001
    # Of the power itself: a step of how it is computed may be infinite where this is not.
    return (write.mul(write.mul(g, float(node.value)), write.builder.op("power", a, value=node.value - 1)),)


# Beyond it the slope of a gate is 0 or 1; one of its factors would be infinite.
_FAR = 1000.0


def _silu(write: Any, g: int, y: int, a: int, node: Any) -> Any:  # noqa: ARG001
    a = write.clamp(a, -_FAR, _FAR)
    s = write.sigmoid(a)
    slope = write.mul(s, write.add(write.mul(a, write.sub(write.number(1), s)), write.number(1)))
    return (write.mul(g, slope),)


def _gelu(write: Any, g: int, y: int, a: int, node: Any) -> Any:  # noqa: ARG001
    a = write.clamp(a, -_FAR, _FAR)
    below = write.mul(write.add(write.erf(write.mul(a, _ROOT)), write.number(1)), 0.5)
    density = write.mul(write.exp(write.mul(write.mul(a, a), -0.5)), _DENSITY)
    return (write.mul(g, write.add(below, write.mul(a, density))),)


def _gelu_tanh(write: Any, g: int, y: int, a: int, node: Any) -> Any:  # noqa: ARG001
    a = write.clamp(a, -_FAR, _FAR)
    square = write.mul(a, a)
    inner = write.mul(write.mul(a, write.add(write.mul(square, 0.044715), write.number(1))), 2.0 * _TANH)
    s = write.sigmoid(inner)
    steep = write.mul(write.add(write.mul(square, 3.0 * 0.044715), write.number(1)), 2.0 * _TANH)
    rest = write.mul(write.mul(a, steep), write.mul(s, write.sub(write.number(1), s)))
    return (write.mul(g, write.add(s, rest)),)


def _of_cast(write: Any, g: int, y: int, a: int, *others: int, node: Any) -> Any:  # noqa: ARG001
    passes = node.op == "cast_like" or category(node.value) == 2
    return (g if passes else None), *(None for _ in others)


_RULES: dict[str, Callable[..., Any]] = {
    "add": lambda w, g, y, a, b, node: (g, g),  # noqa: ARG005
    "sub": lambda w, g, y, a, b, node: (g, w.neg(g)),  # noqa: ARG005
    "mul": _mul,
    "div": _div,
    "neg": lambda w, g, y, a, node: (w.neg(g),),  # noqa: ARG005
    "abs": lambda w, g, y, a, node: (w.where(w.gt(a, 0.0), g, w.where(w.lt(a, 0.0), w.neg(g), 0.0)),),  # noqa: ARG005
    "minimum": _extreme("gt"),
    "maximum": _extreme("lt"),
    "clamp": _clamp,
    "clamp_min": _bounded("ge", "lt"),
    "clamp_max": _bounded("le", "gt"),
    "relu": lambda w, g, y, a, node: (w.where(w.gt(a, 0.0), g, 0.0),),  # noqa: ARG005
    "exp": lambda w, g, y, a, node: (w.mul(g, y),),  # noqa: ARG005
    "log": lambda w, g, y, a, node: (w.div(g, a),),  # noqa: ARG005
    "sqrt": lambda w, g, y, a, node: (w.div(w.mul(g, 0.5), y),),  # noqa: ARG005
    "rsqrt": lambda w, g, y, a, node: (w.mul(w.mul(g, -0.5), w.mul(y, w.mul(y, y))),),  # noqa: ARG005
    "tanh": lambda w, g, y, a, node: (w.mul(g, w.sub(w.number(1), w.mul(y, y))),),  # noqa: ARG005
    "erf": lambda w, g, y, a, node: (  # noqa: ARG005
        w.mul(g, w.mul(w.exp(w.neg(w.mul(a, a))), 2.0 / math.sqrt(math.pi))),
    ),
    "sigmoid": lambda w, g, y, a, node: (w.mul(g, w.mul(y, w.sub(w.number(1), y))),),  # noqa: ARG005
    "power": _power,
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "where": lambda w, g, y, c, a, b, node: (  # noqa: ARG005
        None,
        None if w.is_const(a) else w.where(c, g, 0.0),
        None if w.is_const(b) else w.where(c, 0.0, g),
    ),
    "cast": _of_cast,
    "cast_like": _of_cast,
    "interleave": lambda w, g, y, a, b, node: (  # noqa: ARG005
        w.builder.op("pick", g, value=0),
        w.builder.op("pick", g, value=1),
    ),
}
