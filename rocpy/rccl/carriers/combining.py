# SPDX-License-Identifier: MIT
"""How a rank combines the arrays of all ranks by itself: in the order of the ranks, rounded as on the host platform."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["combine"]


def combine(op: str, inputs: Any) -> Any:
    """Return what the inputs of the ranks come to.

    Sums and products of 8- and 16-bit floats are computed in float32 and rounded once, those of integers wrap. `avg` of
    floats rounds each product with 1/n, of integers it divides the sum, towards zero. FP8 saturates.

    Parameters
    ----------
    op
        ``"sum"``, ``"prod"``, ``"max"``, ``"min"`` or ``"avg"``.
    inputs
        A row of elements for each rank.

    Examples
    --------
    >>> import numpy as np
    >>> from rocpy.rccl.carriers.combining import combine
    >>> combine("avg", np.array([[1, -2], [2, -3]])), combine("max", np.array([[np.nan], [1.0]]))
    (array([ 1, -2]), array([1.]))
    """
    stored = inputs.dtype
    is_integer = stored.kind in "iu"
    computed = stored if is_integer or stored.itemsize > 2 else np.dtype(np.float32)
    with np.errstate(all="ignore"):
        rows = [row.astype(computed) for row in inputs]
        if op == "avg" and not is_integer:
            factor = _rounded(np.asarray(1, computed) / np.asarray(len(rows), computed), stored).astype(computed)
            rows = [_rounded(row * factor, stored).astype(computed) for row in rows]
        total = rows[0]
        for row in rows[1:]:
            total = _combined(op, total, row, stored)
        if op == "avg" and is_integer:
            total = _divided(total, len(rows))
        return _rounded(total, stored)


def _combined(op: str, total: Any, row: Any, stored: Any) -> Any:
    # A NaN loses against a number; of equal values the one of the lower rank stays.
    if op == "max":
        return np.where((row > total) | (total != total), row, total)
    if op == "min":
        return np.where((row < total) | (total != total), row, total)
    if op != "prod":
        return total + row
    product = total * row
    if stored.itemsize == 1 and stored.kind not in "iu":
        # One of numbers that is too large for float32 is still one of numbers.
        is_beyond = np.isinf(product) & np.isfinite(total) & np.isfinite(row)
        product = np.where(is_beyond, np.copysign(np.finfo(np.float32).max, product), product)
    return product


def _rounded(values: Any, dtype: Any) -> Any:
    """Return values as elements of a type; FP8 saturates, and an infinity stays one or becomes NaN."""
    if dtype.itemsize == 1 and dtype.kind not in "iu":
        import ml_dtypes  # FP8 is one of its types

        largest = np.float32(ml_dtypes.finfo(dtype).max)
        values = np.where(np.isinf(values), values, np.clip(values, -largest, largest))
    return values.astype(dtype)


def _divided(total: Any, count: int) -> Any:
    """Return integers divided by the number of ranks, which their own type need not hold, towards zero."""
    wide = total.astype(np.uint64 if total.dtype.kind == "u" else np.int64)
    quotient = wide // wide.dtype.type(count)
    return (quotient + ((wide < 0) & (wide % wide.dtype.type(count) != 0))).astype(total.dtype)
