# SPDX-License-Identifier: MIT
"""Stored choices that products look up: who has them is registered from above, and made when the first plan asks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from rocpy._locks import hold_over_forks
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import Problem

__all__ = ["Choice", "StoredChoices", "register", "stored_choices"]


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


class StoredChoices(Protocol):
    """What remembers choices."""

    def lookup(self, problem: Problem, options: Options, device: int) -> Choice | None:
        """Return the stored choice for a problem, ``None`` where there is none."""
        ...


_provider: Callable[[], StoredChoices] | None = None
_choices: StoredChoices | None = None
# Held while they are read, which imports and opens files, and by whoever forks: a child forked in the middle of
# another thread's import would wait for that import for ever.
_first_use = threading.RLock()
hold_over_forks(_first_use)


def register(provider: Callable[[], StoredChoices]) -> None:
    """Name the function that reads them when the first plan asks: ``import rocpy`` does without it."""
    global _provider
    _provider = provider


def stored_choices() -> StoredChoices:
    """Return the stored choices."""
    global _choices
    if _choices is None:
        with _first_use:
            if _provider is None:
                raise RuntimeError("no stored choices are registered; import rocpy first")
            _choices = _provider()
    return _choices
