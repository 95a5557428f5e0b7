# SPDX-License-Identifier: MIT
"""Who else decides what a linear layer computes: patches, and modes and classes that override torch's functions."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.utils._device import DeviceContext

__all__ = ["functions_are_watched", "linear_is_overridden", "linear_is_patched"]

_Linear, _F, _Parameter = torch.nn.Linear, torch.nn.functional, torch.nn.Parameter
_TORCH_LINEAR = torch._C._nn.linear
# What another package put there before is its own as well.
_TORCH_FORWARD = (
    _Linear.forward
    if getattr(getattr(_Linear.forward, "__code__", None), "co_filename", "") == torch.nn.modules.linear.__file__
    else None
)
_modes = torch._C._len_torch_function_stack
# What classes have that leave torch's functions to torch.
_DEFAULTS = (Tensor.__torch_function__.__func__, torch._C._disabled_torch_function_impl)


def linear_is_patched() -> bool:
    """Whether somebody put a function of their own in place of ``nn.Linear.forward`` or ``F.linear``: it decides."""
    return _Linear.forward is not _TORCH_FORWARD or _F.linear is not _TORCH_LINEAR


def functions_are_watched() -> bool:
    """Whether a mode sees torch's functions that is none of torch's own, of a default device or an export."""
    return _modes() > 0 and not all(
        type(torch._C._get_function_stack_at(at)) in _torchs_modes() for at in range(_modes())
    )


def linear_is_overridden(x: Any) -> bool:
    """Whether ``nn.Linear`` with an input would run code of somebody else's in the place of torch's ``F.linear``."""
    kind = type(x)
    return (
        linear_is_patched()
        or functions_are_watched()
        or (kind is not Tensor and kind is not _Parameter and isinstance(x, Tensor) and _overrides(kind))
    )


def _overrides(kind: type) -> bool:
    """Whether a tensor class has an ``__torch_function__`` of its own; those of torch's own classes are known."""
    function = kind.__torch_function__  # type: ignore[attr-defined]
    return getattr(function, "__func__", function) not in _DEFAULTS and not kind.__module__.startswith("torch.")


@functools.cache
def _torchs_modes() -> frozenset[type]:
    from torch._export import non_strict_utils
    from torch.export import _safeguard
    from torch.fx.experimental import proxy_tensor

    names = (
        (_safeguard, "AutogradStateOpsFailSafeguard"),
        (non_strict_utils, "_NonStrictTorchFunctionHandler"),
        (proxy_tensor, "PreDispatchTorchFunctionMode"),
        (proxy_tensor, "TorchFunctionMetadataMode"),
    )
    return frozenset((DeviceContext, *(getattr(table, name) for table, name in names if hasattr(table, name))))
