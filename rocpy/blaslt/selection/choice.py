# SPDX-License-Identifier: MIT
"""Which of the platform's algorithms a product takes: the heuristic's first, or what was measured before."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence

from rocpy._locks import hold_over_forks
from rocpy._messages.log import info
from rocpy.blaslt.model.algorithms import LISTED, Algorithm
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.selection.stored import Choice, stored_choices
from rocpy.blaslt.selection.tuning_state import OFF, changed, is_trial, mode

_lock = threading.Lock()
hold_over_forks(_lock)
_recorders: list[Callable[[Problem, Options], None]] = []
# Gives the algorithms, by id and name, that gave wrong numbers for products like one on a device of this machine.
_known_wrong: Callable[[Problem, int], frozenset[tuple[int, str]]] | None = None


def add_recorder(recorder: Callable[[Problem, Options], None]) -> None:
    """Show every problem that is planned from now on, with its options; those with a cached plan are planned again."""
    with _lock:
        _recorders.append(recorder)
    changed()


def remove_recorder(recorder: Callable[[Problem, Options], None]) -> None:
    """Show it no more."""
    with _lock:
        _recorders.remove(recorder)


def stored(problem: Problem, options: Options, device: int) -> Choice | None:
    """Return the record of a problem on a device, where one may be used."""
    if options.reproducible or mode() == OFF:
        return None
    return stored_choices().lookup(problem, options, device)


def labelled(algorithm: Algorithm, source: str, problem: Problem, options: Options, device: int) -> Algorithm:
    """Return the chosen algorithm with the source of the choice, and with its time where that was measured."""
    record = stored(problem, options, device) if source == "tuned" else None
    measured = None if record is None else record.measured_us / 1e3
    return dataclasses.replace(algorithm, source=source, elapsed_ms=measured)


def set_known_wrong(function: Callable[[Problem, int], frozenset[tuple[int, str]]]) -> None:
    """Say who knows which algorithms gave wrong numbers for products like one on a device."""
    global _known_wrong
    _known_wrong = function


def wrong_ones(problem: Problem, device: int) -> frozenset[tuple[int, str]]:
    """Return id and name of the algorithms that are not chosen for a problem, whatever the heuristic says."""
    return frozenset() if _known_wrong is None else _known_wrong(problem, device)


def candidates_wanted(problem: Problem, options: Options, device: int) -> int:
    """Return how many algorithms the heuristic is asked for."""
    return 1 if stored(problem, options, device) is None and not wrong_ones(problem, device) else LISTED


def choose(problem: Problem, options: Options, device: int, algorithms: Sequence[Algorithm]) -> tuple[int, str]:
    """Return the place of the algorithm to launch and where the choice came from; called once for each plan.

    The place is -1 where each of them gave wrong numbers before, and none is on trial.
    """
    for recorder in tuple(_recorders):
        recorder(problem, options)
    wrong = wrong_ones(problem, device)
    right = [position for position, one in enumerate(algorithms) if (one.id, one.name) not in wrong]
    record = stored(problem, options, device)
    position = None if record is None else position_of(record, algorithms)
    source = "heuristic"
    if position is not None and position in right:
        source = "tuned"
    else:
        position = right[0] if right else 0 if algorithms and is_trial() else -1
    if position >= 0:
        info("planned %s: %s of %d, %s", problem, algorithms[position], len(algorithms), source)
    return position, source


def position_of(record: Choice, algorithms: Sequence[Algorithm]) -> int | None:
    """Return where a record's kernel is among the algorithms of the live problem; ``None``: the record is stale.

    The list holds what the library supports for exactly this problem. A solution index alone means nothing, so that
    the kernel's name must be the same too; where the library tells no names, the record's scope already made sure that
    it is the same build.
    """
    for position, algorithm in enumerate(algorithms):
        if algorithm.id == record.solution and algorithm.name == record.kernel:
            return position
    return None
