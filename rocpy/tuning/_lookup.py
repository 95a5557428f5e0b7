# SPDX-License-Identifier: MIT
"""The tuner that products ask: the database of the process, and measurements of live products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.model.tuning_report import TuningReport
from rocpy.tuning._keys import problem_key, scope
from rocpy.tuning.database import Record, current

__all__ = ["DatabaseTuner", "make_tuner"]


class DatabaseTuner:
    """Stored choices of :func:`rocpy.tuning.current`, and trials on the product's own stream."""

    def lookup(self, problem: Problem, options: Options, device: int) -> Record | None:
        """Return the record of a problem on a device, ``None`` where there is none."""
        database = current()
        return None if database.is_empty() else database.find(scope(device), problem_key(problem, options))

    def on_first_use(
        self, problem: Problem, options: Options, operands: Sequence[Any], arguments: dict[str, Any]
    ) -> None:
        """Measure a problem of the function form, unless a record of it can be used."""
        from rocpy.tuning import _live  # most programs only look choices up

        _live.tune_on_first_use(problem, options, operands, arguments)

    def tune(self, product: Any, *, budget_ms: float, max_algorithms: int) -> TuningReport:
        """Measure a planned product's algorithms, store the choice, and let the product take it."""
        from rocpy.tuning import _live  # most programs only look choices up

        return _live.tune(product, budget_ms=budget_ms, max_algorithms=max_algorithms)


def make_tuner() -> DatabaseTuner:
    """Return the tuner, with the files of the database read."""
    current().is_empty()  # reads the files, and imports what that takes
    return DatabaseTuner()
