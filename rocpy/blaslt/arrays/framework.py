# SPDX-License-Identifier: MIT
"""The elementwise operations that an unfused epilogue is made of, by the framework that the arrays belong to."""

from __future__ import annotations

import functools
import importlib
import math
import sys
from typing import Any

import numpy as np

from rocpy import dtypes
from rocpy._operand import readable
from rocpy.blaslt.arrays.columns import Columns
from rocpy.errors import InvalidOperandError, UnsupportedError
from rocpy.runtime._foreign import array_view
from rocpy.runtime.memory import Buffer

# Saturating formats: a float beyond the largest value becomes it, infinities too. ml_dtypes and torch give NaN instead.
SATURATING = tuple(name for name, row in dtypes.DTYPES.items() if row.kind == "float" and row.bits <= 8)
_INTEGER_LIMITS = {"int8": (-128.0, 127.0), "int32": (-2147483648.0, 2147483647.0)}


def largest(dtype: str) -> float:
    """Return the largest finite value of a floating-point format of eight bits or fewer."""
    import ml_dtypes  # heavy, and its types are rare

    return float(ml_dtypes.finfo(dtypes.lookup(dtype).numpy).max)


@functools.cache
def _digits(dtype: str) -> tuple[int, float]:
    """Return the digits of a floating-point format, and its smallest number."""
    import ml_dtypes

    form = ml_dtypes.finfo(dtypes.lookup(dtype).numpy)
    return form.nmant + 1, float(form.smallest_subnormal)


class Framework:
    """Operations of numpy and of modules that have its names: cupy, jax.numpy."""

    def __init__(self, module: Any, special: Any = None) -> None:
        self.module = module
        self.special = special  # the module that has erfc; None: ours

    def owns(self, array: Any) -> bool:
        """Whether an array is this framework's, so that it needs no conversion."""
        return root(array) == root_of_module(self.module)

    def own(self, array: Any, like: Any) -> Any:  # noqa: ARG002 (numpy's arrays have one place)
        """Return an array of this framework, where ``like`` is, with the values of another's."""
        return array if self.owns(array) else self.module.asarray(values(array))

    def wide(self, array: Any, dtype: str, like: Any) -> Any:
        """Return an array of this framework, where ``like`` is, with the values of another, in another type."""
        return self.own(array, like).astype(dtypes.lookup(dtype).numpy, copy=False)

    def dense(self, array: Any) -> Any:
        """Return an array in rows: the order in which a framework adds depends on how its array lies."""
        return getattr(self.module, "ascontiguousarray", lambda array: array)(array)

    def hand_over(self, array: Any, shape: tuple[int, ...]) -> Any:
        """Return a new array in a shape, as a call gives it to its caller."""
        return array.reshape(shape)

    def narrow(self, array: Any, dtype: str) -> Any:
        """Return an array rounded once to the result's type: to nearest even, eight bits and integers saturated.

        NaN becomes 0 among integers, as HIP converts it; what a CPU makes of it depends on its instructions.
        """
        if str(array.dtype) == dtype:
            return array
        if dtype in SATURATING:
            limit = largest(dtype)
            array = self.clamp(array, -limit, limit)
        elif dtype in _INTEGER_LIMITS and array.dtype.kind in "iu":
            array = self.within(array, dtype)
        elif dtype in _INTEGER_LIMITS:
            array = self.clamp(self.module.rint(self.zero_for_nan(array)), *_INTEGER_LIMITS[dtype])
        return self.once(array, dtype).astype(dtypes.lookup(dtype).numpy, copy=False)

    def zero_for_nan(self, x: Any) -> Any:
        """Return an array with 0 in place of NaN."""
        return self.where(x == x, x, 0.0)

    def within(self, x: Any, dtype: str) -> Any:
        """Return integers with those beyond the limits of a type of them as its limits, exactly."""
        wanted, own = np.iinfo(dtype), self.module.iinfo(x.dtype)
        return self.module.clip(x, max(wanted.min, own.min), min(wanted.max, own.max))

    def once(self, x: Any, dtype: str) -> Any:
        """Return float64 numbers with no more digits than a type of at most 16 bits has, other arrays as they are.

        Frameworks convert the former by way of float32, which rounds twice.
        """
        row = dtypes.lookup(dtype)
        if row.kind != "float" or row.bits > 16 or not str(x.dtype).endswith("float64"):
            return x
        digits, least = _digits(dtype)
        wide = self.constant(x)
        mantissas, _ = self.module.frexp(wide)
        step = self.clamp(wide / mantissas * 2.0**-digits, least, math.inf)
        rounded = self.module.round(wide / step) * step
        # As an addition, which frameworks can differentiate; NaN for what is zero or not finite.
        once = self.module.copysign(x + (rounded - wide), wide)
        return self.module.where(self.module.isfinite(rounded), once, x)

    def constant(self, x: Any) -> Any:
        """Return an array whose further operations no framework records."""
        return x

    def sigmoid(self, x: Any) -> Any:
        """Return ``1 / (1 + exp(-x))``, of exponentials that do not overflow."""
        e = self.module.exp(-self.module.abs(x))
        return self.where(x < 0, e, 1.0) / (1.0 + e)

    def erfc(self, x: Any) -> Any:
        """Return the complementary error function."""
        return self.special.erfc(x) if self.special is not None else numpy_erfc(x)

    def where(self, condition: Any, x: Any, value: float) -> Any:
        """Return x where the condition holds, a number of x's type elsewhere."""
        return self.module.where(condition, x, np.asarray(value, x.dtype)[()])

    def clamp(self, x: Any, low: float, high: float) -> Any:
        """Return x between two bounds; NaN stays."""
        return self.module.maximum(self.module.minimum(x, high), low)

    def relu(self, x: Any) -> Any:
        """Return x where it is positive, else 0; NaN stays."""
        return self.module.maximum(x, 0.0)

    def sum(self, x: Any, axis: int) -> Any:
        """Return sums along an axis, in x's type."""
        return x.sum(axis=axis)

    def largest_magnitude(self, x: Any) -> Any:
        """Return the largest absolute value, a float32 array without axes; 0 for none."""
        return self.module.asarray(self.module.max(self.module.abs(x), initial=0.0), dtype=np.float32)


