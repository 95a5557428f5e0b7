# SPDX-License-Identifier: MIT
"""The activations of the epilogues, by jax's own functions, and the product that stands before them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rocpy.blaslt._recipes import function_of
from rocpy.jax._call import Spec

__all__ = ["activation_of", "plain_spec", "wide"]


def _gelu_tanh(x: Any) -> Any:
    return jax.nn.gelu(x, approximate=True)


def _gelu_erf(x: Any) -> Any:
    return jax.nn.gelu(x, approximate=False)


# From the pre-activation, by jax's own derivative.
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
    return _FUNCTIONS[name]


def wide(x: Any) -> Any:
    """Return an array in the type that elementwise derivatives are computed in."""
    return x.astype(jnp.float32) if x.dtype in (jnp.float16, jnp.bfloat16) else x


def plain_spec(spec: Spec) -> Spec:
    """Return the product without its activation."""
    return dataclasses.replace(spec, epilogue="bias" if spec.row.bias else "default", clamp=None)
