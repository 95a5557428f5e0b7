# SPDX-License-Identifier: MIT
"""Tangents of forward-mode differentiation, which rocpy's products do not propagate: the search and the refusal."""

from __future__ import annotations

from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack
from torch.autograd import forward_ad

from rocpy.errors import UnsupportedError

__all__ = ["refuse_tangents"]


def refuse_tangents(**operands: Any) -> None:
    """Refuse tensors with a tangent by their names; other operands are passed over.

    Raises
    ------
    UnsupportedError
        One of them carries a tangent, at whatever level of torch.func's transforms.
    """
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:
        return
    for name, operand in operands.items():
        if isinstance(operand, torch.Tensor) and _carries_tangent(operand):
            raise UnsupportedError(
                f"{name}: it carries a forward-mode tangent, which the fused product does not propagate; use torch's "
                "own product, or pass the primal of torch.autograd.forward_ad.unpack_dual if the tangent is not needed"
            )


def _carries_tangent(x: Any) -> bool:
    """Return whether a tensor has a tangent at any level of the torch.func transforms that are active.

    A transform sees its own level alone: inside ``grad`` the tangent that ``jvp`` has put on its operand is hidden in
    the wrapper, so that levels are left one after the other.
    """
    functorch = torch._C._functorch
    top = functorch.peek_interpreter_stack()
    if top is None:
        return forward_ad.unpack_dual(x).tangent is not None
    within = functorch.is_functorch_wrapped_tensor(x) and functorch.maybe_get_level(x) == top.level()
    # There is no batching rule for the question itself, and vmap adds no tangent.
    if top.key() != functorch.TransformType.Vmap and forward_ad.unpack_dual(x).tangent is not None:
        return True
    with temporarily_pop_interpreter_stack():
        return _carries_tangent(functorch.get_unwrapped(x) if within else x)
