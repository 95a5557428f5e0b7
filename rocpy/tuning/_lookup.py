# SPDX-License-Identifier: MIT
"""The stored choices that products look up: those of the process's database."""

from __future__ import annotations

import functools

from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import Problem
from rocpy.tuning._keys import problem_key, scope
from rocpy.tuning.database import Record, current

__all__ = ["DatabaseChoices", "read_choices"]


class DatabaseChoices:
    """Stored choices of :func:`rocpy.tuning.current`."""

    def lookup(self, problem: Problem, options: Options, device: int) -> Record | None:
        """Return the record of a problem on a device, ``None`` where there is none."""
        database = current()
        if database.is_empty():
            return None
        return database.find(scope(device), _key_of(problem, repr(problem.clamp), options))


# A plan looks its problem up several times, and the strategies for a custom epilogue have problems in common.
@functools.lru_cache(maxsize=256)
def _key_of(problem: Problem, clamp: str, options: Options) -> str:  # noqa: ARG001 (bounds of 0.0 and -0.0 are equal)
    return problem_key(problem, options)


def read_choices() -> DatabaseChoices:
    """Return the choices, with files read and all imported that a look-up takes: forks wait for this alone."""
    if not current().is_empty():
        scope()
    return DatabaseChoices()
