# SPDX-License-Identifier: MIT
"""Tuning of a live product: trials on its own stream and scratch results, the choice made, stored and put to use."""

from __future__ import annotations

import contextlib
import dataclasses
import numbers
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rocpy._fp_environment import default_arithmetic
from rocpy._locks import hold_over_forks
from rocpy._messages.log import info
from rocpy._messages.modules import imported
from rocpy.blaslt.arrays.copies import contiguous
from rocpy.blaslt.front.planned import planned_product
from rocpy.blaslt.model.algorithms import LISTED
from rocpy.blaslt.model.lowering import lower
from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.planned_product import PlannedProduct
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.model.scale_arguments import scale_keywords
from rocpy.blaslt.model.tuning_report import Trial, TuningReport
from rocpy.blaslt.selection import choice as _choice
from rocpy.blaslt.selection import tuning_state as _tuning_state
from rocpy.blaslt.selection.stored import Choice
from rocpy.errors import (
    InvalidProblemError,
    RocpyError,
    UnsupportedError,
    warn,
)
from rocpy.runtime.handles.stream_handle import hold_stream
from rocpy.tuning import _race
from rocpy.tuning._files import LAST_DATE, SHORTEST_US, Record
from rocpy.tuning._keys import library_tunes_itself, problem_key, scope
from rocpy.tuning._retrial import Retrial
from rocpy.tuning._timing import is_capturing
from rocpy.tuning._trials import (
    device_and_stream_of,
    progress_bar,
    takes_longer,
    trials,
    verified,
    without_wrong_first,
)
from rocpy.tuning._verification import sample_of
from rocpy.tuning.database import current

DEFAULT_BUDGET_MS = 200.0

# One tuning at a time: two would measure each other.
_lock = threading.RLock()
hold_over_forks(_lock)
_budget_ms = DEFAULT_BUDGET_MS
_clock = time.perf_counter
_warned_of: set[str] = set()


def set_budget_ms(budget_ms: float) -> float:
    """Set what the function form may spend on one problem, and return what it was."""
    global _budget_ms
    previous, _budget_ms = _budget_ms, checked_budget(budget_ms)
    return previous


def checked_budget(budget_ms: Any) -> float:
    """Return a budget, or refuse it."""
    try:
        milliseconds = (
            0.0 if isinstance(budget_ms, bool) or not isinstance(budget_ms, numbers.Real) else float(budget_ms)
        )
    except OverflowError:
        raise InvalidProblemError(
            f"budget_ms: got a number ({type(budget_ms).__name__}) beyond all floats, expected milliseconds above 0"
        ) from None
    if not milliseconds > 0:
        raise InvalidProblemError(f"budget_ms: got {budget_ms!r}, expected a number of milliseconds above 0")
    return milliseconds


def refuse_double_tuning() -> None:
    """Refuse if hipBLASLt is configured to prefer choices of its own to its heuristic."""
    variable = library_tunes_itself()
    if variable is not None:
        raise UnsupportedError(
            f"{variable} is set, so that hipBLASLt overrides its own choices, and rocpy would measure and store what "
            "that file says; unset it to tune here, or leave autotuning off"
        )


