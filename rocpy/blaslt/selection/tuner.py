# SPDX-License-Identifier: MIT
"""What products ask to be measured, and the tuner, which is registered from above.

Planning looks stored choices up in :mod:`rocpy.blaslt.selection.stored` and calls nothing here: a tuner plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.planned_product import PlannedProduct
from rocpy.blaslt.model.problem import Problem

if TYPE_CHECKING:
    from rocpy.blaslt.model.tuning_report import TuningReport

__all__ = ["Tuner", "measure", "register", "tuner"]


class Tuner(Protocol):
    """What measures choices and stores them."""

    def tune_on_first_use(
        self, problem: Problem, options: Options, operands: Sequence[Any], arguments: dict[str, Any]
    ) -> None:
        """Measure a problem of the function form, unless a stored choice for it can be used."""
        ...

    def tune(self, product: PlannedProduct, *, budget_ms: float, max_algorithms: int) -> TuningReport:
        """Measure a planned product's algorithms, store the fastest, and let the product take it."""
        ...


_provider: Callable[[], Tuner] | None = None


def register(provider: Callable[[], Tuner]) -> None:
    """Name the function that gives the tuner: ``import rocpy`` does without it."""
    global _provider
    _provider = provider


def tuner() -> Tuner:
    """Return the tuner."""
    if _provider is None:
        raise RuntimeError("no tuner is registered; import rocpy first")
    return _provider()


def measure(problem: Problem, options: Options, operands: Sequence[Any], arguments: dict[str, Any]) -> None:
    """Measure a problem that the function form plans for the first time, unless a record of it can be used."""
    if options.reproducible:
        return
    tuner().tune_on_first_use(problem, options, operands, arguments)
