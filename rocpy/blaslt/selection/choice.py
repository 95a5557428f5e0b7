# SPDX-License-Identifier: MIT
"""Which of the platform's algorithms a product takes: the heuristic's first, or what was measured before."""

from __future__ import annotations

import dataclasses
import os
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from rocpy import platform
from rocpy._messages.log import info
from rocpy.blaslt.model.algorithms import Algorithm
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.selection.stored import Choice, stored_choices
from rocpy.blaslt.selection.trials import OVERRIDDEN, is_trial
from rocpy.errors import InvalidProblemError

# What a product does about tuning: nothing; take what was measured; measure what was not.
OFF, USE, MEASURE = 0, 1, 2
# Algorithms that are asked for where one is to be found again or a best one to be measured: more than the heuristic
# ranks, so that hipBLASLt walks its library, which takes milliseconds.
LISTED = 32
# All that a library has, for one that the user names.
ALL = 1 << 14

_lock = threading.Lock()
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
_process_mode: int | None = None
_environment_mode: int | None = None
_override: ContextVar[int | None] = ContextVar("rocpy_autotune", default=None)
# Counts what makes kept plans out of date: a record stored, another mode, a recorder that wants to see every problem.
_generation = 0
# process_key_word() as it was last asked for, -1 after a change: read by the per-call path at its address.
WORD = array("q", [-1])
_recorders: list[Callable[[Problem], None]] = []
# Gives the algorithms, by id and name, that gave wrong numbers for products like one on a device of this machine.
_known_wrong: Callable[[Problem, int], frozenset[tuple[int, str]]] | None = None


def mode() -> int:
    """Return what a product made here does about tuning."""
    own = _override.get()
    return _shared_mode() if own is None else own


def _shared_mode() -> int:
    global _environment_mode
    if _process_mode is not None:
        return _process_mode
    if _environment_mode is None:
        _environment_mode = _mode_of(platform.environment("ROCPY_AUTOTUNE"))
    return _environment_mode


def _mode_of(text: str) -> int:
    return {"": USE, "0": OFF, "1": MEASURE}[text]


def process_mode() -> int | None:
    """Return the mode that the process was put in, ``None`` for that of the environment."""
    return _process_mode


def set_process_mode(value: int | None) -> None:
    """Put the whole process in a mode."""
    global _process_mode
    _process_mode = value
    changed()


@contextmanager
def override(autotune: object) -> Iterator[None]:
    """Measure, or neither measure nor use what was measured, in this thread or task."""
    if not isinstance(autotune, bool):
        raise InvalidProblemError(f"autotune: got {autotune!r}, expected True, False or None")
    OVERRIDDEN[:] = [True]
    token = _override.set(MEASURE if autotune else OFF)
    try:
        yield
    finally:
        _override.reset(token)


def key_word() -> int:
    """Return what a plan's key holds of tuning: kept plans whose choice may be out of date are not found again."""
    return _generation << 3 | is_trial() << 2 | mode()


def process_key_word() -> int:
    """Return it for products that say nothing of their own."""
    return _generation << 3 | _shared_mode()


def measures(word: int) -> bool:
    """Whether a product with this word in its key is measured when it is planned."""
    return word & 3 == MEASURE


def changed() -> None:
    """Let every kept plan be chosen again when it is next asked for."""
    global _generation
    with _lock:
        _generation += 1
        WORD[0] = -1


def add_recorder(recorder: Callable[[Problem], None]) -> None:
    """Show every problem that is planned from now on to a function; those with a kept plan are planned again."""
    with _lock:
        _recorders.append(recorder)
    changed()


def remove_recorder(recorder: Callable[[Problem], None]) -> None:
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

    The place is -1 where each of them gave wrong numbers before.
    """
    for recorder in tuple(_recorders):
        recorder(problem)
    wrong = wrong_ones(problem, device)
    right = [place for place, one in enumerate(algorithms) if (one.id, one.name) not in wrong]
    record = stored(problem, options, device)
    place = None if record is None else place_of(record, algorithms)
    source = "heuristic"
    if place is not None and place in right:
        source = "tuned"
    else:
        place = right[0] if right else -1
    if place >= 0:
        info("planned %s: %s of %d, %s", problem, algorithms[place], len(algorithms), source)
    return place, source


def place_of(record: Choice, algorithms: Sequence[Algorithm]) -> int | None:
    """Return where a record's kernel is among the algorithms of the live problem; ``None``: the record is stale.

    The list holds what the library supports for exactly this problem. A solution index alone means nothing, so that
    the kernel's name must be the same too; where the library tells no names, the record's scope already made sure that
    it is the same build.
    """
    for place, algorithm in enumerate(algorithms):
        if algorithm.id == record.solution and algorithm.name == record.kernel:
            return place
    return None
