# SPDX-License-Identifier: MIT
"""Names of operators, and the functions of Python and numpy that stand for them."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

NAMES = ("+", "*", "min", "max", "&", "|", "^")
FUNCTIONS: dict[Any, str] = {
    operator.add: "+",
    operator.mul: "*",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    min: "min",
    max: "max",
    np.add: "+",
    np.multiply: "*",
    np.minimum: "min",
    np.maximum: "max",
    np.bitwise_and: "&",
    np.bitwise_or: "|",
    np.bitwise_xor: "^",
    np.logical_and: "&",
    np.logical_or: "|",
    np.logical_xor: "^",
}
_LOGICAL = (np.logical_and, np.logical_or, np.logical_xor)


def name_of(function: Any, *, booleans: bool) -> str | None:
    """Return the name that a function stands for, with booleans or other numbers; None if there is none."""
    return None if function in _LOGICAL and not booleans else FUNCTIONS.get(function)
