# SPDX-License-Identifier: MIT
"""Arrays as torch sees them, and tensors as numpy sees them, bfloat16 included."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from rocpy.errors import InvalidOperandError
from rocpy.rccl.model.dtypes import numpy_type

__all__ = ["numpy_of", "tensor_of"]


def numpy_of(tensor: Any, name: str) -> Any:
    """Return a tensor's memory as numpy sees it.

    Raises
    ------
    InvalidOperandError
        The tensor is not in CPU memory.
    """
    torch = sys.modules["torch"]
    if tensor.device.type != "cpu":
        raise InvalidOperandError(f"{name}: is on {tensor.device}; this communicator takes CPU memory")
    if tensor.dtype == torch.bfloat16:
        return tensor.detach().view(torch.int16).numpy().view(numpy_type("bfloat16"))
    return tensor.detach().numpy()


def tensor_of(array: Any) -> Any:
    """Return an array's memory as torch sees it."""
    torch = sys.modules["torch"]
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
