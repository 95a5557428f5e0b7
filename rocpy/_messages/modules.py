# SPDX-License-Identifier: MIT
"""Modules that rocpy does not import itself, as far as they are there: another thread may be importing them now."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["imported", "is_instance_of", "is_tensor"]


def imported(name: str) -> Any:
    """Return a module that has been imported completely; ``None`` where it has not.

    During its import a module is in ``sys.modules`` already and lacks some of its names. It is not waited for: the
    import may be this thread's own.
    """
    module = sys.modules.get(name)
    # What import itself looks at, to wait for the thread that imports a module.
    if module is None or getattr(getattr(module, "__spec__", None), "_initializing", False):
        return None
    return module


def is_instance_of(value: Any, module: str, name: str) -> bool:
    """Return whether a value is of a class of a module that need not have been imported; its import may be going on."""
    cls = getattr(sys.modules.get(module), name, None)
    return cls is not None and isinstance(value, cls)


def is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of torch's, or of a class derived from it."""
    return is_instance_of(value, "torch", "Tensor")
