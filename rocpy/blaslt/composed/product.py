# SPDX-License-Identifier: MIT
"""What the library cannot fuse: its nearest product, then the framework's own operations on the result.

The arithmetic between the product and the one rounding to the result's type is in float32 (float64 for float64 and
integer results), wherever the library gives the product in that type.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from rocpy import dtypes
from rocpy._fp_environment import default_arithmetic
from rocpy._messages.log import timed
from rocpy._operand import describe
from rocpy.blaslt.arrays.blocks import are_blocks, balance, dequantized
from rocpy.blaslt.arrays.copies import assign
from rocpy.blaslt.arrays.framework import Framework, framework_of, values
from rocpy.blaslt.arrays.staging import needed, upload
from rocpy.blaslt.arrays.views import delivered, viewed
from rocpy.blaslt.model.epilogues import EPILOGUES, EpilogueRow
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.preparation import Preparation
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.model.product_call import ProductCall
from rocpy.blaslt.model.product_types import gradient_type, scale_kind
from rocpy.blaslt.model.scale_arguments import ScaleArguments, all_scales
from rocpy.blaslt.model.settings import rounded_bounds
from rocpy.blaslt.model.shapes import is_column_bias
from rocpy.blaslt.model.weight_operand import is_weight
from rocpy.blaslt.selection.recipes import Recipe, function_of, has_unit_scales, strict, why, working_type
from rocpy.runtime.handles.call_stream import await_operand
from rocpy.runtime.memory import Buffer

__all__ = ["Composed", "Unfused", "activated", "activation", "bias_gradient_of_empty", "why_unfused"]


def why_unfused(problem: Problem, recipe: Recipe) -> str:
    """Return why a problem is composed and what it begins with, in a sentence."""
    rounded = rounded_bounds(problem.clamp, problem.dtype)
    return f"{rounded}: {recipe.text}, then the framework's own operations" if rounded else why(problem, recipe)


class Unfused:
    """One unfused product: the arguments of its native one, and what is done to the result.

    Parameters
    ----------
    recipe
        How it begins.
    epilogue, dtype
        Of the whole.
    operands
        The user's ``a``, ``b``, ``c``, ``bias`` and ``aux``, by name.
    arguments
        ``alpha``, ``beta``, ``clamp`` and ``compute``, by name.
    scales
        The user's, or ``None``.
    """

    def __init__(
        self,
        recipe: Recipe,
        epilogue: str,
        dtype: str,
        operands: dict[str, Any],
        arguments: dict[str, Any],
        scales: ScaleArguments | None,
    ) -> None:
        self.recipe = recipe
        self.row: EpilogueRow = EPILOGUES[epilogue]
        self.dtype = dtype
        self.work = working_type(dtype)
        self.operands = operands
        self.arguments = arguments
        self.scales = scales
        self._exponent = 0  # of two, by which the native product is multiplied
        self.a_ndim, self.b_ndim = (len(getattr(operands[name], "memory", operands[name]).shape) for name in ("a", "b"))

    def native_operands(self) -> dict[str, Any]:
        """Return the operands of the native product: some converted, those that come later left out."""
        return self._native_operands({name: self.operands[name] for name in ("a", "b", "c", "bias")})

    @default_arithmetic
    def _native_operands(self, operands: dict[str, Any]) -> dict[str, Any]:
        recipe = self.recipe
        if is_weight(operands["b"]) and (recipe.operands or not recipe.scaled):
            operands["b"] = operands["b"].matrix()  # a Weight would bring its scale along
            if not recipe.blocks and needed(operands["b"]):
                operands["b"] = upload(operands["b"], "b")  # beside the others' copies on the device
        if recipe.blocks:
            scales = self._scales
            *exponents, self._exponent = balance(operands["a"], operands["b"], scales)
            for name, scale, exponent in zip(("a", "b"), (scales.a, scales.b), exponents, strict=True):
                bare = isinstance(getattr(operands[name], "memory", operands[name]), Buffer)
                with np.errstate(all="ignore"):
                    wide = dequantized(operands[name], scale, name, exponent)
                operands[name] = _buffer(wide) if bare else wide
        like = getattr(operands["a"], "memory", operands["a"])
        for name in ("a", "b"):
            if recipe.operands and not recipe.blocks:
                operands[name] = convert(operands[name], recipe.operands, like)
        if recipe.epilogue != "bias":
            operands["bias"] = None
        elif describe(operands["bias"], "bias")["dtype"] not in ("float32", recipe.dtype):
            operands["bias"] = convert(operands["bias"], recipe.dtype, like)
        if not recipe.scaled:
            operands["c"] = None
        elif self._scales.c is not None and operands["c"] is not None:
            operands["c"] = self._scaled_c(operands["c"], like)
        elif operands["c"] is not None and describe(operands["c"], "c")["dtype"] != recipe.dtype:
            operands["c"] = convert(operands["c"], recipe.dtype, like)
        return operands

    def native_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of the native product, but for its scales."""
        arguments = {**self.arguments, **self.native_scalars()}
        arguments.update(epilogue=self.recipe.epilogue, dtype=self.recipe.dtype)
        if not self.recipe.scaled:
            arguments["beta"] = None
        arguments.pop("clamp")
        if arguments.get("compute") != "tf32" or self.recipe.operands:
            arguments["compute"] = None
        return arguments

    def native_scales(self) -> ScaleArguments | None:
        """Return the scales of the native product: those of a and b, unless they are applied to its result."""
        if has_unit_scales(self.recipe, *(_dtype_name(self.operands[name]) for name in ("a", "b"))):
            return ScaleArguments(a=1.0, b=1.0)
        scales = self._scales
        if not self.recipe.scaled or self.recipe.blocks or (scales.a is None and scales.b is None):
            return None
        return ScaleArguments(a=scales.a, b=scales.b, from_weight=scales.from_weight)

    @property
    def _scales(self) -> ScaleArguments:
        """The scales, that of a Weight among them."""
        return all_scales(self.operands["b"], self.scales) or ScaleArguments()

    def _scaled_c(self, c: Any, like: Any) -> Any:
        """Return c times its scale, in the type of the native product's result."""
        if isinstance(like, Buffer):
            return _buffer(values(self._scaled_c(values(c), values(c))))
        framework = framework_of(like)
        wide = framework.wide(c, self.work, like)
        scaled = wide * self._factor(framework, "scale_c", self._scales.c, wide)
        return framework.module.asarray(framework.narrow(scaled, self.recipe.dtype))  # numpy's arithmetic gives numbers

    def _factor(self, framework: Framework, name: str, value: Any, x: Any) -> Any:
        """Return a scale so that it broadcasts over (..., M, N); 1 for none."""
        if value is None:
            return 1.0
        if isinstance(value, (int, float)):
            with np.errstate(over="ignore"):  # as the library has it, whatever type the results are computed in
                return float(np.float32(value))
        shape = tuple(value.shape)
        wide = framework.wide(value, self.work, x)
        if math.prod(shape) == 1:
            return wide.reshape(())
        m, n = tuple(x.shape[-2:])
        _, batch = scale_kind(name, shape, "float32", (m, n, 0), tuple(x.shape[:-2]))
        return wide.reshape((*batch, m, 1) if name == "scale_a" else (*batch, 1, n))

    def native_scalars(self) -> dict[str, Any]:
        """Return the host scalars of the native product."""
        if not self.recipe.scaled:
            return {"alpha": 1.0}
        alpha = self.arguments["alpha"]
        return {"alpha": alpha * 2.0**self._exponent if self._exponent else alpha, "beta": self.arguments["beta"]}

    def reset(self, operands: dict[str, Any], scalars: dict[str, Any], scales: ScaleArguments | None) -> None:
        """Take other operands of the same problem, other scalars and other scales."""
        self.operands, self.scales = operands, scales
        self.arguments = {**self.arguments, **scalars}

    def finish(self, base: Any) -> tuple[Any, dict[str, Any]]:
        """Return the result, and what goes beside it, from what the native product gave."""
        return self._finish(base, self.operands)

    @default_arithmetic
    def _finish(self, base: Any, _: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if isinstance(base, Buffer):
            result, extra = self.finish(base.to_numpy())
            base.close()
            return _buffer(result), {name: _buffer(value) for name, value in extra.items()}
        framework = framework_of(base)
        shape = tuple(base.shape)
        with np.errstate(all="ignore"):
            x = framework.wide(base, self.work, base).reshape(self._full(shape))
            x = self._wrapped(framework, self._biased(framework, self._scaled(framework, x)))
            extra = {}
            if self.row.aux == "store":
                extra[self.row.aux_name] = framework.hand_over(framework.narrow(x, self.dtype), shape)
            y = self._activated(framework, x)
            scales = self._scales
            if self.row.gradient:
                extra[self.row.gradient] = self._gradient(framework, y)
            if scales.amax:
                extra["amax"] = framework.largest_magnitude(y)
            if scales.d is not None:
                y = y * self._factor(framework, "scale_d", scales.d, x)
            return framework.hand_over(framework.narrow(y, self.dtype), shape), extra

    def _full(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape (..., M, N) behind numpy's rules for vectors."""
        full = (*shape, 1) if self.b_ndim == 1 else shape
        return (*full[:-1], 1, full[-1]) if self.a_ndim == 1 else full

    def _scaled(self, framework: Framework, x: Any) -> Any:
        if self.recipe.scaled:
            return x
        scales = self._scales
        number = np.float32 if self._is_scaled else np.dtype(self.work).type  # the library's scales are float32
        alpha, beta = self.arguments["alpha"], self.arguments["beta"]
        if number(alpha) == 0:
            x = framework.module.zeros_like(x)  # as BLAS has it, whatever a, b and their scales hold
        else:
            factor_a, factor_b = (
                self._factor(framework, name, value, x)
                for name, value in (("scale_a", scales.a), ("scale_b", scales.b))
            )
            if math.prod(getattr(factor_a, "shape", ())) == math.prod(getattr(factor_b, "shape", ())) == 1:
                x = x * _multiplied(number, alpha, factor_b, factor_a)  # in the order of the library
            else:
                x = x * factor_a * factor_b * float(number(alpha))
        c = self.operands["c"]
        if c is not None and (beta is None or number(beta) != 0):
            c = framework.wide(c, self.work, x) * self._factor(framework, "scale_c", scales.c, x)
            # One of the result's shape may lack the axes of vectors; others broadcast as they are.
            c = c.reshape(x.shape) if math.prod(c.shape) == math.prod(x.shape) else c
            x = x + c * (1.0 if beta is None else float(number(beta)))
        return x

    def _biased(self, framework: Framework, x: Any) -> Any:
        if not self.row.bias or self.recipe.epilogue == "bias":
            return x
        bias = framework.wide(self.operands["bias"], self.work, x)
        batch, m, n = tuple(x.shape[:-2]), x.shape[-2], x.shape[-1]
        if is_column_bias(tuple(bias.shape), m, n, batch, min(self.a_ndim, self.b_ndim) > 1):
            return x + bias
        return x + bias[..., None, :]

    @property
    def _is_scaled(self) -> bool:
        return self._scales.a is not None or self._scales.b is not None

    def _wrapped(self, framework: Framework, x: Any) -> Any:
        """Return sums of integers as int32 holds them, which wrap around; other values as they are."""
        if dtypes.lookup(self.dtype).kind != "int" or self._is_scaled:
            return x
        return x - framework.module.floor((x + 2.0**31) * 2.0**-32) * 2.0**32

    def _activated(self, framework: Framework, x: Any) -> Any:
        aux = None
        if self.row.aux == "load":
            aux = framework.wide(self.operands["aux"], self.work, x).reshape(x.shape)
        return activated(framework, self.row, x, aux, self.arguments["clamp"])

    def _gradient(self, framework: Framework, y: Any) -> Any:
        if self.row.gradient == "bgrad":
            return self._narrow_sums(framework, framework.sum(y, -2))
        name = "a" if self.row.gradient == "bgrada" else "b"
        return self._operand_sums(framework, name, y)

    def _operand_sums(self, framework: Framework, name: str, y: Any) -> Any:
        """Return the row sums of a or the column sums of b, both times their scales."""
        operand, scale = self.operands[name], self._scales.a if name == "a" else self._scales.b
        if is_weight(operand):
            operand = operand.matrix()
        if are_blocks(scale):
            operand, scale = dequantized(operand, scale, name), None
        wide = framework.dense(framework.wide(operand, self.work, y))
        vector = len(wide.shape) == 1
        sums = framework.sum(wide, -1 if name == "a" or vector else -2)
        sums = sums.reshape((1,)) if vector else sums
        if scale is not None:
            # Read as those of the result: (..., M, 1) or (..., 1, N), whose batch axes are among the operand's own.
            factor = self._factor(framework, f"scale_{name}", scale, y)
            one = math.prod(getattr(factor, "shape", ())) == 1
            sums = sums * (factor if one else factor.reshape((*factor.shape[:-2], -1)))
        return self._narrow_sums(framework, sums)

    def _narrow_sums(self, framework: Framework, sums: Any) -> Any:
        return framework.narrow(self._wrapped(framework, sums), gradient_type(self.dtype, self._is_scaled))

    def operand_sums(self, base: Any) -> Any:
        """Return the bias gradient of a product whose result ``base`` has no elements."""
        return self._operand_sums_of(base, self.operands)

    @default_arithmetic
    def _operand_sums_of(self, base: Any, _: dict[str, Any]) -> Any:
        if isinstance(base, Buffer):
            return _buffer(self._operand_sums_of(base.to_numpy(), _))
        framework = framework_of(base)
        y = base.reshape(self._full(tuple(base.shape)))
        with np.errstate(all="ignore"):
            return self._operand_sums(framework, "a" if self.row.gradient == "bgrada" else "b", y)


def bias_gradient_of_empty(epilogue: str, a: Any, b: Any, scales: ScaleArguments | None, base: Any, dtype: str) -> Any:
    """Return the sums of one operand for an empty result ``base``: the library sees no work there and writes none."""
    operands = {"a": viewed(a, "a"), "b": viewed(b, "b")}
    await_operand(operands["a"])
    sums = Unfused(Recipe("default", dtype), epilogue, dtype, operands, {}, scales).operand_sums(viewed(base, "d"))
    return delivered(sums, base)


def _multiplied(number: Any, *factors: Any) -> Any:
    """Return a product of numbers and arrays of one number, rounded to a type after each multiplication."""
    product: Any = 1.0
    for factor in factors:
        numbers = isinstance(product, float) and isinstance(factor, int | float)
        product = float(number(product) * number(factor)) if numbers else product * factor
    return product


def _dtype_name(operand: Any) -> str:
    dtype = (operand.matrix() if is_weight(operand) else operand).dtype
    return dtypes.lookup(dtype.newbyteorder("=") if isinstance(dtype, np.dtype) else dtype).name


def _negligible(framework: Framework, x: Any, value: Any) -> Any:
    # Far to the left the value is 0 in every type, and at minus infinity the product would be infinity times 0.
    return framework.where(~(x < -1000.0), value, -0.0)


def _sigmoid(framework: Framework, x: Any) -> Any:
    return framework.sigmoid(x)


def _silu(framework: Framework, x: Any) -> Any:
    return _negligible(framework, x, x * framework.sigmoid(x))


def _gelu(framework: Framework, x: Any) -> Any:
    # y/2 (1 + tanh u) as y sigmoid(2u), which loses no digits on the left.
    return _negligible(framework, x, x * framework.sigmoid(_gelu_argument(x)))


def _gelu_argument(x: Any) -> Any:
    return (x * x * 0.044715 + 1.0) * x * (2.0 * math.sqrt(2.0 / math.pi))


def _gelu_slope(framework: Framework, x: Any) -> Any:
    s = framework.sigmoid(_gelu_argument(x))
    inner = (x * x * (3.0 * 0.044715) + 1.0) * x * (2.0 * math.sqrt(2.0 / math.pi))
    other = framework.sigmoid(-_gelu_argument(x))
    # Beyond 40 the second term is 0 in every type, and at the infinities it would be infinity times 0.
    return s + framework.where((x < 40.0) & (x > -40.0), inner * s * other, 0.0)


def _gelu_erf_slope(framework: Framework, x: Any) -> Any:
    bell = framework.module.exp(x * x * -0.5) * (1.0 / math.sqrt(2.0 * math.pi))
    phi = framework.erfc(x * -math.sqrt(0.5)) * 0.5
    return phi + framework.where((x < 40.0) & (x > -40.0), x * bell, 0.0)


def _silu_slope(framework: Framework, x: Any) -> Any:
    s = framework.sigmoid(x)
    return s + framework.where((x < 1000.0) & (x > -1000.0), x * s * framework.sigmoid(-x), 0.0)


def _gelu_erf(framework: Framework, x: Any) -> Any:
    return _negligible(framework, x, x * 0.5 * framework.erfc(x * -math.sqrt(0.5)))


_ACTIVATIONS: dict[str, Callable[[Framework, Any], Any]] = {
    "relu": lambda framework, x: framework.relu(x),
    "gelu": _gelu,
    "gelu_erf": _gelu_erf,
    "silu": _silu,
    "sigmoid": _sigmoid,
}

_SLOPES: dict[str, Callable[[Framework, Any], Any]] = {
    "dgelu": _gelu_slope,
    "dgelu_erf": _gelu_erf_slope,
    "dsilu": _silu_slope,
}


def activated(framework: Framework, row: EpilogueRow, x: Any, aux: Any, clamp: tuple[float, float] | None) -> Any:
    """Return an epilogue's function of the pre-activation, or of what comes in and ``aux``."""
    name = function_of(row)
    if clamp is not None and row.clamp:
        return framework.clamp(x, *clamp)
    if aux is not None:
        return framework.where(aux > 0, x, 0.0) if name == "drelu" else x * _SLOPES[name](framework, aux)
    return activation(name, x, framework) if name in _ACTIVATIONS else x


def activation(name: str, x: Any, framework: Framework | None = None) -> Any:
    """Return the activation of this name of an array, by its framework's operations, which the framework can record."""
    return _ACTIVATIONS[name](framework or framework_of(x), x)


def _buffer(array: np.ndarray[Any, Any]) -> Buffer:
    buffer = Buffer(array.shape, array.dtype)
    buffer.copy_from(array)
    return buffer


def convert(array: Any, dtype: str, like: Any) -> Any:
    """Return an operand in another type, of the framework that ``like`` belongs to."""
    if isinstance(like, Buffer):
        return _buffer(np.asarray(values(array)).astype(dtypes.lookup(dtype).numpy))
    return framework_of(like).wide(array, dtype, like)


class Composed(Preparation[ProductCall]):
    """A product that the library cannot fuse: a native one, then the framework's own operations on its result.

    ``dtype`` is the result's, ``options`` hold for the whole.
    """

    def __init__(self, call: ProductCall, recipe: Recipe, epilogue: str, dtype: str, options: Options) -> None:
        self._call, self._epilogue, self._options = call, epilogue, options
        named = {name: getattr(call, name) for name in ("a", "b", "c", "bias", "aux")}
        arguments = {"alpha": call.alpha, "beta": call.beta, "clamp": call.clamp, "compute": call.compute}
        self._product = Unfused(recipe, epilogue, dtype, named, arguments, call.scales)

    def prepare(self) -> ProductCall:
        """Return the call of the native product."""
        native, arguments = self._product.native_operands(), self._product.native_arguments()
        scales, options = self._product.native_scales(), strict(self._options)
        own = {"aux": None, "out": None, "clamp": None, "algorithm": None}
        return self._call.replaced(**own, **native, **arguments, scales=scales, options=options)

    def finish(self, outputs: Any) -> Any:
        """Return the result and what goes beside it from what the native product gave."""
        with timed("composed epilogue %r after the library's product", self._epilogue):
            result, extra = self._product.finish(outputs)
        if self._call.out is not None:
            assign(self._call.out, result)
            result = self._call.out
        return (result, extra) if extra else result
