# SPDX-License-Identifier: MIT
"""Arithmetic of Python's frameworks in the default floating-point environment, on every thread that takes part.

The environment of the calling thread is set and put back. numpy computes in that thread alone; torch shares arrays of
more than a few ten thousand elements with threads of its own, which keep the environment that they were made in.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from rocpy._core import call_in_default_fp_environment

__all__ = ["default_arithmetic"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
# at::internal::GRAIN_SIZE of ATen/Parallel.h: smaller work stays in the thread that asks for it.
_TORCH_GRAIN = 32768


def default_arithmetic(function: _Function) -> _Function:
    """Return a function whose arithmetic, by numpy or by torch on the CPU, is that of the default environment.

    It rounds to nearest, keeps subnormal numbers and raises no signal. The caller's environment is as before
    afterwards.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return call_in_default_fp_environment(_with_torch_threads, (function, args), kwargs)

    return wrapped  # type: ignore[return-value]


def _with_torch_threads(function: Callable[..., Any], args: tuple[Any, ...], **kwargs: Any) -> Any:
    """Call a function, with torch's work in this thread alone where torch's own threads have another environment."""
    torch = sys.modules.get("torch")
    if torch is None or not any(_is_shared(torch, x) for x in args):
        return function(*args, **kwargs)
    threads = torch.get_num_threads()
    if threads < 2 or _threads_agree(torch, threads):
        return function(*args, **kwargs)
    torch.set_num_threads(1)
    try:
        return function(*args, **kwargs)
    finally:
        torch.set_num_threads(threads)


def _is_shared(torch: Any, value: Any) -> bool:
    """Whether torch may share the work on an argument, or on what it holds, with its threads."""
    if isinstance(value, dict):
        return any(_is_shared(torch, x) for x in value.values())
    # Other subclasses, as those that stand for tensors while a function is traced, hold no numbers.
    return type(value) in (torch.Tensor, torch.nn.Parameter) and value.numel() > _TORCH_GRAIN and value.is_cpu


@functools.cache
def _samples(torch: Any, threads: int) -> tuple[Any, Any, Any]:
    """Return two tensors and the bits of their product: inexact ones of both signs, and subnormal ones."""
    left = np.array([1.1, -1.1, 1.3, -1.3, 2.0**-100, 2.0**-140, 1.7, -1.7], np.float32)
    right = np.array([1.9, 1.9, 0.7, 0.7, 2.0**-40, 1.0, 2.3, 2.3], np.float32)
    count = _TORCH_GRAIN * threads // left.size
    x, y, product = (torch.from_numpy(np.tile(values, count)) for values in (left, right, left * right))
    return x, y, product.view(torch.int32)


def _threads_agree(torch: Any, threads: int) -> bool:
    """Whether torch's threads multiply as this one does."""
    x, y, bits = _samples(torch, threads)
    return bool(torch.equal((x * y).view(torch.int32), bits))
