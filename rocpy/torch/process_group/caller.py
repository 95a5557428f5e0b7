# SPDX-License-Identifier: MIT
"""What torch has for each thread that a collective must see of its caller's, and what it must not see."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext

import torch
from torch.utils._python_dispatch import _disable_current_modes

from rocpy._producers.torch_modes import graph_reason
from rocpy.errors import UnsupportedError

__all__ = ["inference_mode", "refuse_recording", "without_modes"]

_NOTHING: AbstractContextManager[None] = nullcontext()


def refuse_recording() -> None:
    """Refuse a collective where torch records what is done, to repeat it: the collective would not be part of that.

    Raises
    ------
    UnsupportedError
        torch is tracing.
    """
    reason = graph_reason()
    if reason is not None:
        raise UnsupportedError(
            f"tensor: {reason}, and the collective would not be part of what it makes; call it outside of the tracing"
        )


def without_modes() -> AbstractContextManager[object]:
    """Return a block in which autocast and modes that watch torch's operators are off: they concern products."""
    is_cast, is_watched = torch._C._is_any_autocast_enabled(), torch._C._len_torch_dispatch_stack()
    if not is_cast and not is_watched:
        return _NOTHING
    stack = ExitStack()
    if is_cast:
        stack.enter_context(torch._C._DisableAutocast())
    if is_watched:
        stack.enter_context(_disable_current_modes())
    return stack


def inference_mode(is_on: bool) -> AbstractContextManager[object]:
    """Return a block in the inference mode of another thread: tensors created in it are written only in it."""
    return torch.inference_mode() if is_on else _NOTHING
