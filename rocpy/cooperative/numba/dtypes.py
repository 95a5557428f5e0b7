# SPDX-License-Identifier: MIT
"""Types of elements, as kernels name them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.core import types
from numba.np import numpy_support

from rocpy.cooperative.numba.half import bfloat16


def dtype_names() -> list[str]:
    """Return the names of the numbers that an element can be."""
    return [*(np.dtype(each).name for each in "?bBhHiIlLefdFD"), "bfloat16"]


def dtype_of(argument: Any) -> Any:
    """Return the element type that a dtype argument names (``np.float32``, ``np.dtype``, a string), or None."""
    if isinstance(argument, types.StringLiteral):
        if argument.literal_value == "bfloat16":
            return bfloat16
        try:
            return numpy_support.from_dtype(np.dtype(argument.literal_value))
        except (TypeError, NotImplementedError):
            return None
    if isinstance(argument, types.NumberClass):
        return argument.instance_type
    if isinstance(argument, types.DType):
        return argument.dtype
    if isinstance(argument, types.TypeRef):
        return argument.instance_type
    if isinstance(argument, types.Function) and argument.typing_key in (float, int, bool, complex):
        return {float: types.float64, int: types.int64, bool: types.boolean, complex: types.complex128}[
            argument.typing_key
        ]
    return None
