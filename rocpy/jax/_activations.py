# SPDX-License-Identifier: MIT
"""The activations of the epilogues, by jax's own functions, and the product that stands before them."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rocpy import dtypes
from rocpy.blaslt.composed.product import activation
from rocpy.blaslt.model.product_types import gradient_type
from rocpy.blaslt.selection.recipes import function_of
from rocpy.jax._call import Spec

__all__ = ["activation_of", "derivative_spec", "plain_spec", "relu_slope", "row_sums", "slope", "wide"]


def _gelu_tanh(x: Any) -> Any:
    return jax.nn.gelu(x, approximate=True)


def _gelu_erf(x: Any) -> Any:
    return jax.nn.gelu(x, approximate=False)


# Those that jax has itself; the others are composed from its operations. Differentiated by jax.
_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "relu": jax.nn.relu,
    "sigmoid": jax.nn.sigmoid,
    "gelu": _gelu_tanh,
    "gelu_erf": _gelu_erf,
    "silu": jax.nn.silu,
}


def activation_of(spec: Spec) -> Callable[[Any], Any]:
    """Return the function of an epilogue."""
    name = function_of(spec.row)
    if name == "clamp":
        low, high = spec.clamp or (-math.inf, math.inf)
        return lambda x: jnp.clip(x, low, high)
    return _FUNCTIONS.get(name) or functools.partial(activation, name)


def wide(x: Any) -> Any:
    """Return an array in the type that elementwise derivatives are computed in."""
    return x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) and x.dtype.itemsize < 4 else x


def plain_spec(spec: Spec) -> Spec:
    """Return the product without its activation."""
    return dataclasses.replace(spec, epilogue="bias" if spec.row.bias else "default", clamp=None)


def derivative_spec(spec: Spec) -> Spec:
    """Return the activation whose derivative an epilogue that reads ``aux`` applies."""
    return dataclasses.replace(spec, epilogue=function_of(spec.row).removeprefix("d"))


def relu_slope(g: Any, x: Any) -> Any:
    """Return ``g`` where ``x`` is positive."""
    return jnp.where(x > 0, g, jnp.zeros_like(g))


def slope(spec: Spec, g: Any, x: Any) -> Any:
    """Return ``g`` times the activation's derivative at the pre-activation ``x``."""
    if function_of(spec.row) == "relu":
        return relu_slope(g, x)
    _, pull = jax.vjp(activation_of(spec), wide(x))
    return pull(wide(g))[0].astype(g.dtype)


def row_sums(spec: Spec, y: Any, vector_a: bool, vector_b: bool) -> Any:
    """Return the sums of a product's rows, which are the gradient of a bias; of vectors, those of the matrix."""
    full = y[..., None] if vector_b else y
    dtype = dtypes.lookup(gradient_type(str(y.dtype), bool(spec.scales))).numpy
    full = full.astype(dtype) if y.dtype.itemsize == 1 else full  # sums of eight bits have more
    return (full if vector_a else full.sum(-2)).astype(dtype)
