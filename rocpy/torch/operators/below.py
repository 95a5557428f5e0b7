# SPDX-License-Identifier: MIT
"""Below torch's dispatcher: the way to an operator's kernel, from which none leads back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rocpy._fp_environment import default_arithmetic
from rocpy._producers.torch_refusals import TorchLayerRequired
from rocpy.errors import UnsupportedError

__all__ = ["KERNELS", "AtOnce", "Below", "below_torch", "refuse_inside"]

# What each operator computes on memory.
KERNELS: dict[Any, Callable[..., Any]] = {}

_local = threading.local()


def refuse_inside() -> None:
    """Raise an error in an operator's kernel, from where there is no way back to the dispatcher."""
    if getattr(_local, "depth", 0) > 0:
        raise UnsupportedError(
            "unsupported tensor subclass or dispatch mode: its memory cannot be read; pass plain tensors"
        )


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    # A subclass without a dispatch of its own arrives here as it is; its memory is a tensor's.
    if isinstance(value, Tensor) and type(value) is not Tensor and type(value) is not torch.nn.Parameter:
        return value.as_subclass(Tensor)
    return value


def below_torch(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that runs with everything of torch's already done: no grad mode, no subclasses, no way back."""

    @default_arithmetic
    def run(*args: Any, **kwargs: Any) -> Any:
        _local.depth = getattr(_local, "depth", 0) + 1
        try:
            with torch.no_grad():
                return kernel(*map(_plain, args), **{name: _plain(value) for name, value in kwargs.items()})
        except TorchLayerRequired as error:
            raise UnsupportedError(str(error)) from None
        finally:
            _local.depth -= 1

    return run


class Below:
    """An operator without the recording of autograd, as its kernel for autograd calls it."""

    __slots__ = ("_keyset", "_operator", "_records")

    def __init__(self, operator: Any, keyset: Any, records: bool = False) -> None:
        self._operator, self._keyset = operator, keyset
        self._records = records  # whether levels of torch.func below this one still record

    def of(self, operator: Any) -> Below:
        """Return another operator, called from the same level."""
        return Below(operator, self._keyset, self._records)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the operator's results."""
        if not self._records:
            return self._redispatch(args, kwargs)
        with torch.enable_grad():  # an autograd function turns grad mode off
            return self._redispatch(args, kwargs)

    def _redispatch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return self._operator.redispatch(self._keyset, *args, **kwargs)


class AtOnce:
    """An operator's kernel, as what records it calls it where the dispatcher has nothing to add: see :class:`Below`."""

    __slots__ = ("_kernel",)

    def __init__(self, operator: Any) -> None:
        self._kernel = KERNELS[operator]

    def of(self, operator: Any) -> AtOnce:
        """Return another operator, called in the same way."""
        return AtOnce(operator)

    def __call__(self, *args: Any) -> Any:
        """Return the operator's results."""
        return self._kernel(*args)
