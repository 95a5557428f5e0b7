# SPDX-License-Identifier: MIT
"""What layers compute by torch's functions, in the default floating-point environment."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from rocpy._fp_environment import default_arithmetic

__all__ = ["gradient_type", "in_default_environment"]


def gradient_type(operand: torch.dtype, d: torch.dtype) -> torch.dtype:
    """Return the type of the products that give operands' gradients from that of the result.

    It is the operands', or the gradient's where its range is larger: float16 would overflow, bfloat16 only rounds.
    """
    return d if torch.finfo(d).tiny < torch.finfo(operand).tiny else operand


_Function = TypeVar("_Function", bound=Callable[..., Any])


def in_default_environment(function: _Function) -> _Function:
    """Return a function that computes in the default environment; torch's compiler and tracer see it as it is."""
    run = default_arithmetic(function)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        traced = torch.compiler.is_compiling() or torch.jit.is_tracing()
        return function(*args, **kwargs) if traced else run(*args, **kwargs)

    return wrapped  # type: ignore[return-value]
