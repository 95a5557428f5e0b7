# SPDX-License-Identifier: MIT
"""The value of an expression on arrays, by the operations of the framework that they belong to."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np

from rocpy import dtypes
from rocpy._fp_environment import default_arithmetic
from rocpy._messages.modules import is_instance_of, is_tensor
from rocpy._producers.torch_modes import nothing_traces
from rocpy.blaslt.arrays.framework import framework_of, numpy_erfc, root, values
from rocpy.epilogues.expressions.expression import Expression, Node
from rocpy.epilogues.expressions.powers import expanded
from rocpy.epilogues.expressions.types import (
    ARRAY,
    NUMBER,
    ZERO_DIM,
    category,
    compute_type,
    name_of,
    number_type,
    plain_number,
    whole_limits,
)
from rocpy.errors import InvalidOperandError, UnsupportedError
from rocpy.runtime.memory import Buffer

__all__ = ["added", "evaluate", "is_number", "reduced", "type_of"]


def type_of(value: Any, name: str) -> tuple[str, int]:
    """Return the type of an input's elements, and its rank class."""
    number = plain_number(value)
    if number is not None:
        return number_type(number), NUMBER
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape is None or dtype is None or isinstance(value, np.generic):
        raise InvalidOperandError(f"{name}: got {type(value).__name__}; pass an array or a real number")
    return name_of(dtype, name), ARRAY if len(shape) else ZERO_DIM


def is_number(value: Any) -> bool:
    """Whether a value is a number on the host, which has no memory that a kernel could read."""
    return isinstance(value, (bool, int, float, np.generic, Number))


@default_arithmetic
def evaluate(
    expression: Expression, x: Any, inputs: Mapping[str, Any], x_type: str | None = None, out_types: Any = None
) -> tuple[Any, ...]:
    """Return the results of an expression as arrays of x's framework.

    ``x_type`` is the type that the product counts as in promotions; x itself may be wider. ``out_types`` replaces the
    types of the results.
    """
    if isinstance(x, Buffer):
        wide_results = evaluate(expression, x.to_numpy(), inputs, x_type, out_types)
        return tuple(_buffer(value) for value in wide_results)
    arrays = _arrays_of(x)
    if not arrays.are_recorded(x, *inputs.values()):
        expression = expanded(expression)
    named = {name: type_of(inputs[name], name) for name in expression.used_inputs}
    counted = name_of(x.dtype, "x") if x_type is None else x_type
    types, compared = _types_of(expression, counted, tuple(named.items()))
    operands = {
        name: plain_number(inputs[name]) if rank == NUMBER else arrays.own(inputs[name], x)
        for name, (_, rank) in named.items()
    }
    with np.errstate(all="ignore"):
        computed: list[Any] = []
        for position, node in enumerate(expression.nodes):
            wide = compute_type(compared[position] or types[position])
            computed.append(_node(arrays, node, computed, types[position], wide, x, operands))
        results: list[Any] = []
        for number, position in enumerate(expression.outputs):
            wanted = types[position] if out_types is None else out_types[number]
            result = arrays.rounded(arrays.array(computed[position], x), wanted)
            # Results share no memory with each other, and none is a view of a larger array.
            shared = expression.nodes[position].op == "pick" or any(result is other for other in results)
            results.append(arrays.copy(result) if shared else result)
    return tuple(results)


