# SPDX-License-Identifier: MIT
"""Collectives as data: which are called, on what, and what numpy says must come out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rocpy.rccl.model import dtypes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

__all__ = ["CollectiveCase", "collective_cases", "collective_inputs", "collective_oracle"]

REDUCING = ("all_reduce", "reduce", "reduce_scatter")
OPS = ("sum", "prod", "max", "min", "avg", "premul")
DTYPES = dtypes.NAMES
# One shot, staged through shared memory in one round, and in several; a length that no block divides.
COUNTS = (0, 1, 1000, 70_001)


@dataclass(frozen=True)
class CollectiveCase:
    """A call that every rank makes.

    Attributes
    ----------
    collective
        Name of the method.
    dtype
        Element type.
    count
        Elements that one rank contributes, or gets where parts are given out.
    nranks
        How many ranks there are.
    op
        Operator of a reduction; ``"premul"`` is a pre-multiplied sum with a scalar of each rank's own.
    root
        The rank that gives or gets, where there is one.
    """

    collective: str
    dtype: str
    count: int
    nranks: int
    op: str | None = None
    root: int | None = None

    @property
    def name(self) -> str:
        """A name for test reports."""
        parts = [self.collective, self.op, self.dtype, f"{self.count}x{self.nranks}"]
        return "-".join(part for part in parts if part)


def collective_cases(nranks: int = 3) -> list[CollectiveCase]:
    """Return the list: every collective, every operator and every type, at counts that take different ways.

    Parameters
    ----------
    nranks
        How many ranks there are.

    Examples
    --------
    >>> from rocpy.testing.cases_collectives import collective_cases
    >>> len({case.name for case in collective_cases()}) == len(collective_cases())
    True
    """

    def cases() -> Iterator[CollectiveCase]:
        for dtype in DTYPES:
            for op in OPS:
                yield CollectiveCase("all_reduce", dtype, 1000, nranks, op)
        for collective in REDUCING:
            for count in COUNTS:
                for dtype in ("float32", "bfloat16", "int32"):
                    if (collective, count) != ("all_reduce", 1000):
                        root = nranks - 1 if collective == "reduce" else None
                        yield CollectiveCase(collective, dtype, count, nranks, "sum", root)
        for collective in ("broadcast", "all_gather", "all_to_all", "gather", "scatter"):
            for count in COUNTS:
                root = None if collective.startswith("all") else 1 % nranks
                yield CollectiveCase(collective, "float32", count, nranks, None, root)
            yield CollectiveCase(
                collective, "uint8", 1001, nranks, None, 0 if not collective.startswith("all") else None
            )

    return list(cases())


def _scalar(rank: int) -> float:
    return 0.5 + rank


def premul_scalar(case: CollectiveCase, rank: int) -> float:
    """Return a rank's scalar of a pre-multiplied sum: a number that every type has."""
    return float(rank + 1) if "int" in case.dtype else _scalar(rank)


def collective_inputs(case: CollectiveCase, seed: int = 0) -> list[npt.NDArray[Any]]:
    """Return the input of each rank, rounded to the case's type.

    Parameters
    ----------
    case
        The case.
    seed
        Of the generator.
    """
    rng = np.random.default_rng(seed)
    parts = case.nranks if case.collective in ("reduce_scatter", "all_to_all", "scatter") else 1
    shape = (parts * case.count,)
    target = dtypes.numpy_type(case.dtype)
    if np.issubdtype(target, np.integer):
        low = 0 if np.issubdtype(target, np.unsignedinteger) else -50
        return [rng.integers(low, 50, shape).astype(target) for _ in range(case.nranks)]
    return [rng.standard_normal(shape).astype(np.float32).astype(target) for _ in range(case.nranks)]


def _epsilon(dtype: str) -> float:
    """Half the distance from 1 to the next number: the largest relative error of one rounding."""
    import ml_dtypes

    return float(ml_dtypes.finfo(dtypes.numpy_type(dtype)).eps) / 2


