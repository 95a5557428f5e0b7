# SPDX-License-Identifier: MIT
"""The race of candidates with made-up times and a made-up clock: who wins, who is dropped, what the budget stops."""

import random

import pytest

from rocpy.errors import LibraryError
from rocpy.tuning import _race


class Track:
    """Candidates of given speeds; each trial moves the clock by what it takes."""

    def __init__(self, cold, warm=None, *, noise=0.0, failing=(), seed=1):
        self.cold, self.warm = cold, warm or cold
        self.noise, self.failing = noise, failing
        self.random = random.Random(seed)
        self.now = 0.0
        self.order = []

    def clock(self):
        return self.now

    def measure(self, place):
        if place in self.failing:
            raise LibraryError("no kernel")
        times = [kind[place] * (1 + self.noise * abs(self.random.gauss(0, 1))) for kind in (self.cold, self.warm)]
        self.now += sum(times) / 1e3
        self.order.append(place)
        return tuple(times)

    def race(self, budget_ms=1000.0, **more):
        return _race.race(len(self.cold), self.measure, budget_ms=budget_ms, clock=self.clock, **more)


def test_a_clearly_faster_candidate_wins():
    verdict = Track([1.0, 0.9, 0.7, 1.2]).race()
    assert (verdict.winner, verdict.decided) == (2, True)


def test_the_first_stays_when_it_is_the_fastest():
    verdict = Track([1.0, 1.1, 1.3]).race()
    assert (verdict.winner, verdict.decided) == (0, True)
    assert "fastest" in verdict.reason


@pytest.mark.parametrize("gain", [0.0, 0.01, 0.025])
def test_a_gain_within_the_margin_does_not_replace_the_first(gain):
    verdict = Track([1.0, 1.0 / (1 + gain)]).race()
    assert (verdict.winner, verdict.decided) == (0, True)


def test_the_margin_grows_with_the_spread():
    # Seven per cent are enough on a quiet machine, and seldom on one whose times differ by forty.
    assert Track([1.0, 0.93]).race().winner == 1
    verdicts = [Track([1.0, 0.93], noise=0.4, seed=seed).race() for seed in range(40)]
    assert sum(verdict.winner for verdict in verdicts) < 8


def test_equal_candidates_never_replace_the_first_however_noisy():
    for seed in range(60):
        assert Track([1.0] * 6, noise=0.15, seed=seed).race(seed=seed).winner == 0, seed


@pytest.mark.parametrize(("cold", "warm"), [([1.0, 0.6], [1.0, 1.2]), ([1.0, 1.2], [1.0, 0.6])])
def test_what_wins_with_one_state_of_the_caches_and_loses_with_the_other_is_not_taken(cold, warm):
    assert Track(cold, warm).race().winner == 0


def test_losers_are_dropped_early():
    track = Track([1.0, 1.0, 5.0, 1.3])
    verdict = track.race()
    counts = [track.order.count(place) for place in range(4)]
    assert counts[2] == 1, "five times slower: only its warm-up"
    assert counts[2] < counts[3] < counts[1]
    assert "much slower" in verdict.runners[2].dropped
    assert "slower after" in verdict.runners[3].dropped


def test_the_first_is_never_dropped():
    verdict = Track([2.0, 1.0, 1.01]).race()
    assert verdict.winner in (1, 2)
    assert verdict.runners[0].dropped == ""
    assert len(verdict.runners[0].cold) >= _race.LEAST_ROUNDS


def test_warm_ups_are_discarded():
    track = Track([1.0, 1.1])
    verdict = track.race()
    assert [track.order.count(place) for place in (0, 1)] == [len(runner.cold) + 1 for runner in verdict.runners]


def test_trials_are_interleaved_in_changing_order():
    track = Track([1.0] * 4)
    track.race()
    rounds = [tuple(track.order[4 + 4 * i : 8 + 4 * i]) for i in range(8)]
    assert all(sorted(order) == [0, 1, 2, 3] for order in rounds)
    assert len(set(rounds)) > 1


def test_candidates_beyond_the_budget_are_not_reached():
    track = Track([10.0] * 50)
    verdict = track.race(budget_ms=200.0)
    assert "not reached" in verdict.runners[-1].dropped
    assert track.now * 1e3 < 400.0


@pytest.mark.parametrize("budget_ms", [5.0, 50.0, 500.0])
def test_the_budget_is_kept_but_for_the_trials_under_way(budget_ms):
    track = Track([1.0, 0.9, 0.8, 1.05, 2.0])
    verdict = track.race(budget_ms=budget_ms)
    # What is overrun at most: the pairs of a confirmation that was begun.
    assert verdict.elapsed_ms <= budget_ms + 2 * _race.LEAST_PAIRS * 2.0 + 4.0


def test_too_small_a_budget_decides_nothing():
    verdict = Track([100.0, 50.0]).race(budget_ms=20.0)
    assert (verdict.winner, verdict.decided) == (0, False)
    assert "too few trials" in verdict.reason


def test_a_failing_candidate_leaves_the_race():
    verdict = Track([1.0, 0.5, 0.6], failing={1}).race()
    assert verdict.winner == 2
    assert "no kernel" in verdict.runners[1].dropped


def test_the_first_one_failing_ends_it():
    with pytest.raises(LibraryError, match="no kernel"):
        Track([1.0, 0.5], failing={0}).race()


def test_a_gain_that_the_second_round_does_not_show_is_not_taken():
    track = Track([1.0, 0.8])
    rounds = len(track.cold) * (1 + _race.MOST_ROUNDS)

    def measure(place):
        if len(track.order) >= rounds:  # whatever made it look fast is gone
            track.cold = track.warm = [1.0, 1.0]
        return track.measure(place)

    verdict = _race.race(2, measure, budget_ms=1e6, clock=track.clock)
    assert verdict.winner == 0
    assert "second round" in verdict.reason


def test_a_fastest_that_fails_in_the_second_round_is_not_taken():
    track = Track([1.0, 0.5])
    rounds = 2 + _race.LEAST_ROUNDS * 2

    def measure(place):
        if len(track.order) >= rounds:
            track.failing = {1}
        return track.measure(place)

    verdict = _race.race(2, measure, budget_ms=1e6, clock=track.clock)
    assert verdict.winner == 0
    assert "no kernel" in verdict.runners[1].dropped or "failed" in verdict.reason


def test_progress_grows_to_at_most_one():
    seen = []
    Track([1.0, 0.9]).race(budget_ms=30.0, progress=seen.append)
    assert seen == sorted(seen)
    assert 0.0 <= seen[0] <= seen[-1] <= 1.0