class _Torch(Framework):
    def own(self, array: Any, like: Any) -> Any:
        if self.owns(array):
            return array
        seen = values(array)
        if seen.dtype.isbuiltin != 1:  # of ml_dtypes, which torch does not read
            seen = seen.astype(np.float32)
        return self.module.from_numpy(np.require(seen, requirements=["C", "W"])).to(like.device)

    def wide(self, array: Any, dtype: str, like: Any) -> Any:
        return self.own(array, like).to(getattr(self.module, dtypes.lookup(dtype).torch))

    def dense(self, array: Any) -> Any:
        return array.contiguous()

    def hand_over(self, array: Any, shape: tuple[int, ...]) -> Any:
        # No view: what autograd records as a function's result could not be changed in place if it were one.
        array = array if tuple(array.shape) == shape else array.reshape(shape)
        return self.module.ops.aten._unsafe_view(array, shape) if array._is_view() else array

    def narrow(self, array: Any, dtype: str) -> Any:
        wanted = getattr(self.module, dtypes.lookup(dtype).torch)
        if array.dtype == wanted:
            return array
        if dtype in SATURATING:
            limit = largest(dtype)
            array = self.clamp(array, -limit, limit)
        elif dtype in _INTEGER_LIMITS and not array.is_floating_point():
            array = self.within(array, dtype)
        elif dtype in _INTEGER_LIMITS:
            array = self.clamp(self.zero_for_nan(array).round(), *_INTEGER_LIMITS[dtype])
        return self.once(array, dtype).to(wanted)

    def constant(self, x: Any) -> Any:
        return x.detach()

    def sigmoid(self, x: Any) -> Any:
        return self.module.sigmoid(x)

    def erfc(self, x: Any) -> Any:
        return self.module.erfc(x)

    def where(self, condition: Any, x: Any, value: float) -> Any:
        return self.module.where(condition, x, value)

    def clamp(self, x: Any, low: float, high: float) -> Any:
        return self.module.clamp(x, low, high)

    def relu(self, x: Any) -> Any:
        return self.module.relu(x)

    def sum(self, x: Any, axis: int) -> Any:
        return x.sum(dim=axis)

    def largest_magnitude(self, x: Any) -> Any:
        if x.numel() == 0:
            return x.new_zeros((), dtype=self.module.float32)
        return x.abs().amax().to(self.module.float32)


