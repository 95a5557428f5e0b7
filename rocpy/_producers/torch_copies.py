# SPDX-License-Identifier: MIT
"""Copies of torch's tensors whose memory is not aligned."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["aligned_copy", "is_misaligned"]


def is_misaligned(array: Any) -> bool:
    """Whether a tensor in CPU memory begins between the bytes of its elements."""
    return array.device.type == "cpu" and array.data_ptr() % min(array.element_size(), 8) != 0


def aligned_copy(array: Any) -> Any:
    """Return a copy of such a tensor, made of its bytes: torch's own copy of complex128 ends the process.

    What torch has marked and not applied, a conjugate or a sign, is marked in the copy.
    """
    torch = sys.modules["torch"]
    size = array.element_size()
    octets = torch.empty(0, dtype=torch.uint8, device=array.device)
    strides = [*[step * size for step in array.stride()], 1]
    octets.set_(array.untyped_storage(), array.storage_offset() * size, [*array.shape, size], strides)
    copy = octets.clone().view(array.dtype).squeeze(-1)
    if array.is_conj():
        copy = copy.conj()
    return torch._neg_view(copy) if array.is_neg() else copy
