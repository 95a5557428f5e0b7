# SPDX-License-Identifier: MIT
"""Runs the case list on the platform at hand and reports each case, with error and algorithm, as JSON-ready data."""

from __future__ import annotations

import dataclasses
import datetime as dt
import platform as machine
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rocpy.blaslt.model.options import Options
from rocpy.blaslt.model.problem import Problem
from rocpy.blaslt.selection import library as _library
from rocpy.blaslt.selection import selftest_record as _selftest_record
from rocpy.errors import InvalidProblemError, UnsupportedError
from rocpy.tuning._retrial import Retrial

from .cases import Case, cases
from .runner import PROVIDERS, keywords, make_operands, provider_of, run_case

Progress = Callable[[int, int, str], None]


def _describe_platform() -> dict[str, Any]:
    import rocpy

    current = rocpy.platform.current()
    return {
        "name": current.name,
        "origin": current.origin,
        "reason": current.reason,
        "is_emulated": current.is_emulated,
        "libraries": [dataclasses.asdict(library) for library in current.libraries.values()],
        "devices": [dataclasses.asdict(device) for device in current.devices],
        "info": current.info,
    }


def _algorithm(case: Case, operands: dict[str, np.ndarray]) -> str:
    import rocpy

    arrays: dict[str, Any] = dict(operands)
    with rocpy.Matmul(arrays.pop("a"), arrays.pop("b"), **arrays, **keywords(case)) as mm:
        algorithms = mm.plan()
        return algorithms[0].name if algorithms else ""


def check_one(case: Case, *, with_algorithm: bool = True) -> dict[str, Any]:
    """Run one case and describe the outcome; an exception becomes the outcome, it is never raised.

    Returns
    -------
    dict
        ``name``, ``case``, ``status`` (``ok``, ``failed``, ``unsupported`` or ``error``), and where they apply
        ``ratio`` (largest error over its bound), ``max_error``, ``algorithm``, ``message``.
    """
    import rocpy

    row: dict[str, Any] = {"name": case.name, "case": case.to_dict()}
    try:
        operands = make_operands(case)
        result = run_case(case, operands=operands)
        row["status"] = "ok" if result.ok else "failed"
        row["ratio"] = result.ratio if np.isfinite(result.ratio) else None
        row["max_error"] = result.max_error if np.isfinite(result.max_error) else None
        if not result.ok:
            row["message"] = result.message
        # A plan takes no bias per row; the function form turns such a product around.
        if with_algorithm and case.bias != "column":
            row["algorithm"] = _algorithm(case, operands)
    except rocpy.UnsupportedError as error:
        row["status"] = "unsupported"
        row["message"] = str(error)
    except Exception as error:  # noqa: BLE001 (a self-test reports whatever a platform does and goes on to the next case)
        row["status"] = "error"
        row["message"] = f"{type(error).__name__}: {error}"
    return row


def try_native(case: Case) -> tuple[str, str, str]:
    """Run a case as one product of the library, whatever is doubted of it; inside ``_library.trial()``.

    Where the device has memory of its own the operands are in it, so that the library meets the case's layouts.

    Returns
    -------
    tuple of str
        The class of products that the case belongs to, ``""`` where the library has no such product; its status,
        ``"ok"``, ``"failed"`` or ``"error"``; and what was wrong.
    """
    import rocpy

    name = ""
    try:
        operands = make_operands(case)
        provider = provider_of(case)
        arrays: dict[str, Any] = {key: PROVIDERS[provider](value) for key, value in operands.items()}
        explanation = rocpy.explain(
            arrays.pop("a"), arrays.pop("b"), **arrays, **keywords(case), options={"fallback": "error"}
        )
        if explanation.algorithm is None:
            return "", "", ""
        name = _library.class_of(explanation.problem, _library.library(0))
        with rocpy.options(fallback="error"):
            result = run_case(case, provider=provider, operands=operands)
    except UnsupportedError:
        return "", "", ""
    except Exception as error:  # noqa: BLE001 (whatever a platform does is an outcome)
        return name, "error", f"{type(error).__name__}: {error}"
    return name, "ok" if result.ok else "failed", result.message


