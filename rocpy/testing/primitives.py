# SPDX-License-Identifier: MIT
"""Cases and oracles of the primitives of rocpy.cooperative: what a group of threads should get, by numpy in float64."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .primitive_orders import (
    decode_oracle,
    difference_oracle,
    discontinuity_oracle,
    histogram_oracle,
    merge_sort_oracle,
    radix_sort_oracle,
    topk_oracle,
)

Array = np.ndarray

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
OPERATORS = ("+", "*", "min", "max", "&", "|", "^")
# Threads of a group: one below, at and above rows, warps and common blocks.
SIZES = (1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 128, 255, 256, 300)

_UFUNCS: dict[str, np.ufunc] = {
    "+": np.add,
    "*": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
}


@dataclasses.dataclass(frozen=True, slots=True)
class PrimitiveCase:
    """One call of a primitive by every thread of one block.

    Attributes
    ----------
    primitive : str
        Name as in ``coop``.
    dtype : str
        Of the values.
    op : str
        Name of the operator, empty where the primitive has none.
    threads : int
        Of the block.
    width : int
        Of the groups: 0 for the block, else a width of warps.
    items : int
        Elements of each thread; 0 for a scalar.
    warp_size : int
        32 or 64.
    """

    primitive: str
    dtype: str = "int32"
    op: str = ""
    threads: int = 64
    width: int = 0
    items: int = 0
    warp_size: int = 64

    @property
    def name(self) -> str:
        """Short unique name, also the seed of the values."""
        group = f"warp{self.width}" if self.width else "block"
        return f"{self.primitive}{self.op}-{self.dtype}-{group}-{self.threads}x{self.items}-w{self.warp_size}"

    @property
    def groups(self) -> list[slice]:
        """Ranks of each group."""
        step = self.width or self.threads
        return [slice(begin, min(begin + step, self.threads)) for begin in range(0, self.threads, step)]

    def values(self) -> Array:
        """Values of the threads, one row each."""
        rng = np.random.default_rng(zlib.crc32(self.name.encode()))
        shape = (self.threads, max(self.items, 1))
        dtype = np.dtype(self.dtype)
        if dtype.kind in "iu":
            low, high = (
                (np.iinfo(dtype).min, np.iinfo(dtype).max) if self.op in "&|^" else (0 if dtype.kind == "u" else -9, 9)
            )
            return rng.integers(low, high, shape, dtype=dtype, endpoint=True)
        if self.op == "*":  # near one, so that long products stay in range
            x = np.exp(rng.standard_normal(shape) / 16)
        else:
            x = rng.standard_normal(shape)
        if dtype.kind == "c":
            x = x + 1j * rng.standard_normal(shape) * (0.1 if self.op == "*" else 1.0)
        return x.astype(dtype)


def exact(dtype: str) -> bool:
    """Return whether results of this type must have the oracle's bits."""
    return np.dtype(dtype).kind in "iu"


def reduce_oracle(case: PrimitiveCase) -> tuple[Array, Array]:
    """Return the result of each group, and a bound on its error.

    A tree over n operands has at most ceil(log2 n) roundings on each path after the thread's own items, which are
    combined one by one; each rounding is at most eps / 2 of a partial result, which sums of magnitudes bound. Complex
    products round thrice as much.
    """
    results, bounds = [], []
    for group in case.groups:
        values = _wide(case.values()[group].ravel())
        results.append(_UFUNCS[case.op].reduce(values))
        steps = max(case.items, 1) + np.ceil(np.log2(len(values)) + 1)
        bounds.append(_bound(case, steps, _UFUNCS[case.op].reduce(np.abs(values)) if case.op in "+*" else 0.0))
    return np.array(results).astype(case.dtype), np.array(bounds)


def batched_oracle(values: Array, op: str) -> Array:
    """Return the reduction of each slot over a group's threads; exact where the values are small integers."""
    return _UFUNCS[op].reduce(values, axis=0, dtype=values.dtype)


def scan_oracle(case: PrimitiveCase) -> tuple[Array, Array]:
    """Return the inclusive scan of each group, one row for each thread, and a bound on its error.

    A path holds at most one rounding for each doubling of distances, within rows and across them, and the thread's own
    items.
    """
    results, bounds = [], []
    for group in case.groups:
        rows = case.values()[group]
        values = _wide(rows.ravel())
        results.append(_UFUNCS[case.op].accumulate(values).reshape(rows.shape))
        steps = 2 * max(case.items, 1) + np.ceil(np.log2(len(values)) + 2)
        magnitude = _UFUNCS[case.op].accumulate(np.abs(values)) if case.op in "+*" else np.zeros(len(values))
        bounds.append(_bound(case, steps, magnitude).reshape(rows.shape))
    return np.concatenate(results).astype(case.dtype), np.concatenate(bounds)


