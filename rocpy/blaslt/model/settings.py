# SPDX-License-Identifier: MIT
"""Settings of a product as numbers: compute types, bounds of a clamp; and the names of its arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, cast

import numpy as np

from rocpy._fp_environment import read_complex, read_float
from rocpy._messages.suggestions import did_you_mean
from rocpy._producers.torch_modes import gradient_reason, kind_reason, transform_reason
from rocpy.errors import InvalidProblemError, UnsupportedError

# The arrays of a product.
ARRAYS = ("a", "b", "c", "bias", "aux", "out")
# ROCPY_EXT_ORDER_PACKED of csrc/abi/types_extension.h.
ORDER_PACKED = 7498593
# Compute types that may be asked for.
COMPUTE_TYPES = ("float32", "tf32", "float64", "int32")
_COMPUTE_CODES = {name: code for code, name in enumerate(COMPUTE_TYPES, 1)}  # 0: none is asked for


def compute_code(compute: object) -> int:
    """Return the key's number of a compute type; an unknown one is refused here, before it can share a key."""
    code = _COMPUTE_CODES.get(compute) if isinstance(compute, str) else None
    if code is None:
        near = did_you_mean(compute, _COMPUTE_CODES)
        raise InvalidProblemError(f"compute: got {compute!r}, expected {', '.join(map(repr, _COMPUTE_CODES))}{near}")
    return code


def check_whole_factors(alpha: float, beta: float) -> None:
    """Refuse factors of an integer product that are no int32 numbers."""
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not -(2.0**31) <= value < 2.0**31 or not value.is_integer():
            raise InvalidProblemError(
                f"{name} = {value}; an integer result is scaled by 32-bit integers: for other factors pass "
                "dtype='float32', scale_a=1.0 and scale_b=1.0, with c, bias and out of float32"
            )


# Numbers of numpy that float() and complex() read as text, or whose imaginary part float() drops.
_TEXT = (np.character, np.void)
_TEXT_AND_COMPLEX = (*_TEXT, np.complexfloating)


def _refuse_types(value: Any, refused: tuple[type, ...]) -> None:
    dtype = getattr(value, "dtype", None)
    # Text and mere memory have none of these.
    is_number = any(hasattr(value, name) for name in ("__float__", "__index__", "__complex__"))
    if not is_number or (isinstance(dtype, np.dtype) and issubclass(dtype.type, refused)):
        raise TypeError(type(value).__name__)


def real_number(value: Any) -> float:
    """Return a real number on the host, of whatever type, as a float.

    Raises
    ------
    TypeError, ValueError, OverflowError
        It is none, or too large.
    """
    if not isinstance(value, int | float):
        _refuse_types(value, _TEXT_AND_COMPLEX)
        if getattr(getattr(value, "dtype", None), "is_complex", False):  # torch's
            raise TypeError(str(value.dtype))
    return read_float(value)


def complex_number(value: Any) -> complex:
    """Return a number on the host, of whatever type, as a complex one.

    Raises
    ------
    TypeError, ValueError, OverflowError
        It is none, or too large.
    """
    _refuse_types(value, _TEXT)
    return read_complex(value)


def _refuse_recorded_bound(bound: Any) -> None:
    """Refuse a tensor as a bound where torch records or transforms what is done with it."""
    reason = transform_reason() or gradient_reason(bound)
    if reason is not None:
        raise UnsupportedError(
            f"clamp: a bound is a tensor, and {reason}; bounds are host numbers, through which no gradient flows: pass "
            "float(bound.detach()), or clamp the result by torch.clamp"
        )
    kind = kind_reason(bound)
    if kind is not None and "no memory" in kind:
        raise UnsupportedError(f"clamp: a bound is a tensor, and {kind}; pass two numbers")


def refuse_recorded(value: Any, name: str) -> None:
    """Refuse a tensor as a factor or a scale where torch records or transforms what is done with it."""
    reason = transform_reason() or gradient_reason(value)
    if reason is not None:
        raise UnsupportedError(
            f"{name}: a tensor, and {reason}; {name} is a host number, through which no gradient flows: pass "
            f"float({name}.detach()), or multiply by the tensor"
        )


def clamp_bounds(clamp: object) -> tuple[float, float]:
    """Return the bounds of a clamp epilogue as two floats."""
    try:
        # An iterator could be read only once, and sets and mappings have no order.
        if isinstance(clamp, str | bytes | bytearray | Iterator | AbstractSet | Mapping):
            raise TypeError(type(clamp).__name__)
        first, second = cast("Iterable[Any]", clamp)  # two, before any is looked at: there may be no end of them
        for bound in (first, second):
            if hasattr(type(bound), "requires_grad"):
                _refuse_recorded_bound(bound)
        low, high = real_number(first), real_number(second)
    except (TypeError, ValueError, OverflowError):
        raise InvalidProblemError(f"clamp: got {clamp!r}, expected a pair of numbers (low, high)") from None
    if not low <= high:  # NaN fails this too
        raise InvalidProblemError(f"clamp={clamp!r}; low must not be above high, and neither may be NaN")
    return low, high


def rounded_bounds(clamp: tuple[float, float] | None, dtype: str) -> str:
    """Return why hipBLASLt would clamp a result of this type to other bounds; empty where it would not."""
    for bound in (clamp or ()) if dtype in ("float64", "int32") else ():
        # EPILOGUE_ACT_ARG0_EXT and EPILOGUE_ACT_ARG1_EXT are float32 for every type of result.
        if ctypes.c_float(bound).value != bound:
            return f"clamp={clamp}: hipBLASLt takes bounds in float32, which cannot represent {bound!r}"
    return ""
