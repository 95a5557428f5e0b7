# SPDX-License-Identifier: MIT
"""Settings of a product as numbers: compute types, bounds of a clamp; and the names of its arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, cast

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


def _refuse_recorded(bound: Any) -> None:
    """Refuse a tensor as a bound where torch records or transforms what is done with it."""
    reason = transform_reason() or gradient_reason(bound)
    if reason is not None:
        raise UnsupportedError(
            f"clamp: a bound is a tensor, and {reason}; bounds are host numbers, through which no gradient flows: pass "
            "float(bound.detach()), or clamp the result by torch.clamp"
        )


def clamp_bounds(clamp: object) -> tuple[float, float]:
    """Return the bounds of a clamp epilogue as two floats."""
    try:
        first, second = cast("Iterable[Any]", clamp)  # two, before any is looked at: there may be no end of them
        # float() reads digits, so that '01' would be the bounds 0 and 1.
        if isinstance(clamp, str | bytes) or isinstance(first, str | bytes) or isinstance(second, str | bytes):
            raise TypeError("text")
        for bound in (first, second):
            if hasattr(type(bound), "requires_grad"):
                _refuse_recorded(bound)
        low, high = float(first), float(second)
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
    kind = kind_reason(bound)
    if kind is not None and "no memory" in kind:
        raise UnsupportedError(f"clamp: a bound is a tensor, and {kind}; pass two numbers")
