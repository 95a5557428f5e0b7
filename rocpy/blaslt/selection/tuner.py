# SPDX-License-Identifier: MIT
"""What products ask to be measured, what the tuner asks of a product, and the tuner: registered from above.

Planning looks stored choices up in :mod:`rocpy.blaslt.selection.stored` and calls nothing here: a tuner plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.model.scale_arguments import ScaleArguments

if TYPE_CHECKING:
    from rocpy.blaslt.model.algorithms import Algorithm
    from rocpy.blaslt.model.tuning_report import TuningReport

__all__ = ["Tunable", "Tuner", "measure", "register", "tuner"]


class Tunable(Protocol):
    """A planned product as the tuner sees it: operations below those that call the tuner."""

    @property
    def problem(self) -> Problem:
        """The validated problem."""
        ...

    @property
    def launched(self) -> Problem:
        """The problem that is measured."""
        ...

    @property
    def options(self) -> Options:
        """The options in force."""
        ...

    @property
    def stream(self) -> Any:
        """The stream of the trials, as the user gave it."""
        ...

    @property
    def operand_arrays(self) -> dict[str, Any]:
        """The operands by name."""
        ...

    @property
    def scale_values(self) -> ScaleArguments | None:
        """The scales, as the user gave them."""
        ...

    def scalars(self) -> dict[str, Any]:
        """Return alpha and beta as keyword arguments."""
        ...

    @property
    def choice(self) -> tuple[Algorithm | None, str]:
        """The algorithm that is taken, and where the choice came from."""
        ...

    @property
    def unfused(self) -> Any:
        """How it is composed, ``None`` where it is not; the native product inside is tuned instead."""
        ...

    def _list(self, max_algorithms: int) -> list[Algorithm]:
        """Plan, and return the algorithms among which it chooses."""
        ...

    def execute(self, *, out: Any = None, algorithm: Any = None) -> Any:
        """Compute the product by an algorithm."""
        ...

    def _select(self, algorithms: list[Algorithm], rank: int) -> None:
        """Take the algorithm of a rank from now on, and list the algorithms in this order."""
        ...

    def _prepare(self) -> None:
        """Do what the first execution of an algorithm would do besides computing."""
        ...

    def close(self) -> None:
        """Let go of the plan and the operands."""
        ...


class Tuner(Protocol):
    """What measures choices and stores them."""

    def tune_on_first_use(
        self, problem: Problem, options: Options, operands: Sequence[Any], arguments: dict[str, Any]
    ) -> None:
        """Measure a problem of the function form, unless a stored choice for it can be used."""
        ...

    def tune(self, product: Any, *, budget_ms: float, max_algorithms: int) -> TuningReport:
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