@default_arithmetic
def tune(
    product: PlannedProduct,
    *,
    budget_ms: float = DEFAULT_BUDGET_MS,
    max_algorithms: int = LISTED,
    force: bool = True,
    measure: Callable[[int], tuple[float, float]] | None = None,
    clock: Callable[[], float] | None = None,
) -> TuningReport:
    """Measure a planned product's algorithms, store the choice, and let the product take it.

    ``force=False`` takes a stored choice that can be used instead. ``measure`` and ``clock`` stand in for the device in
    tests.
    """
    budget_ms = checked_budget(budget_ms)
    refuse_double_tuning()
    if product.options.reproducible:
        raise UnsupportedError(
            f"autotune: options(reproducible={product.options.reproducible!r}) guarantees bitwise results that a "
            "measured choice could change; tune without it"
        )
    # Another thread may close the product's Stream: the next trial raises, and the handle is good until then.
    with _lock, contextlib.nullcontext(hold_stream(product.stream)), _unrecorded():
        clock = clock or _clock
        started = clock()
        algorithms = product.plan(max_algorithms=max_algorithms)
        if product.unfused is not None:
            return _tune_native(product, budget_ms, max_algorithms, force, measure, clock)
        device, stream = device_and_stream_of(product)
        if is_capturing(stream):
            raise UnsupportedError(
                "autotune: a stream is being captured into a graph, during which nothing can be timed; tune before the "
                "capture"
            )
        problem, options = product.launched, product.options
        if not algorithms or problem.k == 0:
            raise InvalidProblemError(f"autotune: there is nothing to compute in {problem}")
        if not force and product.choice[1] == "tuned":
            record = _choice.stored(problem, options, device)
            if record is not None:  # another thread may have cleared the database, or switched tuning off, meanwhile
                return _remembered(problem, algorithms[0], record, _file_of(problem, options, device))
        by_rank = sorted(algorithms, key=lambda algorithm: algorithm.rank)
        if measure is None and takes_longer(product, by_rank[0], device, stream, budget_ms):
            # What comes before the trials, the check of the results above all, takes as long as several products.
            verdict = _race.undecided(len(by_rank), (clock() - started) * 1e3)
            return _conclude(product, problem, options, device, by_rank, verdict)
        sample = sample_of(product)
        with contextlib.ExitStack() as scratch:
            retrial = scratch.enter_context(Retrial(problem, options.max_workspace_bytes, **product.scalars()))
            by_rank, wrong = without_wrong_first(product, by_rank, sample, retrial)
            if measure is None:
                resident = _resident(product)
                if resident is not product:
                    scratch.callback(resident.close)
                    resident.plan(max_algorithms=max_algorithms)
                resident.prepare()
                measure = scratch.enter_context(trials(resident, device, stream, by_rank))
            measure = verified(product, by_rank, measure, sample, retrial)
            progress = scratch.enter_context(progress_bar(str(problem)))
            verdict = _race.race(len(by_rank), measure, budget_ms=budget_ms, clock=clock, progress=progress)
        if wrong and verdict.runners[verdict.winner].cold:  # else the budget ended before any trial: nothing to store
            verdict = dataclasses.replace(
                verdict, decided=True, reason=f"the heuristic's first choice is wrong; {verdict.reason}"
            )
        report = _conclude(product, problem, options, device, by_rank, verdict)
        report = dataclasses.replace(report, trials=(*report.trials, *wrong), elapsed_ms=(clock() - started) * 1e3)
        info(
            "tuned %s: %s, %.2f times the heuristic's first choice, %s (%.0f ms)",
            problem, report.best, report.gain, report.reason, report.elapsed_ms,
        )  # fmt: skip
        return report


def _unrecorded() -> contextlib.AbstractContextManager[Any]:
    """Return a block without gradients: the products that are measured give their results to nobody."""
    torch = imported("torch")
    unrecorded: contextlib.AbstractContextManager[Any] = contextlib.nullcontext() if torch is None else torch.no_grad()
    return unrecorded


def _tune_native(product: PlannedProduct, *arguments: Any) -> TuningReport:
    """Tune the native product inside one that the library cannot fuse; the rest of it is no choice."""
    budget_ms, max_algorithms, force, measure, clock = arguments
    native = product.unfused.native
    report = tune(native, budget_ms=budget_ms, max_algorithms=max_algorithms, force=force, measure=measure, clock=clock)
    listed = [dataclasses.replace(one, lowering="unfused") for one in native.algorithms]
    product.select(listed, listed[0].rank)
    return report


def _resident(product: PlannedProduct) -> PlannedProduct:
    """Return a product to measure in this one's place: itself, unless each of its executions copies operands."""
    if product.problem.expression or (product.prototype is None and not product.copies):
        return product  # each way to compute a custom epilogue has its own copies
    operands, problem = dict(product.operand_arrays), product.problem
    for name in product.copies:
        operands[name] = contiguous(operands[name], problem.result_shape if name == "c" else None)
    return planned_product(
        operands["a"],
        operands["b"],
        operands["c"],
        bias=operands["bias"],
        aux=operands["aux"],
        epilogue=problem.epilogue,
        clamp=problem.clamp,
        dtype=problem.dtype,
        compute=problem.compute,
        options=product.options,
        stream=product.stream,
        **scale_keywords(product.scale_values, operands["b"]),
    )


