# SPDX-License-Identifier: MIT
"""CustomPlanning: the plans of a product with an epilogue of the user's, and the algorithms among which it chooses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rocpy._fp_environment import default_arithmetic
from rocpy._operand import TorchLayerRequired
from rocpy.blaslt.custom.exclusive import exclusive
from rocpy.blaslt.custom.execution import CustomExecution
from rocpy.blaslt.custom.strategies import STRATEGIES, Strategy
from rocpy.blaslt.model import algorithms as _algorithms
from rocpy.blaslt.model.algorithms import LISTED, Algorithm
from rocpy.blaslt.model.executable import Executable
from rocpy.blaslt.model.lowering import lower, with_copies
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.selection import choice as _choice
from rocpy.errors import InvalidProblemError, RocpyError, UnsupportedError

__all__ = ["MOST_CACHED_PLANS", "CustomPlanning"]

# Plans of other layouts, extents or numbers that a product keeps.
MOST_CACHED_PLANS = 8


@dataclasses.dataclass(slots=True)
class _CachedPlan:
    """The plan of a problem: strategies by label, label and position there by an algorithm's rank, the algorithms."""

    strategies: dict[str, Strategy] = dataclasses.field(default_factory=dict)
    positions: dict[int, tuple[str, int]] = dataclasses.field(default_factory=dict)
    absent: dict[str, str] = dataclasses.field(default_factory=dict)
    algorithms: list[Algorithm] | None = None
    chosen: int = 0

    def close(self) -> None:
        """Give back what the strategies have."""
        for strategy in self.strategies.values():
            strategy.close()


