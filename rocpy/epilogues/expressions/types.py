# SPDX-License-Identifier: MIT
"""Element types inside an expression: which type an operation gives, by torch's rules of promotion."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np

from rocpy import dtypes
from rocpy._fp_environment import default_arithmetic, read_float
from rocpy._messages.suggestions import did_you_mean
from rocpy.errors import InvalidOperandError, InvalidProblemError

__all__ = [
    "ARRAY",
    "COMPARISONS",
    "NUMBER",
    "ZERO_DIM",
    "category",
    "comparison_type",
    "compute_type",
    "name_of",
    "number_type",
    "plain_number",
    "promote",
    "result_type",
    "whole_limits",
]

# What counts more in a promotion: arrays, then arrays without axes, then Python's numbers.
NUMBER, ZERO_DIM, ARRAY = 0, 1, 2

_INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
_EIGHT = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_FLOATS = (*_EIGHT, "float16", "bfloat16", "float32", "float64")
NAMES = ("bool", *_INTEGERS, *_FLOATS)


# Operations whose operands have a type in common that is not that of the result.
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def whole_limits(dtype: str) -> tuple[int, int]:
    """Return the least and the largest value of a type of whole numbers."""
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def number_type(value: float) -> str:
    """Return the type that torch gives a Python number."""
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else "float32"


def plain_number(value: Any) -> bool | int | float | None:
    """Return a real number, a fraction or decimal too, as one of Python's own three types; ``None`` for others."""
    if isinstance(value, np.generic):
        return _plain_number_of_numpy(value)
    for kind_of_number in (bool, int, float):
        if isinstance(value, kind_of_number):
            return kind_of_number(value)
    if isinstance(value, Number) and not isinstance(value, complex):
        try:
            return read_float(value)
        except (ArithmeticError, TypeError, ValueError):  # it has no value that a float has
            pass
    return None


@default_arithmetic
def _plain_number_of_numpy(value: Any) -> bool | int | float | None:
    # A long double and the small floats of ml_dtypes are no Python numbers by themselves.
    kind = value.dtype.kind
    return None if kind in "cmM" else plain_number(float(value) if kind == "f" else value.item())


def category(dtype: str) -> int:
    """Return 0 for bool, 1 for integers, 2 for floating-point types."""
    return 0 if dtype == "bool" else 1 if dtype in _INTEGERS else 2


def name_of(dtype: Any, subject: str = "dtype") -> str:
    """Return the name of a type that values inside an expression may have, whoever's it is.

    Raises
    ------
    InvalidOperandError
        If it is not one of them.
    """
    text = str(dtype).removeprefix("torch.")
    if isinstance(dtype, type) and dtype in (bool, int, float):
        text = {bool: "bool", int: "int64", float: "float64"}[dtype]
    elif isinstance(dtype, type) and str(getattr(dtype, "dtype", "")).startswith("torch."):
        text = str(getattr(dtype, "dtype")).removeprefix("torch.")  # noqa: B009 (a class of tensors, such as torch.DoubleTensor)
    elif isinstance(dtype, (type, np.dtype, str)) and text not in NAMES:
        text = _numpy_name(dtype)
    if text in NAMES:
        return text
    try:
        text = dtypes.lookup(dtype).name
    except InvalidOperandError:
        text = ""
    if text not in NAMES:
        raise InvalidOperandError(
            f"{subject}: {dtype!r} is not a type of an epilogue's values{did_you_mean(dtype, NAMES)}; the types are "
            f"{', '.join(NAMES)}"
        )
    return text


def _numpy_name(dtype: Any) -> str:
    """Return the name of a type that numpy has, by another one too, such as ``"float"`` or ``"u1"``."""
    try:
        return np.dtype(dtype).name
    except (TypeError, ValueError):
        return str(dtype)


def compute_type(dtype: str) -> str:
    """Return the type in which values of a type are computed: no float narrower than float32 is."""
    return "float32" if category(dtype) == 2 and dtype != "float64" else dtype


def promote(x: str, y: str) -> str:
    """Return the type that holds values of two types, as torch promotes them."""
    if x == y:
        return x
    kinds = category(x), category(y)
    if kinds[0] != kinds[1]:
        return x if kinds[0] > kinds[1] else y
    if kinds[0] == 1:
        return str(np.promote_types(x, y).name)
    narrow = [name for name in (x, y) if name in _EIGHT]
    if narrow:
        return "float32" if len(narrow) == 2 else next(name for name in (x, y) if name not in _EIGHT)
    return "float32" if {x, y} == {"float16", "bfloat16"} else max(x, y, key=_FLOATS.index)


def result_type(operands: Sequence[tuple[str, int]]) -> tuple[str, int]:
    """Return the type and the rank class of an operation on values of types and rank classes.

    A value of a lower class counts only where it is of a higher category.
    """
    common: str | None = None
    for rank in (ARRAY, ZERO_DIM, NUMBER):
        names = [dtype for dtype, own in operands if own == rank]
        if not names:
            continue
        here = names[0]
        for name in names[1:]:
            here = promote(here, name)
        if common is None:
            common = here
        elif category(here) > category(common):
            # A Python float beside integers gives torch's default type; an array without axes gives its own.
            common = "float32" if rank == NUMBER and category(here) == 2 else here
    if common is None:
        raise InvalidProblemError("an operation without operands")
    return common, max(rank for _, rank in operands)


def comparison_type(operands: Sequence[tuple[str, int]]) -> str:
    """Return the type in which values of types and rank classes are compared: whole numbers in one that holds all."""
    common, _ = result_type(operands)
    return common if category(common) == 2 else functools.reduce(promote, [dtype for dtype, _ in operands])