def _wide(values: Array) -> Array:
    kind = values.dtype.kind
    return values if kind in "iub" else values.astype(np.complex128 if kind == "c" else np.float64)


def _bound(case: PrimitiveCase, steps: Any, magnitude: Any) -> Any:
    dtype = np.dtype(case.dtype)
    if dtype.kind in "iu":
        return np.zeros_like(magnitude, dtype=np.float64)
    factor = 3 if dtype.kind == "c" and case.op == "*" else 1
    relative = np.expm1(steps * factor * np.log1p(np.finfo(dtype).eps / 2))
    # The oracle's own rounding to the type at the end adds one more.
    return relative * np.abs(magnitude) + np.finfo(dtype).eps * np.abs(magnitude)


def shuffle_oracle(values: Array, mode: str, distance: int) -> Array:
    """Return what each thread of a group gets from a shuffle."""
    size = len(values)
    rank = np.arange(size)
    source = {
        "up": rank - distance,
        "down": rank + distance,
        "offset": rank + distance,
        "rotate": (rank + distance) % size,
        "xor": rank ^ distance,
        "index": np.full(size, distance),
    }[mode]
    return values[np.where((source >= 0) & (source < size), source, rank)]


def vote_oracle(values: Array) -> tuple[bool, bool, int, list[int]]:
    """Return any, all, the ballot of a group's conditions, and each thread's mask of equal values."""
    bits = [1 << i for i in range(len(values))]
    ballot = sum(bit for bit, value in zip(bits, values, strict=True) if value)
    matches = [sum(bit for bit, other in zip(bits, values, strict=True) if other == value) for value in values]
    return bool(np.any(values)), bool(np.all(values)), ballot, matches


def arrangement(name: str, size: int, items: int, warp: int) -> Array:
    """Return the number of each thread's items in an arrangement: one row for each thread."""
    rank, k = np.arange(size)[:, None], np.arange(items)[None]
    if name == "blocked":
        return rank * items + k
    if name == "striped":
        return k * size + rank
    first = rank // warp * warp
    return first * items + k * np.minimum(warp, size - first) + rank - first


def memory_oracle(source: Array, size: int, items: int, *, striped: bool) -> Array:
    """Return what each thread of a group loads of a tile."""
    return source[arrangement("striped" if striped else "blocked", size, items, size)]


def exchange_oracle(values: Array, before: str, after: str, warp: int) -> Array:
    """Return the items of a group, one row for each thread, in another arrangement."""
    size, items = values.shape
    flat = np.empty_like(values.ravel())
    flat[arrangement(before, size, items, warp)] = values
    return flat[arrangement(after, size, items, warp)]


# By family of primitives.
ORACLES: dict[str, Callable[..., Any]] = {
    "reduce": reduce_oracle,
    "scan": scan_oracle,
    "shuffle": shuffle_oracle,
    "vote": vote_oracle,
    "memory": memory_oracle,
    "exchange": exchange_oracle,
    "merge sort": merge_sort_oracle,
    "radix sort": radix_sort_oracle,
    "top-k": topk_oracle,
    "discontinuity": discontinuity_oracle,
    "adjacent difference": difference_oracle,
    "run length": decode_oracle,
    "histogram": histogram_oracle,
}


def operators_of(dtype: str) -> tuple[str, ...]:
    """Return the operators that a type has."""
    kind = np.dtype(dtype).kind
    if kind == "c":
        return ("+", "*")
    return OPERATORS if kind in "iu" else OPERATORS[:4]


def cases(primitive: str, *, tier: str = "quick") -> Iterator[PrimitiveCase]:
    """Yield the cases of a primitive; in the full tier each type with each operator, at some size.

    Parameters
    ----------
    primitive
        ``"reduce"`` or ``"inclusive_scan"``.
    tier
        ``"quick"`` or ``"full"``.

    Examples
    --------
    >>> from rocpy.testing import primitives
    >>> next(primitives.cases("reduce")).name
    'reduce+-int8-block-33x0-w64'
    """
    quick = ("int8", "uint32", "int64", "float32", "float64", "complex64")
    types = (*INTEGERS, *FLOATS, *COMPLEX) if tier == "full" else quick
    for i, dtype in enumerate(types):
        for j, op in enumerate(operators_of(dtype)):
            if tier == "quick" and j != i % len(operators_of(dtype)):
                continue
            yield PrimitiveCase(primitive, dtype, op, 33 + 31 * j, (0, 16, 64)[(i + j) % 3], (0, 3)[(i + j) % 2])
