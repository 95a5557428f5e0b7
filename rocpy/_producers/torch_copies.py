# SPDX-License-Identifier: MIT
"""Copies of torch's tensors whose memory is not what they mean, or is not aligned."""

from __future__ import annotations

import sys
from typing import Any

from rocpy.runtime.handles.call_stream import await_operand, passes_stream

__all__ = ["aligned_copy", "resolved"]


def _is_misaligned(array: Any) -> bool:
    """Whether a tensor in CPU memory begins between the bytes of its elements."""
    return array.device.type == "cpu" and array.data_ptr() % min(array.element_size(), 8) != 0


def aligned_copy(array: Any) -> Any:
    """Return a copy of such a tensor, made of its bytes: torch's own copy of complex128 ends the process.

    What torch has marked and not applied, a conjugate or a sign, is marked in the copy.
    """
    await_operand(array)
    torch = sys.modules["torch"]
    size = array.element_size()
    octets = torch.empty(0, dtype=torch.uint8, device=array.device)
    strides = [*[step * size for step in array.stride()], 1]
    octets.set_(array.untyped_storage(), array.storage_offset() * size, [*array.shape, size], strides)
    copy = octets.clone().view(array.dtype).squeeze(-1)
    if array.is_conj():
        copy = copy.conj()
    return torch._neg_view(copy) if array.is_neg() else copy


def resolved(array: Any) -> Any:
    """Return a copy with what torch has marked and not applied (conjugate, sign, zeros), else the tensor itself."""
    if not (array.is_conj() or array.is_neg() or array._is_zerotensor()):
        return array
    await_operand(array)
    copy = aligned_copy(array) if _is_misaligned(array) else array
    copy = copy.resolve_conj().resolve_neg()
    if copy._is_zerotensor():
        copy = copy.clone()
    if copy.device.type == "cuda" and passes_stream():  # which does not wait for torch's
        sys.modules["torch"].cuda.current_stream(copy.device).synchronize()
    return copy
