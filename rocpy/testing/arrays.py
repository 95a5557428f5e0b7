# SPDX-License-Identifier: MIT
"""Arrays of all kinds as numpy's, in types that numpy itself lacks, too."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np

from rocpy._messages.modules import is_tensor
from rocpy.runtime.memory import Buffer

Array = np.ndarray


def dtype_of(name: str) -> np.dtype:
    """Return the numpy dtype of a dtype's name, ml_dtypes' included."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def to_numpy(result: Any) -> Array:
    """Return a numpy array with the values of a result: a numpy array, a torch tensor or a Buffer."""
    if isinstance(result, Buffer):
        return result.to_numpy()
    if is_tensor(result):
        torch = sys.modules["torch"]
        result = result.detach().cpu()
        name = str(result.dtype).removeprefix("torch.")
        if hasattr(ml_dtypes, name):
            same = torch.int16 if result.element_size() == 2 else torch.uint8
            return result.contiguous().view(same).numpy().view(dtype_of(name))
        return result.numpy()
    return np.asarray(result)
