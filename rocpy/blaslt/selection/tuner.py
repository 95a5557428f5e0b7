# SPDX-License-Identifier: MIT
"""What products ask of tuning, and the tuner that answers: registered from above, made when the first plan asks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import Problem

if TYPE_CHECKING:
    from rocpy.blaslt.model.tuning_report import TuningReport

__all__ = ["Choice", "Tuner", "register", "tuner"]


class Choice(Protocol):
    """An algorithm that was measured to be the fastest for a problem."""

    @property
    def solution(self) -> int:
        """Its number in the library."""
        ...

    @property
    def kernel(self) -> str:
        """The kernel's name; empty if the library does not report one."""
        ...

    @property
    def measured_us(self) -> float:
        """Its time in microseconds."""
        ...

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles of its times, relative to their median."""
        ...

    @property
    def gain(self) -> float:
        """How many times faster it is than the heuristic's first."""
        ...


class Tuner(Protocol):
    """What remembers and measures choices."""

    def lookup(self, problem: Problem, options: Options, device: int) -> Choice | None:
        """Return the stored choice for a problem, ``None`` where there is none."""
        ...

    def on_first_use(
        self, problem: Problem, options: Options, operands: Sequence[Any], arguments: dict[str, Any]
    ) -> None:
        """Measure a problem of the function form, unless a stored choice for it can be used."""
        ...

    def tune(self, product: Any, *, budget_ms: float, max_algorithms: int) -> TuningReport:
        """Measure a planned product's algorithms, store the fastest, and let the product take it."""
        ...


_provider: Callable[[], Tuner] | None = None
_tuner: Tuner | None = None
# Held while the tuner is made, which imports and opens files, and by whoever forks: a child forked in the middle of
# another thread's import would wait for that import for ever.
_first_use = threading.RLock()
os.register_at_fork(before=_first_use.acquire, after_in_parent=_first_use.release, after_in_child=_first_use.release)


def register(provider: Callable[[], Tuner]) -> None:
    """Name the function that makes the tuner when the first plan asks for it: ``import rocpy`` does without it."""
    global _provider
    _provider = provider


def tuner() -> Tuner:
    """Return the tuner."""
    global _tuner
    if _tuner is None:
        with _first_use:
            if _provider is None:
                raise RuntimeError("no tuner is registered; import rocpy first")
            _tuner = _provider()
    return _tuner