@functools.lru_cache(maxsize=512)
def _types_of(expression: Expression, x: str, inputs: tuple[Any, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    named = dict(inputs)
    return expression.types(x, named), expression.compared_types(x, named)


_LARGE = 2.0**127


def _node(
    arrays: Any,
    node: Node,
    computed: Sequence[Any],
    dtype: str,
    wide: str,
    x: Any,
    inputs: Mapping[str, Any],
) -> Any:
    if node.op == "x":
        return arrays.convert(x, wide)
    if node.op == "input":
        value = inputs[node.value]
        return value if is_number(value) else arrays.convert(value, wide)
    if node.op == "const":
        return node.value
    args = [computed[arg] for arg in node.args]
    if node.op in ("cast", "cast_like"):
        cast = arrays.cast(arrays.array(args[0], x), dtype)
        return arrays.convert(cast, wide)
    if category(dtype) == 1:
        low, high = whole_limits(dtype)  # a bound beyond them is none
        args = [min(max(arg, low), high) if type(arg) is int else arg for arg in args]
    if wide == "float32":  # of which torch refuses larger numbers, and others make infinities
        args = [float(np.float32(arg)) if type(arg) is float and abs(arg) > _LARGE else arg for arg in args]
    if node.op == "where":
        condition = arrays.convert(arrays.array(args[0], x), "bool")
        return arrays.run("where", condition, *(_converted(arrays, arg, wide) for arg in args[1:]))
    if all(is_number(arg) for arg in args):
        args = [arrays.convert(arrays.array(arg, x), wide) for arg in args]
    args = [_converted(arrays, arg, wide) for arg in args]
    if node.op == "interleave":
        # One of the two may be one value for all columns.
        half = (*x.shape[:-1], x.shape[-1] // 2)
        args = [arrays.module.broadcast_to(arrays.convert(arrays.array(arg, x), wide), half) for arg in args]
    if node.op == "power":
        return arrays.run("power", args[0], node.value)
    if node.op == "pick":
        return args[0][..., node.value :: 2] if _columns(args[0]) else args[0]
    return arrays.run(node.op, *args)


def reduced(array: Any, like: Any) -> Any:
    """Return the sum of an array over the axes along which another one broadcast, in that one's type."""
    if is_number(like):
        return float(array.sum())
    if isinstance(array, Buffer):
        return _buffer(reduced(array.to_numpy(), values(like)))
    shape, dtype = tuple(like.shape), name_of(like.dtype)
    lead = len(array.shape) - len(shape)
    axes = tuple(
        axis for axis, extent in enumerate(array.shape) if axis < lead or (shape[axis - lead] == 1 and extent != 1)
    )
    if axes:
        array = array.sum(axes).reshape(shape)
    return _arrays_of(array).rounded(array, dtype)


def added(first: Any, second: Any) -> Any:
    """Return the sum of two gradients of one variable."""
    if isinstance(first, Buffer):
        return _buffer(first.to_numpy() + second.to_numpy())
    return first + second


def interleaved(even: Any, odd: Any) -> Any:
    """Return two arrays' last axes in turn, by their own framework."""
    arrays = _arrays_of(even)
    return arrays.run("interleave", even, arrays.own(odd, even))


def _columns(value: Any) -> bool:
    """Whether a value has one element per column: one per row or one for all is the same in every column."""
    shape: tuple[int, ...] = getattr(value, "shape", ())
    return len(shape) > 0 and bool(shape[-1] != 1)


def _converted(arrays: Any, value: Any, dtype: str) -> Any:
    return value if is_number(value) else arrays.convert(value, dtype)


class _Arrays:
    """Operations of numpy and of modules that have its names."""

    def __init__(self, module: Any, framework: Any) -> None:
        self.module = module
        self.framework = framework

    def own(self, array: Any, x: Any) -> Any:  # noqa: ARG002 (numpy's arrays have one place)
        """Return an array as one of this framework."""
        if isinstance(array, Buffer) or not self.framework.owns(array):
            return self.module.asarray(values(array))
        return array

    def array(self, value: Any, x: Any) -> Any:  # noqa: ARG002
        """Return a number as an array without axes."""
        return self.module.asarray(value) if is_number(value) else value

    def convert(self, array: Any, dtype: str) -> Any:
        """Return an array with its values in another type that holds them, or as numpy converts them."""
        wanted = _numpy_type(dtype)
        return array if array.dtype == wanted else array.astype(wanted)

    def are_recorded(self, *arrays: Any) -> bool:
        """Whether operations on arrays may be recorded for a gradient, so that a power must be one operation."""
        return any(is_instance_of(one, "jax.core", "Tracer") for one in arrays)

    def copy(self, array: Any) -> Any:
        """Return a dense copy."""
        return self.module.array(array, copy=True, order="C")

    def cast(self, array: Any, dtype: str) -> Any:
        """Return an array cast as the user's function says: whole numbers toward zero, without overflow; NaN is 0."""
        held = name_of(array.dtype)
        if category(dtype) != 1 or category(held) == 0:
            return self.rounded(array, dtype)
        if category(held) == 1:
            return self.convert(self.framework.within(array, dtype), dtype)
        low, high, beyond = _limits(dtype, held)
        numbers = self.filled(array, array != array, 0)
        whole = self.convert(self.module.trunc(self.module.clip(numbers, low, high)), dtype)
        return self.filled(whole, array >= beyond, whole_limits(dtype)[1])

    def filled(self, array: Any, condition: Any, value: int) -> Any:
        """Return an array with a number where a condition holds."""
        return self.module.where(condition, array.dtype.type(value), array)

    def rounded(self, array: Any, dtype: str) -> Any:
        """Return an array rounded to a type; eight bits saturate."""
        if str(array.dtype) == dtype:
            return array
        if dtype in dtypes.DTYPES and str(array.dtype) != "bool":
            return self.framework.narrow(array, dtype)
        return self.convert(array, dtype)

    def run(self, name: str, *args: Any) -> Any:
        """Return the value of an operation."""
        direct = _NUMPY_NAMES.get(name)
        if direct is not None:
            return getattr(self.module, direct)(*args)
        return _NUMPY[name](self, *args)

    def erf(self, x: Any) -> Any:
        """Return the error function."""
        special = self.framework.special
        return numpy_erf(x) if special is None else special.erf(x)


def _limits(dtype: str, held: str) -> tuple[float, float, float]:
    """Return the bounds of a type of whole numbers, as numbers that a floating-point type has, and the first beyond."""
    info = np.iinfo(dtype)
    low, high = float(info.min), float(info.max)
    digits = 53 if held == "float64" else 24
    if info.bits > digits:
        high = math.ldexp(1.0 - 2.0**-digits, info.bits - (info.min < 0))
    return low, high, math.ldexp(1.0, info.bits - (info.min < 0))


def numpy_erf(x: Any) -> Any:
    """Return the error function of an array, computed in float64; numpy has none."""
    wide = np.asarray(x, np.float64)
    inner = np.clip(wide, -0.75, 0.75)
    square, term, total = inner * inner, inner, inner.copy()
    for n in range(1, 20):
        term = term * -square / n
        total = total + term / (2 * n + 1)
    outer = np.copysign(1.0 - numpy_erfc(np.abs(wide)), wide)
    result = np.where(np.abs(wide) < 0.75, 2.0 / math.sqrt(math.pi) * total, outer)
    return np.where(np.isnan(wide), np.nan, result).astype(x.dtype)


_NUMPY_NAMES = {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "true_divide", "neg": "negative", "abs": "abs",
    "minimum": "minimum", "maximum": "maximum", "clamp_min": "maximum", "clamp_max": "minimum", "exp": "exp",
    "log": "log", "sqrt": "sqrt", "tanh": "tanh", "round": "rint", "floor": "floor", "ceil": "ceil", "eq": "equal",
    "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "and": "logical_and",
    "or": "logical_or", "not": "logical_not", "where": "where",
}  # fmt: skip


def _never_far_left(arrays: Any, x: Any, value: Any) -> Any:
    # At minus infinity the product would be infinity times 0; the value is 0 long before.
    return arrays.module.where(x < -1000.0, x.dtype.type(-0.0) if hasattr(x.dtype, "type") else -0.0, value)


def _silu(arrays: Any, x: Any) -> Any:
    return _never_far_left(arrays, x, x * arrays.framework.sigmoid(x))


def _gelu_tanh(arrays: Any, x: Any) -> Any:
    inner = (x * x * 0.044715 + 1.0) * x * (2.0 * math.sqrt(2.0 / math.pi))
    return _never_far_left(arrays, x, x * arrays.framework.sigmoid(inner))


def _gelu(arrays: Any, x: Any) -> Any:
    return _never_far_left(arrays, x, x * 0.5 * arrays.framework.erfc(x * -math.sqrt(0.5)))


def _interleave(arrays: Any, even: Any, odd: Any) -> Any:
    even, odd = arrays.module.broadcast_arrays(even, odd)
    return arrays.module.stack([even, odd], axis=-1).reshape((*even.shape[:-1], 2 * even.shape[-1]))


_NUMPY: dict[str, Callable[..., Any]] = {
    "clamp": lambda arrays, x, low, high: arrays.module.minimum(arrays.module.maximum(x, low), high),
    "relu": lambda arrays, x: arrays.module.maximum(x, 0),
    "rsqrt": lambda arrays, x: 1.0 / arrays.module.sqrt(x),
    "erf": lambda arrays, x: arrays.erf(x),
    "sigmoid": lambda arrays, x: arrays.framework.sigmoid(x),
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "interleave": _interleave,
    "power": lambda arrays, x, exponent: arrays.module.power(x, float(exponent)),  # jax multiplies for whole numbers
}


class _TorchArrays(_Arrays):
    def own(self, array: Any, x: Any) -> Any:
        if root(array) != "torch" and not isinstance(array, self.module.Tensor):
            array = self.module.from_numpy(np.ascontiguousarray(values(array)))
        return array.to(x.device) if array.device != x.device else array

    def array(self, value: Any, x: Any) -> Any:
        if not is_number(value):
            return value
        whole = self.module.bool if isinstance(value, bool) else self.module.int64
        dtype = self.module.float64 if isinstance(value, float) else whole
        return self.module.full((), value, dtype=dtype, device=x.device)

    def convert(self, array: Any, dtype: str) -> Any:
        return array.to(getattr(self.module, dtype))

    def are_recorded(self, *arrays: Any) -> bool:
        # Neither an entry of a batch nor an example of a graph says whether a gradient will be asked for.
        if self.module.autograd.forward_ad._current_level >= 0 or not nothing_traces():
            return True
        return self.module.is_grad_enabled() and any(getattr(one, "requires_grad", False) for one in arrays)

    def copy(self, array: Any) -> Any:
        return array.clone(memory_format=self.module.contiguous_format)

    def filled(self, array: Any, condition: Any, value: int) -> Any:
        return array.masked_fill(condition, value)

    def rounded(self, array: Any, dtype: str) -> Any:
        if str(array.dtype).removeprefix("torch.") == dtype:
            return array
        narrows = dtype in dtypes.DTYPES and array.dtype != self.module.bool
        return self.framework.narrow(array, dtype) if narrows else self.convert(array, dtype)

    def run(self, name: str, *args: Any) -> Any:
        if name == "where":
            if all(is_number(arg) for arg in args[1:]):
                args = (args[0], *(self.array(one, args[0]) for one in args[1:]))
            return self.module.where(*args)
        if name == "interleave":
            even, odd = self.module.broadcast_tensors(*args)
            return self.module.stack([even, odd], dim=-1).flatten(-2)
        if name == "power":
            return self.module.pow(*args)
        if name in ("silu", "gelu", "gelu_tanh"):
            return self._gate(name, *args)
        args = self._operands(args, name in _TORCH_TENSORS or (name == "clamp" and len(set(map(is_number, args))) > 1))
        return getattr(self.module, _TORCH_NAMES.get(name, name))(*args)

    def _operands(self, args: tuple[Any, ...], tensors: bool) -> tuple[Any, ...]:
        """Return operands as torch's functions take them: the first one a tensor, and no truth values among numbers."""
        like = next(arg for arg in args if not is_number(arg))
        taken: list[Any] = []
        for arg in args:
            number = int(arg) if isinstance(arg, bool) and like.dtype != self.module.bool else arg
            if is_number(arg) and (tensors or not taken):
                number = self.module.full((), number, dtype=like.dtype, device=like.device)
            taken.append(number)
        return tuple(taken)

    def _gate(self, name: str, x: Any) -> Any:
        # With their limits: torch's own, or their slopes, are NaN at an infinity, and infinite or NaN before it.
        functional, near = self.module.nn.functional, x.clamp(-1000.0, 1000.0)
        if name == "silu":
            value = functional.silu(near)
        else:
            value = functional.gelu(near, approximate="tanh" if name == "gelu_tanh" else "none")
        return self.module.where(x > 1000.0, x, value)


_TORCH_NAMES = {"and": "logical_and", "or": "logical_or", "not": "logical_not"}
_TORCH_TENSORS = ("minimum", "maximum", "and", "or")


@functools.cache
def _numpy_type(dtype: str) -> Any:
    return np.dtype(dtypes.lookup(dtype).numpy if dtype in dtypes.DTYPES else dtype)


@functools.cache
def _arrays(name: str, framework: Any) -> _Arrays:
    return (_TorchArrays if name == "torch" else _Arrays)(framework.module, framework)


def _arrays_of(x: Any) -> _Arrays:
    if is_tensor(x):
        from rocpy.blaslt.arrays.framework import _framework

        return _arrays("torch", _framework("torch"))
    if not hasattr(x, "dtype"):
        raise UnsupportedError(f"x: got {type(x).__name__}; pass an array")
    return _arrays("numpy" if isinstance(x, np.ndarray) else root(x), framework_of(x))


def _buffer(array: Any) -> Buffer:
    buffer = Buffer(array.shape, array.dtype)
    buffer.copy_from(np.asarray(array, order="C"))
    return buffer
