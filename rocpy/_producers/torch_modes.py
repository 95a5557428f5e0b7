# SPDX-License-Identifier: MIT
"""What is active in this thread that torch's dispatcher has to know of: transforms, modes, tracing and autocast."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["nothing_traces", "state_reason"]


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


def state_reason(array: Any) -> str | None:
    """Return what is active that must see a product of the tensor; ``None`` where nothing is."""
    torch = sys.modules["torch"]
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a torch.func transform (vmap, grad, ...) is active"
    if torch._C._len_torch_dispatch_stack() > 0:
        return "a torch dispatch mode (make_fx, FakeTensorMode, ...) is active"
    if torch._C._get_tracing_state() is not None:
        return "torch.jit.trace is recording"
    device = array.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        return f"autocast is on for {device}"
    return None
