# SPDX-License-Identifier: MIT
"""What frameworks say of arrays whose memory is shared: jax's are values, and torch counts writes to its tensors."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["count_write", "counts_writes", "is_immutable"]


def is_immutable(array: Any) -> bool:
    """Whether an array is a value: jax's are, and not every version of jax marks its capsules read-only."""
    cls = getattr(sys.modules.get("jax"), "Array", None)
    return cls is not None and isinstance(array, cls)


def counts_writes(array: Any) -> bool:
    """Whether an array is a tensor of torch's with a version, by which autograd notices a write; not for inference."""
    cls = getattr(sys.modules.get("torch"), "Tensor", None)
    return cls is not None and isinstance(array, cls) and not array.is_inference()


def count_write(tensor: Any) -> None:
    """Raise the version of a tensor, and of all that share its memory, as an operation in place does."""
    sys.modules["torch"]._C._increment_version((tensor,))