def _reduced(case: CollectiveCase, inputs: list[npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    target = dtypes.numpy_type(case.dtype)
    if np.issubdtype(target, np.integer):
        wide = [
            x.astype(object) * (int(premul_scalar(case, r)) if case.op == "premul" else 1) for r, x in enumerate(inputs)
        ]
        result = wide[0]
        for x in wide[1:]:
            if case.op == "prod":
                result = result * x
            elif case.op in ("max", "min"):
                result = np.maximum(result, x) if case.op == "max" else np.minimum(result, x)
            else:
                result = result + x
        bits = 8 * target.itemsize
        wrapped = [int(value) & ((1 << bits) - 1) for value in result]
        if np.issubdtype(target, np.signedinteger):
            wrapped = [value - (1 << bits) if value >> (bits - 1) else value for value in wrapped]
        if case.op == "avg":
            wrapped = [abs(value) // case.nranks * (1 if value >= 0 else -1) for value in wrapped]
        return np.array(wrapped, dtype=target), np.zeros(len(wrapped))
    exact = [x.astype(np.float64) for x in inputs]
    storage = _epsilon(case.dtype)
    computed = _epsilon("float64" if case.dtype == "float64" else "float32")
    products = np.zeros_like(exact[0])
    if case.op in ("avg", "premul"):
        scalars = [1 / case.nranks if case.op == "avg" else premul_scalar(case, r) for r in range(case.nranks)]
        exact = [x * float(np.asarray(scalar).astype(target)) for x, scalar in zip(exact, scalars, strict=True)]
        # Each product is rounded to the type, or to its smallest numbers.
        tiny = float(np.abs(np.nextafter(np.zeros(1, target), np.ones(1, target)).astype(np.float64))[0])
        products = np.sum([np.abs(x) * storage + tiny for x in exact], axis=0)
    if case.op == "prod":
        result = np.prod(exact, axis=0)
        bound = np.abs(result) * computed * case.nranks
    elif case.op in ("max", "min"):
        return (np.fmax if case.op == "max" else np.fmin).reduce(exact), np.zeros_like(exact[0])
    else:
        result = np.sum(exact, axis=0)
        bound = products + np.sum(np.abs(exact), axis=0) * computed * case.nranks
    return result, bound


def collective_oracle(
    case: CollectiveCase, inputs: list[npt.NDArray[Any]]
) -> list[tuple[npt.NDArray[Any], npt.NDArray[Any]] | None]:
    """Return what each rank must get, in float64 or exact integers, with the bound of each element's error.

    The bound: n roundings of the sum in the type that it is computed in (float32 for narrower floats), one of each
    product with a scale in the element type, and one of the result. Copies, integers, maximum and minimum are exact.

    Parameters
    ----------
    case
        The case.
    inputs
        Of `collective_inputs`.

    Returns
    -------
    list
        For each rank the result and the bound, or ``None`` for a rank that gets nothing.
    """
    n, count = case.nranks, case.count
    nothing = np.zeros(count)

    def part(x: npt.NDArray[Any], rank: int) -> npt.NDArray[Any]:
        return x[rank * count : (rank + 1) * count]

    if case.collective in REDUCING:
        result, bound = _reduced(case, inputs)
        if result.dtype == np.float64 and case.op not in ("max", "min"):
            tiny = 2.0**-24 if case.dtype == "float16" else 2.0**-9 if case.dtype == "float8_e4m3fn" else 2.0**-16
            smallest = tiny if case.dtype in ("float16", "float8_e4m3fn", "float8_e5m2") else 0.0
            bound = bound + (np.abs(result) + bound) * _epsilon(case.dtype) + smallest / 2
        if case.collective == "reduce_scatter":
            return [(part(result, rank), part(bound, rank)) for rank in range(n)]
        return [(result, bound) if case.root in (None, rank) else None for rank in range(n)]
    if case.collective == "broadcast":
        return [(inputs[case.root or 0], nothing)] * n
    if case.collective in ("all_gather", "gather"):
        whole = (np.concatenate(inputs), np.zeros(n * count))
        return [whole if case.root in (None, rank) else None for rank in range(n)]
    if case.collective == "scatter":
        return [(part(inputs[case.root or 0], rank), nothing) for rank in range(n)]
    return [(np.concatenate([part(x, rank) for x in inputs]), np.zeros(n * count)) for rank in range(n)]