def root(array: Any) -> str:
    """Return the name of the package that an array's type is defined in."""
    name = type(array).__module__.partition(".")[0]
    return "jax" if name == "jaxlib" else name


def root_of_module(module: Any) -> str:
    """Return the name of a module's package."""
    return str(module.__name__).partition(".")[0]


@functools.cache
def _framework(name: str) -> Framework | None:
    if name == "numpy":
        return Framework(np)
    if name == "torch":
        return _Torch(sys.modules["torch"])
    if name == "cupy":
        return Framework(sys.modules["cupy"], importlib.import_module("cupyx.scipy.special"))
    if name == "jax":
        return Framework(sys.modules["jax"].numpy, sys.modules["jax"].lax)
    return None


def framework_of(array: Any) -> Framework:
    """Return the operations of an array's framework.

    Raises
    ------
    UnsupportedError
        If rocpy does not know the framework's operations.
    """
    # A subclass of numpy's or torch's array from elsewhere has its base's operations.
    name = "numpy" if isinstance(array, np.ndarray) else root(array)
    framework = _framework(name)
    if framework is None:
        raise UnsupportedError(
            f"this product must be composed from operations of the operands' framework, and rocpy does not support "
            f"{type(array).__module__}.{type(array).__name__} for that; pass numpy, torch, CuPy or jax arrays, or "
            "apply the epilogue to the plain product"
        )
    return framework


def values(array: Any) -> np.ndarray[Any, Any]:
    """Return an array's values as numpy's in native byte order, from whatever framework.

    They are widened where numpy has no such type.
    """
    array = readable(array, "array")
    if isinstance(array, np.ndarray):
        return array.astype(array.dtype.newbyteorder("="), copy=False)
    if isinstance(array, (Buffer, Columns)):
        return array.to_numpy()
    if root(array) == "torch":
        array = array.detach().cpu().resolve_conj().resolve_neg()
        narrow = array.dtype.is_floating_point and array.dtype.itemsize <= 2
        result: np.ndarray[Any, Any] = (array.float() if narrow else array).numpy()
        return result
    if root(array) == "cupy":
        copy: np.ndarray[Any, Any] = array.get()
        return copy
    try:
        return array_view(array, "array")
    except InvalidOperandError:
        raise
    except TypeError:
        return np.from_dlpack(array)


@functools.cache
def _erfc_series() -> np.polynomial.Chebyshev:
    # erfc(x) = t exp(-x^2 + p(t)) with t = 2 / (2 + x): p is smooth on all of x >= 0, that is 0 < t <= 1, and a
    # polynomial of degree 30 has it to the last digits of float64. Beyond x = 26 erfc is no normal number.
    def p(t: Any) -> np.ndarray[Any, Any]:
        x = np.minimum(2.0 / t - 2.0, 26.0)
        t = 2.0 / (2.0 + x)
        return np.array([math.log(math.erfc(v) / s) + v * v for v, s in zip(x, t, strict=True)])

    return np.polynomial.Chebyshev.interpolate(p, 30, domain=[2.0 / 28.0, 1.0])


def numpy_erfc(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the complementary error function of an array, computed in float64; numpy has none."""
    wide = np.minimum(np.abs(x.astype(np.float64)), 40.0)  # where it is 0, and the square no infinity
    t = 2.0 / (2.0 + np.minimum(wide, 26.0))
    tail = t * np.exp(-wide * wide + _erfc_series()(t))
    result: np.ndarray[Any, Any] = np.where(x < 0, 2.0 - tail, tail).astype(x.dtype)
    return result
