# SPDX-License-Identifier: MIT
"""Signatures of classes that are written in C, from which Python reads none."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["MADE_BY_METHODS", "signature_like"]


def signature_like(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, for the ``__signature__`` of a class whose constructor takes the same."""
    return inspect.signature(function)


# Of a class that is made by class methods, or by methods of another class, alone.
MADE_BY_METHODS = inspect.Signature()
