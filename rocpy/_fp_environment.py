# SPDX-License-Identifier: MIT
"""Arithmetic of Python's frameworks in the default floating-point environment, on every thread that takes part.

The environment of the calling thread is set and put back. numpy computes in that thread alone; torch shares arrays of
more than a few ten thousand elements with threads of its own, which keep the environment that they were made in.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, TypeVar

from rocpy._core import call_in_default_fp_environment, openmp_threads_are_default
from rocpy._messages.modules import imported

__all__ = ["default_arithmetic", "read_complex", "read_float"]

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


def read_float(value: Any) -> float:
    """Return ``float(value)`` as of the default environment: another one may read a subnormal number as 0."""
    if isinstance(value, int | float):  # what torch's compiler can trace; no bit of a double depends on the environment
        return float(value)
    return call_in_default_fp_environment(float, (value,), {})


def read_complex(value: Any) -> complex:
    """Return ``complex(value)`` as of the default environment."""
    return call_in_default_fp_environment(complex, (value,), {})


def _with_torch_threads(function: Callable[..., Any], args: tuple[Any, ...], **kwargs: Any) -> Any:
    """Call a function, with torch's work in this thread alone where torch's own threads have another environment."""
    torch = imported("torch")
    # In torch.jit.trace extents are tensors.
    if torch is None or torch._C._get_tracing_state() is not None or not any(_is_shared(torch, x) for x in args):
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
def _openmp(torch: Any) -> int:
    """Return the address of GOMP_parallel in the OpenMP runtime that torch is linked with; 0 where there is none.

    LLVM's and Intel's runtimes have it too.
    """
    try:
        from pathlib import Path  # here: `import rocpy` does without it

        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        return ctypes.cast(library.GOMP_parallel, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0


def _threads_agree(torch: Any, threads: int) -> bool:
    """Whether torch's threads are known to have the default environment; they are asked, since computing may trap."""
    parallel = _openmp(torch)
    return parallel != 0 and openmp_threads_are_default(parallel, threads)
