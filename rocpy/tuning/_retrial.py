# SPDX-License-Identifier: MIT
"""Whether an algorithm is wrong on rocpy's own operands of a problem: a user's may overflow, underflow or wrap."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Any, Self

from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.planned_product import PlannedProduct
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.selection import library as _library
from rocpy.errors import RocpyError
from rocpy.tuning._operands import product_of
from rocpy.tuning._verification import Sample, sample_of

__all__ = ["Retrial"]


class Retrial:
    """A problem's product of random numbers, on which algorithms that disagree with float64 are tried again.

    A user's numbers prove nothing of an algorithm: an intermediate sum that overflows, underflows or wraps around is
    right, and depends on the order of summation. What gives wrong results on these is wrong.

    Parameters
    ----------
    problem
        The problem as it is launched.
    max_workspace_bytes
        Limit of the algorithms.
    alpha, beta
        Factors of the product; others of the same kind are used.
    """

    def __init__(self, problem: Problem, max_workspace_bytes: int, *, alpha: Any = 1.0, beta: Any = 1.0) -> None:
        self._problem = problem
        self._options = Options(max_workspace_bytes=max_workspace_bytes, fallback="error")
        self._factors = {"alpha": _moderate(alpha, problem), "beta": _moderate(beta, problem)}
        self._product: PlannedProduct | None = None
        self._sample: Sample | None = None
        self._tried = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._product is not None:
            self._product.close()

    def wrong(self, algorithm: tuple[int, str] | None) -> str | None:
        """Return what is wrong with the algorithm of an id and a name, ``""`` for nothing, ``None`` if untold.

        ``None`` as the algorithm stands for all: nothing is wrong where one of them is right.
        """
        with _library.trial(), contextlib.suppress(RocpyError, MemoryError):
            self._prepare()
            if self._product is None or self._sample is None:
                return None
            offered = self._product.algorithms
            chosen = [one for one in offered if algorithm is None or (one.id, one.name) == algorithm]
            messages = [self._compare(self._product, self._sample, one) for one in chosen]
            return min(messages, key=len) if messages else None
        return None

    def _prepare(self) -> None:
        if self._tried:
            return
        self._tried = True
        self._product = product_of(self._problem, self._options, **self._factors)
        self._product.plan()
        self._sample = sample_of(self._product)

    def _compare(self, product: PlannedProduct, sample: Sample, algorithm: Any) -> str:
        outputs = product.execute(algorithm=algorithm)
        result, additional = outputs if isinstance(outputs, tuple) else (outputs, {})
        return sample.wrong(result, additional)


def _moderate(factor: Any, problem: Problem) -> Any:
    """Return a factor of the same kind that neither overflows nor underflows: 0, 1 or another."""
    if factor is None or problem.compute == "int32":
        return factor if factor in (None, 0, 1) else 2
    number = complex(factor)
    if number in (0, 1):
        return factor
    return 0.75 - 0.5j if number.imag else 0.75