def _refuted(scope: str) -> list[str]:
    """Return what tuning found wrong and what is right when its problem is computed again."""
    names = []
    for name, verdict in _selftest_record.of_tuning(scope).items():
        try:
            problem = Problem.from_json(verdict.problem)
        except InvalidProblemError:
            names.append(name)
            continue
        algorithm, limit, messages = _selftest_record.algorithm_of(name), Options().max_workspace_bytes, []
        for factor in (1.0, 2.0):
            with Retrial(problem, limit, alpha=factor, beta=factor) as retrial:
                messages.append(retrial.wrong(algorithm))
        if messages == ["", ""]:
            names.append(name)
    return names


def record_natives(
    chosen: Sequence[Case], progress: Progress | None = None, total: int = 0
) -> tuple[dict[str, str], str]:
    """Try each case natively and keep, for this library and card, which classes of products are right.

    What tuning found wrong is computed again first, and forgotten where it is right.

    Returns
    -------
    dict, str
        What was wrong, by the name of the case; and the file of the record, empty where it could not be written.
    """
    outcomes: dict[str, list[tuple[str, str, str]]] = {}
    wrong: dict[str, str] = {}
    scope = _library.library(0).scope
    refuted = _refuted(scope)
    if refuted:
        _selftest_record.note(scope, {}, refuted=refuted)
        _library.record_changed()
    with _library.trial():
        for done, case in enumerate(chosen, start=1):
            name, status, message = try_native(case)
            if name:
                outcomes.setdefault(name, []).append((case.name, status, message))
            if name and status != "ok":
                wrong[case.name] = message
            if progress is not None:
                progress(done, total, case.name)
    verdicts = {}
    for name, results in outcomes.items():
        bad = [(case, message) for case, status, message in results if status != "ok"]
        reason = (
            "" if not bad else f"the self-test found {len(bad)} of {len(results)} wrong, as {bad[0][0]}: {bad[0][1]}"
        )
        verdicts[name] = _selftest_record.Verdict(not bad, len(results), reason)
    path = _selftest_record.note(scope, verdicts)
    _library.record_changed()
    return wrong, str(path or "")


def run_selftest(
    tier: str = "quick",
    progress: Progress | None = None,
    *,
    selection: Sequence[Case] | None = None,
    with_algorithms: bool = True,
    record: bool = False,
) -> dict[str, Any]:
    """Compare the current platform with the float64 oracles, case by case.

    Parameters
    ----------
    tier : {'quick', 'full', 'slow'}
        Which case list.
    progress : callable, optional
        Called as ``progress(done, total, name)`` after each case.
    selection : sequence of Case, optional
        Run these cases in place of a tier's.
    with_algorithms : bool
        Plan each case once more to record which algorithm the platform puts first.
    record : bool
        Try each case as one product of the library first, and keep in the user's cache which classes of products are
        right on this machine: those found wrong are composed from then on, those found right are taken although the
        table of releases doubts them.

    Returns
    -------
    dict
        JSON-ready: ``platform``, ``versions``, ``summary``, ``cases``.
    """
    import ml_dtypes

    import rocpy

    chosen = cases(tier) if selection is None else tuple(selection)
    start = time.perf_counter()
    total = len(chosen) * (1 + record)
    wrong, path = record_natives(chosen, progress, total) if record else ({}, "")
    rows = []
    for done, case in enumerate(chosen, start=1 + total - len(chosen)):
        row = check_one(case, with_algorithm=with_algorithms)
        if case.name in wrong:
            row["native"] = wrong[case.name]
        rows.append(row)
        if progress is not None:
            progress(done, total, case.name)
    counts = Counter(row["status"] for row in rows)
    ratios = [row["ratio"] for row in rows if row.get("ratio") is not None]
    return {
        "schema": 1,
        "tier": tier if selection is None else "selection",
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "platform": _describe_platform(),
        "versions": {
            "rocpy": rocpy.__version__,
            "python": machine.python_version(),
            "numpy": np.__version__,
            "ml_dtypes": ml_dtypes.__version__,
        },
        "machine": {"system": machine.system(), "release": machine.release(), "architecture": machine.machine()},
        "summary": {
            "total": len(rows),
            **{status: counts.get(status, 0) for status in ("ok", "failed", "unsupported", "error")},
            **({"wrong_natively": len(wrong)} if record else {}),
            "worst_ratio": max(ratios, default=0.0),
            "elapsed_s": round(time.perf_counter() - start, 3),
        },
        "record": path,
        "cases": rows,
    }
