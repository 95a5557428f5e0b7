# SPDX-License-Identifier: MIT
"""Which of the platform's algorithms a product takes, and where that choice came from."""

from __future__ import annotations

from collections.abc import Sequence

from rocpy.blaslt._options import Options
from rocpy.blaslt.algorithms import Algorithm
from rocpy.blaslt.problem import Problem


def candidates_wanted(options: Options) -> int:  # noqa: ARG001 (every option may matter to a choice)
    """Return how many algorithms the heuristic is asked for: more than it ranks costs a walk of the whole library."""
    return 1


def choose(
    problem: Problem,  # noqa: ARG001 (what a choice may depend on; the heuristic's first depends on none of it)
    options: Options,  # noqa: ARG001
    packed: bool,  # noqa: ARG001
    device: int,  # noqa: ARG001
    algorithms: Sequence[Algorithm],  # noqa: ARG001
) -> tuple[int, str]:
    """Return the place of the algorithm to launch and where the choice came from; called once for each plan."""
    return 0, "heuristic"
