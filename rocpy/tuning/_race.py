# SPDX-License-Identifier: MIT
"""Which of several candidates is fastest: interleaved trials, losers dropped, a second round to confirm."""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rocpy.errors import ClosedError, RocpyError

# What a challenger must gain over the heuristic's first at least: less than this is within what one machine differs
# from run to run.
MARGIN = 0.03
LEAST_ROUNDS, MOST_ROUNDS = 3, 24
LEAST_PAIRS, MOST_PAIRS = 7, 21
# Parts of the budget by whose end no further candidate is admitted, and the trials end that decide who challenges.
ADMISSION, TRIALS = 0.4, 0.75
# A candidate is dropped when its best trial is this much above the leader's median: more while there are few trials.
HOPELESS = ((6, 1.05), (LEAST_ROUNDS, 1.2))
FAR_BEHIND = 1.5

Measure = Callable[[int], tuple[float, float]]


@dataclass
class Runner:
    """One candidate: its trials with cold and with warm caches, in milliseconds, and why it was dropped."""

    cold: list[float] = field(default_factory=list)
    warm: list[float] = field(default_factory=list)
    dropped: str = ""

    def add(self, times: tuple[float, float]) -> None:
        """Add a trial."""
        self.cold.append(times[0])
        self.warm.append(times[1])

    @property
    def scores(self) -> list[float]:
        """One figure a trial: the geometric mean of its cold and its warm time."""
        return [math.sqrt(cold * warm) for cold, warm in zip(self.cold, self.warm, strict=True)]

    @property
    def score(self) -> float:
        """Their median."""
        return statistics.median(self.scores)


@dataclass
class Verdict:
    """How a race ended: the winner's place, whether that was decided by enough trials, why, and every runner."""

    winner: int
    decided: bool
    reason: str
    runners: list[Runner]
    elapsed_ms: float


def relative_spread(values: Sequence[float]) -> float:
    """Return half the distance of the quartiles, relative to the median."""
    if len(values) < 2:
        return 0.0
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 2 / statistics.median(values)


_TOO_FEW = "too few trials within the budget: the heuristic's first choice is kept"


def undecided(count: int, elapsed_ms: float) -> Verdict:
    """Return how a race ends for which the budget has no time."""
    return Verdict(0, False, _TOO_FEW, [Runner() for _ in range(count)], elapsed_ms)


def race(
    count: int,
    measure: Measure,
    *,
    budget_ms: float,
    clock: Callable[[], float] = time.perf_counter,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Verdict:
    """Race candidates 0 .. count-1, of which 0 is the heuristic's first, who wins unless another is shown to be faster.

    ``measure`` makes one trial and gives its time with cold and with warm caches. An error of its own takes a candidate
    out of the race; that of the first ends it.
    """
    started = clock()
    runners = [Runner() for _ in range(count)]

    def spent() -> float:
        part = (clock() - started) * 1e3 / budget_ms
        if progress is not None:
            progress(min(part, 1.0))
        return part

    def trial(index: int) -> tuple[float, float] | None:
        try:
            return measure(index)
        except ClosedError:  # the product's or its stream's end says nothing of an algorithm
            raise
        except RocpyError as error:
            if index == 0:
                raise
            runners[index].dropped = f"failed: {error}"
            return None

    admit(runners, trial, spent)
    run_rounds(runners, trial, spent, random.Random(seed))
    challenger = _leader(runners)
    runners[0].dropped = ""
    if len(runners[0].cold) < LEAST_ROUNDS:
        reason, winner, decided = _TOO_FEW, 0, False
    elif challenger == 0:
        reason, winner, decided = "the heuristic's first choice is the fastest", 0, True
    else:
        reason, won = confirm(runners, challenger, trial, spent)
        winner, decided = (challenger if won else 0), True
    return Verdict(winner, decided, reason, runners, (clock() - started) * 1e3)


def admit(
    runners: list[Runner], trial: Callable[[int], tuple[float, float] | None], spent: Callable[[], float]
) -> None:
    """Warm candidates up in the heuristic's order while there is time, and drop those far behind; none of it counts."""
    seconds: dict[int, float] = {}
    for index, runner in enumerate(runners):
        if index and spent() > ADMISSION:
            runner.dropped = "not reached within the budget"
            continue
        times = trial(index)
        if times is not None:
            seconds[index] = times[1]  # the first launch of a kernel may load its code; the second does not
    best = min(seconds.values())
    for index, elapsed in seconds.items():
        if index and elapsed > FAR_BEHIND * best:
            runners[index].dropped = "much slower in the first trial"


def run_rounds(
    runners: list[Runner],
    trial: Callable[[int], tuple[float, float] | None],
    spent: Callable[[], float],
    shuffler: random.Random,
) -> None:
    """Measure whoever is left, in an order that changes from round to round, and drop the losers early."""
    for number in range(MOST_ROUNDS):
        alive = [index for index, runner in enumerate(runners) if not runner.dropped]
        if len(alive) == 1 and number >= LEAST_ROUNDS:
            return
        shuffler.shuffle(alive)
        for index in alive:
            if spent() > TRIALS:
                return
            times = trial(index)
            if times is not None:
                runners[index].add(times)
        factor = next((factor for least, factor in HOPELESS if number + 1 >= least), math.inf)
        bar = factor * min(runners[index].score for index in alive if not runners[index].dropped)
        for index in alive:
            if index and not runners[index].dropped and min(runners[index].scores) > bar:
                runners[index].dropped = f"slower after {number + 1} rounds"


def _leader(runners: Sequence[Runner]) -> int:
    counted = [
        index
        for index, runner in enumerate(runners)
        if index == 0 or (not runner.dropped and len(runner.cold) >= LEAST_ROUNDS)
    ]
    return min(counted, key=lambda index: runners[index].score if runners[index].cold else math.inf)


def confirm(
    runners: list[Runner],
    challenger: int,
    trial: Callable[[int], tuple[float, float] | None],
    spent: Callable[[], float],
) -> tuple[str, bool]:
    """Return why, and whether, the challenger takes the first's place: by trials of its own, the two in turn."""
    first, other = runners[0], runners[challenger]
    margin = max(MARGIN, math.hypot(relative_spread(first.scores), relative_spread(other.scores)))
    if first.score / other.score - 1 <= margin:
        return f"no other is faster by more than {margin:.1%}", False
    cold, warm, both = [], [], []
    for number in range(MOST_PAIRS):
        if number >= LEAST_PAIRS and spent() > 1.0:
            break
        times: dict[int, tuple[float, float]] = {}
        for index in (0, challenger) if number % 2 else (challenger, 0):
            measured = trial(index)
            if measured is None:
                return "the fastest failed when it was measured again", False
            times[index] = measured
            runners[index].add(measured)
        cold.append(times[0][0] / times[challenger][0])
        warm.append(times[0][1] / times[challenger][1])
        both.append(math.sqrt(cold[-1] * warm[-1]))
    low, middle, _ = statistics.quantiles(both, n=4)
    if middle - 1 <= margin or low <= 1.0:
        return f"a second round did not confirm a gain of more than {margin:.1%}", False
    for kind, ratios in (("cold", cold), ("warm", warm)):
        if statistics.median(ratios) < 1.0:
            return f"the fastest is slower with {kind} caches", False
    return f"faster by {middle - 1:.1%}, and by more than {margin:.1%} in a second round", True
