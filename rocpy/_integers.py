# SPDX-License-Identifier: MIT
"""Integers as callers pass them: Python's own, numpy's, and whatever else stands for one."""

from __future__ import annotations

import operator
from typing import Any


def integer_of(value: Any) -> int | None:
    """Return an integer of any type as Python's own; ``None`` for what is none, such as a bool, a float or a text.

    Examples
    --------
    >>> import numpy
    >>> from rocpy._integers import integer_of
    >>> integer_of(numpy.int32(2)), integer_of(2.0), integer_of(True)
    (2, None, None)
    """
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