def _conclude(
    product: PlannedProduct,
    problem: Problem,
    options: Options,
    device: int,
    by_rank: Sequence[Any],
    verdict: _race.Verdict,
) -> TuningReport:
    trials = [_trial(algorithm, runner) for algorithm, runner in zip(by_rank, verdict.runners, strict=True)]
    first, best = verdict.runners[0], verdict.runners[verdict.winner]
    rest = [trial for number, trial in enumerate(trials) if number != verdict.winner]
    rest.sort(key=lambda trial: (trial.algorithm.elapsed_ms is None, trial.algorithm.elapsed_ms, trial.algorithm.rank))
    ordered = (trials[verdict.winner], *rest)
    gain = first.score / best.score if verdict.winner else 1.0
    source = "tuned" if verdict.decided else "heuristic"
    ordered = (
        dataclasses.replace(ordered[0], algorithm=dataclasses.replace(ordered[0].algorithm, source=source)),
        *rest,
    )
    product.select([trial.algorithm for trial in ordered], ordered[0].algorithm.rank)
    stored = ""
    if verdict.decided:
        chosen = ordered[0].algorithm
        database = current()
        scope_key, key = scope(device), problem_key(problem, options)
        old = database.find(scope_key, key)
        record = Record(
            scope=scope_key,
            key=key,
            problem=problem.to_json(),
            kernel=chosen.name,
            solution=chosen.id,
            workspace_bytes=chosen.workspace_bytes,
            # A clock may be too coarse for a product.
            measured_us=max(statistics.median(best.cold) * 1e3, SHORTEST_US),
            spread=_race.relative_spread(best.cold),
            baseline_us=max(statistics.median(first.cold) * 1e3, SHORTEST_US),
            # Another machine's clock may be ahead; what was measured now is the newer one.
            date=min(max(time.time(), 0.0 if old is None else old.date + 1e-3), LAST_DATE),
        )
        database.store(record)
        stored = _file_of(problem, options, device)
        _tuning_state.changed()
    return TuningReport(problem, ordered, verdict.decided, verdict.reason, gain, verdict.elapsed_ms, stored)


def _trial(algorithm: Any, runner: _race.Runner) -> Trial:
    measured = statistics.median(runner.cold) if runner.cold else None
    return Trial(
        algorithm=dataclasses.replace(algorithm, elapsed_ms=measured),
        warm_ms=statistics.median(runner.warm) if runner.warm else None,
        spread=_race.relative_spread(runner.cold),
        trials=len(runner.cold),
        dropped=runner.dropped,
    )


def _file_of(problem: Problem, options: Options, device: int) -> str:
    """Return the file that stores a problem's choice; empty for one in memory only."""
    return str(current().file_of(scope(device), problem_key(problem, options)) or "")


def _remembered(problem: Problem, algorithm: Any, record: Choice, stored: str) -> TuningReport:
    chosen = dataclasses.replace(algorithm, elapsed_ms=record.measured_us / 1e3)
    return TuningReport(
        problem,
        (Trial(chosen, None, record.spread, 0, ""),),
        decided=True,
        reason="it was measured before",
        gain=record.gain,
        elapsed_ms=0.0,
        stored=stored,
        source="tuned",
    )


def tune_on_first_use(problem: Problem, options: Options, operands: Sequence[Any], arguments: dict[str, Any]) -> None:
    """Tune a problem of the function form, unless a stored choice of it can be used; the product itself follows."""
    if problem.k == 0 or 0 in problem.result_shape or lower(problem).copies:
        return  # nothing to measure; or the operands are copied, and the product of the copies comes here again
    if library_tunes_itself() is not None:
        _warn_once("double", refuse_double_tuning)
        return
    a, b, c, bias, aux, _ = operands
    try:
        with _lock, planned_product(a, b, c, bias=bias, aux=aux, options=options, **arguments) as product:
            product.plan()
            if product.unfused is not None or is_capturing(device_and_stream_of(product)[1]):
                return  # the native product of an unfused one comes here by itself
            tune(product, budget_ms=_budget_ms, force=False)
    except RocpyError as error:
        # What would fail for the user's product fails there, with the message it deserves.
        warn(f"autotuning {problem} failed, the heuristic decides: {error}")


def _warn_once(topic: str, refusal: Callable[[], None]) -> None:
    if topic in _warned_of:
        return
    _warned_of.add(topic)
    try:
        refusal()
    except RocpyError as error:
        warn(str(error))
