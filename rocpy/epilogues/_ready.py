# SPDX-License-Identifier: MIT
"""Ready-made epilogues: residuals, gates of interleaved weights, requantising, caps and masks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rocpy._fp_environment import read_float
from rocpy.epilogues._custom import CustomEpilogue
from rocpy.epilogues.expressions.expression import Builder
from rocpy.epilogues.expressions.types import category, name_of
from rocpy.errors import InvalidOperandError, InvalidProblemError

__all__ = [
    "bias_residual_gelu",
    "dropout",
    "geglu",
    "interleave",
    "residual_add",
    "scale_clamp_cast",
    "softcap",
    "swiglu",
]


def _predefined(
    name: str, inputs: tuple[str, ...], write: Callable[[Builder], int], **defaults: float
) -> CustomEpilogue:
    builder = Builder(inputs)
    return CustomEpilogue(builder.finish([write(builder)], True, tuple(defaults.items()), name))


def _gated(builder: Builder, function: str) -> int:
    gate, up = (builder.op("pick", builder.x(), value=lane) for lane in (0, 1))
    return builder.op("mul", builder.op(function, gate), up)


residual_add = _predefined("residual_add", ("residual",), lambda b: b.op("add", b.x(), b.input("residual")))
"""``x + residual``."""

bias_residual_gelu = _predefined(
    "bias_residual_gelu",
    ("bias", "residual"),
    lambda b: b.op("gelu_tanh", b.op("add", b.op("add", b.x(), b.input("bias")), b.input("residual"))),
)
"""``gelu(x + bias + residual)``, GELU in its tanh form."""

swiglu = _predefined("swiglu", (), lambda b: _gated(b, "silu"))
"""``silu(gate) * up``, where the columns of a gate's weight and of another one alternate; half as many come out."""

geglu = _predefined("geglu", (), lambda b: _gated(b, "gelu"))
"""``gelu(gate) * up``, GELU by the error function, for interleaved weights as in :data:`swiglu`."""

softcap = _predefined(
    "softcap",
    ("cap",),
    lambda b: b.op("mul", b.op("tanh", b.op("div", b.x(), b.input("cap"))), b.input("cap")),
    cap=30.0,
)
"""``cap * tanh(x / cap)``; 30 by default."""

dropout = _predefined(
    "dropout",
    ("mask", "scale"),
    lambda b: b.op("where", b.input("mask"), b.op("mul", b.x(), b.input("scale")), b.const(0.0)),
    scale=1.0,
)
"""``x * scale`` where ``mask`` is true, else 0; ``scale`` is 1 / (1 - p) of the probability that made the mask."""


@functools.cache
def _scale_clamp_cast(dtype: str, low: float, high: float) -> CustomEpilogue:
    def write(b: Builder) -> int:
        y = b.op("mul", b.x(), b.input("scale"))
        if category(dtype) == 1:
            y = b.op("round", y)
        return b.op("cast", b.op("clamp", y, b.const(low), b.const(high)), value=dtype)

    return _predefined("scale_clamp_cast", ("scale",), write)


def scale_clamp_cast(dtype: Any = "int8", low: float | None = None, high: float | None = None) -> CustomEpilogue:
    """Return an epilogue that requantises: ``x * scale``, rounded to nearest even, clamped, and cast.

    Parameters
    ----------
    dtype
        Type of the result: int8, int32, or an 8-bit float, which the cast itself rounds.
    low, high
        Bounds; by default those of the type.

    Returns
    -------
    CustomEpilogue
        Its input is ``scale``: one number, or one per column or row.

    Raises
    ------
    InvalidProblemError
        If the bounds are not in order, or the type is not one of these.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> a = np.full((1, 2), 100, np.int8)
    >>> requantise = rocpy.epilogues.scale_clamp_cast("int8", low=-100)
    >>> rocpy.matmul(a, a.T, epilogue=requantise, epilogue_inputs={"scale": -1 / 16})
    array([[-100]], dtype=int8)
    """
    import ml_dtypes
    import numpy as np

    name = name_of(dtype)
    if name not in ("int8", "int32") and not name.startswith("float8"):
        raise InvalidProblemError(f"dtype: got {name!r}, expected int8, int32 or an 8-bit float")
    if category(name) == 1:
        limits = float(np.iinfo(name).min), float(np.iinfo(name).max)
    else:
        largest = float(ml_dtypes.finfo(name).max)
        limits = -largest, largest
    bounds = limits[0] if low is None else read_float(low), limits[1] if high is None else read_float(high)
    if not bounds[0] <= bounds[1]:
        raise InvalidProblemError(f"low={low!r}, high={high!r}; low must not be above high, and neither may be NaN")
    return _scale_clamp_cast(name, *bounds)


def interleave(gate: Any, up: Any) -> Any:
    """Return two weights with alternating columns: the weight of a layer for :data:`swiglu` or :data:`geglu`.

    Parameters
    ----------
    gate, up
        Weights of equal shape, ``(..., K, N)``, or biases ``(N,)``: numpy arrays or torch tensors.

    Returns
    -------
    array
        Shape ``(..., K, 2 N)``: column ``2 i`` is from ``gate``, column ``2 i + 1`` from ``up``.

    Raises
    ------
    InvalidOperandError
        If one of them is not an array.
    InvalidProblemError
        If their shapes differ, or they have no columns.

    Examples
    --------
    >>> import numpy as np, rocpy
    >>> rocpy.epilogues.interleave(np.array([1, 3]), np.array([2, 4]))
    array([1, 2, 3, 4])
    """
    for name, weight in (("gate", gate), ("up", up)):
        if not hasattr(weight, "shape"):
            raise InvalidOperandError(f"{name}: got {type(weight).__name__}, expected an array or tensor")
    if tuple(gate.shape) != tuple(up.shape):
        raise InvalidProblemError(f"gate: shape {tuple(gate.shape)}, up: shape {tuple(up.shape)}; they must be equal")
    if not gate.shape:
        raise InvalidProblemError("gate: shape (), up: shape (); an array without axes has no columns to alternate")
    from rocpy.epilogues.expressions.evaluate import interleaved

    return interleaved(gate, up)
