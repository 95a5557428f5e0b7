# SPDX-License-Identifier: MIT
"""Arguments of kernels on the CPU: numbers, and arrays of numpy, torch and DLPack as numpy's views of their memory."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from rocpy._fp_environment import default_arithmetic
from rocpy._messages.modules import imported, is_tensor
from rocpy._operand import numpy_view
from rocpy.errors import InvalidOperandError, UnsupportedError
from rocpy.runtime.memory import Buffer, shared_tensor


def value_of(kernel: Any, index: int, argument: Any) -> Any:
    """Return an argument of a kernel as the runtime takes it: a number, an array of numpy's or a tuple of them."""
    number = number_of(argument)
    if number is not None:
        return number
    names = kernel.function.__code__.co_varnames
    name = names[index] if index < len(names) else f"argument {index}"
    if isinstance(argument, tuple):
        return tuple(value_of(kernel, index, each) for each in argument)
    return as_numpy(f"kernel {kernel.name}", name, argument, "a number, an array or a tuple of them")


def number_of(argument: Any) -> Any:
    """Return an argument that is a number, of Python's own type where it is of a class derived from that; else None."""
    if isinstance(argument, np.generic):
        return argument
    kind = next((each for each in (bool, int, float, complex) if isinstance(argument, each)), None)
    return argument if kind is type(argument) else kind and kind(argument)


def as_numpy(subject: str, name: str, argument: Any, accepted: str = "an array") -> np.ndarray:
    """Return numpy's view of an argument's memory; `subject` begins what is said if there is none."""
    if isinstance(argument, np.ma.MaskedArray):
        raise InvalidOperandError(
            f"{subject}: {name} is a masked array, whose mask a kernel cannot read; pass {name}.data"
        )
    if isinstance(argument, np.ndarray):
        return np.asarray(argument)
    if is_tensor(argument):
        return _from_torch(subject, name, argument)
    if not hasattr(argument, "__dlpack__"):
        raise InvalidOperandError(f"{subject}: {name} is {type(argument).__name__}; pass {accepted}")
    deleted = getattr(argument, "is_deleted", None)
    if callable(deleted) and deleted():
        raise InvalidOperandError(f"{subject}: {name} was deleted or donated by jax; pass an array that has its values")
    try:
        return _from_dlpack(argument, name)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InvalidOperandError(
            f"{subject}: {name} ({type(argument).__name__}) has no memory that a kernel on the CPU can use: {error}"
        ) from None


def _from_dlpack(argument: Any, name: str) -> np.ndarray:
    """Return numpy's view of an array that exports its memory, also of types that only ml_dtypes has."""
    try:
        return np.from_dlpack(argument)
    except RuntimeError:
        view = numpy_view(argument, name)
        if not isinstance(view, np.ndarray):
            raise
        return view


def raise_versions(arguments: tuple[Any, ...], written: Iterable[tuple[int, ...]]) -> None:
    """Tell autograd of the tensors that a kernel may have written to, as operations in place do.

    Parameters
    ----------
    arguments
        Of the kernel.
    written
        Paths of the arguments that it may write to: an argument's number, and the index in it for each tuple.
    """
    torch = imported("torch")
    if torch is None:
        return
    tensors: list[Any] = []
    for path in written:
        if path[0] < len(arguments):
            value = arguments
            for index in path:
                value = value[index]
            _collect(torch, value, tensors)
    if tensors:
        torch._C._increment_version(tensors)


def _collect(torch: Any, value: Any, tensors: list[Any]) -> None:
    if isinstance(value, tuple):
        for each in value:
            _collect(torch, each, tensors)
    elif isinstance(value, Buffer):
        _collect(torch, shared_tensor(value), tensors)
    elif isinstance(value, torch.Tensor) and not value.is_inference():  # those have no version
        tensors.append(value)


def _from_torch(subject: str, name: str, tensor: Any) -> np.ndarray:
    if tensor.device.type == "meta":
        raise InvalidOperandError(
            f"{subject}: {name} is on the meta device, which has no memory; create one with "
            f"torch.empty_like({name}, device='cpu')"
        )
    if tensor.device.type != "cpu":
        raise UnsupportedError(f"{subject}: {name} is on {tensor.device}, where kernels cannot run; pass {name}.cpu()")
    if tensor.requires_grad:
        raise InvalidOperandError(
            f"{subject}: {name} requires a gradient, which a kernel does not compute; pass {name}.detach()"
        )
    try:
        if str(tensor.dtype) == "torch.bfloat16":
            import ml_dtypes

            return tensor.view(sys.modules["torch"].int16).numpy().view(ml_dtypes.bfloat16)
        return tensor.numpy()
    except (TypeError, RuntimeError) as error:
        raise InvalidOperandError(
            f"{subject}: {name} ({tensor.dtype}, {tensor.layout}) cannot be used in a kernel: {error}"
        ) from None


@default_arithmetic
def _rounded(argument: Any) -> Any:
    return np.complex64(argument) if type(argument) is complex else np.float32(argument)


def narrowed(argument: Any) -> Any:
    """Return an argument of a kernel for float32: Python's floats are of that type."""
    if isinstance(argument, tuple):
        return tuple(map(narrowed, argument))
    number = number_of(argument)
    if type(number) is float or type(number) is complex:
        return _rounded(number)
    return argument if number is None else number
