# SPDX-License-Identifier: MIT
"""Why torch's dispatcher has to know of a product: what is active in this thread, and what autograd has of a tensor."""

from __future__ import annotations

import sys
from typing import Any

from rocpy._messages.modules import is_instance_of

__all__ = [
    "gradient_reason",
    "graph_reason",
    "is_batched",
    "is_fake",
    "is_sharded",
    "kind_reason",
    "nothing_traces",
    "recording_reason",
    "state_reason",
    "transform_reason",
]


def is_batched(array: Any) -> bool:
    """Return whether a tensor is a batch of which ``vectorize=True`` or ``is_grads_batched=True`` shows one entry."""
    return bool(sys.modules["torch"]._C._functorch.is_legacy_batchedtensor(array))


def is_fake(array: Any) -> bool:
    """Return whether a tensor is one of a FakeTensorMode."""
    return is_instance_of(array, "torch._subclasses.fake_tensor", "FakeTensor")


def is_sharded(array: Any) -> bool:
    """Return whether a tensor is a DTensor."""
    return is_instance_of(array, "torch.distributed.tensor", "DTensor")


def kind_reason(array: Any) -> str | None:
    """Return what kind of tensor it is that its memory is not to be read; ``None`` for a plain one."""
    torch = sys.modules["torch"]
    cls = type(array)
    if cls is torch.Tensor or cls is torch.nn.Parameter:
        return "it is a meta tensor, which has no memory" if array.is_meta else None
    if is_fake(array):
        return "it is a fake tensor, which has no memory"
    if is_sharded(array):
        return "it is a DTensor, whose elements are cut over ranks"
    name = f"it is a {cls.__module__}.{cls.__qualname__}, a subclass of torch.Tensor"
    return (
        f"{name} that wraps other tensors" if torch._C._dispatch_keys(array).has(torch._C.DispatchKey.Python) else name
    )


def nothing_traces() -> bool:
    """Return whether nobody records what is done with torch now: the questions asked would become part of a graph."""
    torch = sys.modules["torch"]
    return not (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._len_torch_function_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
        or torch.compiler.is_compiling()
        or torch._ops._len_torch_dispatch_stack_pre_dispatch() > 0
    )


def recording_reason() -> str | None:
    """Return what is active that records what is done, to repeat it with other tensors; ``None`` where nothing does."""
    torch = sys.modules["torch"]
    if torch._C._len_torch_dispatch_stack() > 0 or torch._ops._len_torch_dispatch_stack_pre_dispatch() > 0:
        return "a torch dispatch mode (make_fx, FakeTensorMode, ...) is active"
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace is recording"
    return None


def graph_reason() -> str | None:
    """Return what is active that makes a graph of what is done; ``None`` where modes at most watch it."""
    torch = sys.modules["torch"]
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace is recording"
    if torch._ops._len_torch_dispatch_stack_pre_dispatch() > 0:
        return "torch.export is recording"
    if torch._C._len_torch_dispatch_stack() > 0:
        keys = torch._C._TorchDispatchModeKey
        modes = ((keys.PROXY, "make_fx"), (keys.FAKE, "FakeTensorMode"), (keys.FUNCTIONAL, "FunctionalTensorMode"))
        return next((f"{name} is active" for key, name in modes if torch._C._get_dispatch_mode(key) is not None), None)
    return None


def transform_reason() -> str | None:
    """Return what is active that records or transforms what is done; ``None`` where nothing does."""
    if sys.modules["torch"].compiler.is_compiling():
        return "torch.compile is recording"
    if sys.modules["torch"]._C._functorch.peek_interpreter_stack() is not None:
        return "a torch.func transform (vmap, grad, ...) is active"
    return recording_reason()


def state_reason(array: Any, is_product: bool = True) -> str | None:
    """Return what is active that must see a product of the tensor, or a collective; ``None`` where nothing is."""
    torch = sys.modules["torch"]
    if not is_product:
        # Autocast casts products, and modes that watch operators do not see collectives.
        return transform_reason() if torch._C._functorch.peek_interpreter_stack() is not None else graph_reason()
    device = array.device.type
    reason = transform_reason()
    if reason is None and torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return f"autocast is on for {device}"
    return reason


def gradient_reason(array: Any) -> str | None:
    """Return what autograd would have to know of a product of the tensor; ``None`` where it need not."""
    torch = sys.modules["torch"]
    if array.requires_grad and torch.is_grad_enabled():
        return "it requires grad and grad mode is on"
    if torch.autograd.forward_ad.unpack_dual(array).tangent is not None:
        return "it carries a forward-mode tangent"
    return None
