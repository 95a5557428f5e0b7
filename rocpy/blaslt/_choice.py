# SPDX-License-Identifier: MIT
"""Which of the platform's algorithms a product takes, and where that choice came from."""

from __future__ import annotations

from collections.abc import Sequence

from rocpy.blaslt._options import Options
from rocpy.blaslt.algorithms import Algorithm
from rocpy.blaslt.problem import Problem


def candidates_wanted(options: Options) -> int:
    """Return how many algorithms the heuristic is asked for: more than it ranks costs a walk of the whole library."""
    return 1


def choose(
    problem: Problem, options: Options, packed: bool, device: int, algorithms: Sequence[Algorithm]
) -> tuple[int, str]:
    """Return the place of the algorithm to launch and where the choice came from; called once for each plan."""
    return 0, "heuristic"