class CustomPlanning(CustomExecution):
    """What of a product with an epilogue of the user's is planned; whoever inherits it has the operands."""

    __slots__ = ("_cached_plans", "_inherited", "_key", "absent", "device_index", "epilogue_name", "problem")
    problem: Problem
    device_index: int
    epilogue_name: str
    absent: dict[str, str]
    _cached_plans: dict[Any, _CachedPlan]
    #: The algorithm that was pinned for another number.
    _inherited: Algorithm | None
    #: What the plan is of: the problem and the device.
    _key: tuple[Problem, int]

    def _begin_plans(self) -> None:
        """Begin without any plan."""
        self._cached_plans, self._inherited, self._key = {}, None, (self.problem, self.device_index)
        self._take_plan(_CachedPlan())

    @exclusive
    @default_arithmetic
    def plan(
        self,
        *,
        algorithms: Sequence[Algorithm | Mapping[str, Any] | str] | None = None,
        max_algorithms: int = LISTED,
    ) -> list[Algorithm]:
        """Ask the platform for algorithms of every strategy."""
        self.check_usable()
        self._make_plan(max_algorithms)
        if algorithms is not None:
            chosen = [self._find(one) for one in algorithms]
            self.planned_algorithms = [dataclasses.replace(one, source="pinned") for one in dict.fromkeys(chosen)]
            self._choose_first()
        return list(self.planned_algorithms or ())

    @exclusive
    @default_arithmetic
    def plan_when_needed(self) -> None:
        """Plan the product where it is not planned, with the algorithm that was pinned for another number."""
        self._plan_when_needed()

    def _plan_when_needed(self) -> None:
        if self._strategies:
            return
        pinned = self._inherited
        self._make_plan(LISTED)
        if pinned is not None:
            same = [x for x in self.planned_algorithms or () if (x.id, x.name) == (pinned.id, pinned.name)]
            if same:
                self._pin(same[0])

    def _make_plan(self, requested: int) -> None:
        """Plan the product anew."""
        self._drop_plan()
        refusal: RocpyError | None = None
        plan = _CachedPlan()
        offers: list[Algorithm] = []
        for kind in STRATEGIES:
            try:
                strategy = kind(self)
                offered = strategy.plan(requested)
            except TorchLayerRequired:
                raise
            except (UnsupportedError, InvalidProblemError) as error:
                refusal = error.with_traceback(None)  # whose frames hold what the strategy has begun
                plan.absent[kind.label] = str(error)
                continue
            plan.strategies[strategy.label] = strategy
            for position, one in enumerate(offered):
                name = one.name if strategy.lowering == "native" else f"{one.name} ({strategy.lowering})"
                plan.positions[len(offers)] = (strategy.label, position)
                offers.append(dataclasses.replace(one, name=name, lowering=strategy.lowering, rank=len(offers)))
        self.absent = plan.absent
        if refusal is not None and not plan.strategies:
            raise refusal
        plan.algorithms = self._tuned(offers)
        self._take_plan(plan)
        self._choose_first()

    def _choose_first(self) -> None:
        self.chosen = self.planned_algorithms[0].rank if self.planned_algorithms else 0

    def _tuned(self, candidates: list[Algorithm]) -> list[Algorithm]:
        """Put what was measured to be the fastest first."""
        device = self.device_index
        problem = self.launched
        position, source = _choice.choose(problem, self.options, device, candidates) if candidates else (0, "")
        if source == "tuned":
            chosen = _choice.labelled(candidates[position], source, problem, self.options, device)
            return [chosen, *candidates[:position], *candidates[position + 1 :]]
        return candidates

    def _take_plan(self, plan: _CachedPlan) -> None:
        self._strategies, self._positions, self.absent = plan.strategies, plan.positions, plan.absent
        self.planned_algorithms, self.chosen = plan.algorithms, plan.chosen

    def _drop_plan(self) -> None:
        plan = _CachedPlan(self._strategies)
        self._take_plan(_CachedPlan())
        self._inherited = None
        plan.close()

    def _change_plan(self, before: Any) -> None:
        """Take the plan of what is now the problem, if there is one; that of the problem before goes to those kept."""
        self._inherited = None
        if self._strategies:
            old, new = before[0], self.problem
            if self.is_pinned and dataclasses.replace(old, expression=new.expression) == new:
                self._inherited = self.algorithm
            for strategy in self._strategies.values():
                strategy.release()
            self._cached_plans[before] = _CachedPlan(
                self._strategies, self._positions, self.absent, self.planned_algorithms, self.chosen
            )
            if len(self._cached_plans) > MOST_CACHED_PLANS:
                self._cached_plans.pop(next(iter(self._cached_plans))).close()
        plan = self._cached_plans.pop(self._key, None) or _CachedPlan()
        self._take_plan(plan)
        try:
            self._reset_strategies()
        except RocpyError:
            self._drop_plan()  # the next execution plans without those that refuse the operands

    def _reset_strategies(self) -> None:
        for strategy in self._strategies.values():
            strategy.reset(self)

    def _find(self, algorithm: Any) -> Algorithm:
        listed = self.planned_algorithms or []
        match = _algorithms.find(algorithm, listed, self.device_index, self.problem)
        if match is None:
            raise _algorithms.missing(algorithm, listed)
        return match

    def _pin(self, mine: Algorithm) -> Algorithm:
        pinned = dataclasses.replace(mine, source="pinned")
        self.planned_algorithms = [pinned if one is mine else one for one in self.planned_algorithms or []]
        self.chosen = pinned.rank
        return pinned

    @exclusive
    @default_arithmetic
    def pin(self, algorithm: Any) -> Algorithm:
        """Make execute() take one algorithm from now on, until the next plan."""
        self.check_usable()
        self._plan_when_needed()
        return self._pin(self._find(algorithm))

    def _close_plans(self) -> None:
        """Give back the plans; what they were is still said."""
        for plan in (_CachedPlan(self._strategies), *self._cached_plans.values()):
            plan.close()
        self._strategies, self._cached_plans = {}, {}

    @property
    def strategy(self) -> Strategy:
        """The strategy that execute() chooses by itself."""
        return self._strategies[self.position_of(self.chosen)[0]]

    def executable(self, algorithm: Any = None) -> Executable | None:
        """Return how the function form computes the same, by an algorithm that the user names if it is not ``None``.

        ``None`` where such an algorithm is taken by a planned product only.
        """
        named = algorithm is not None and bool(self.planned_algorithms)
        label, position = self.position_of(self._find(algorithm).rank if named else self.chosen)
        return self._strategies[label].executable(position, named)

    def prepare(self) -> None:
        """Prepare each strategy for its trials."""
        for strategy in self._strategies.values():
            strategy.prepare()

    @property
    def why(self) -> str:
        """How it is computed, in a sentence."""
        return self.strategy.because if self._strategies else ""

    @property
    def launched(self) -> Problem:
        """The problem that is measured: with dense operands where copies are made."""
        problem = self.problem
        if not (problem.m and problem.n and problem.batch):
            return problem
        return with_copies(problem, lower(problem).copies)
