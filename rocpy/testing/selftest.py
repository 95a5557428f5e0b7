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

from .cases import Case, cases
from .runner import keywords, make_operands, run_case

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
        "info": dict(current.info),
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


def run_selftest(
    tier: str = "quick",
    progress: Progress | None = None,
    *,
    selection: Sequence[Case] | None = None,
    with_algorithms: bool = True,
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

    Returns
    -------
    dict
        JSON-ready: ``platform``, ``versions``, ``summary``, ``cases``.
    """
    import ml_dtypes

    import rocpy

    chosen = cases(tier) if selection is None else tuple(selection)
    start = time.perf_counter()
    rows = []
    for done, case in enumerate(chosen, start=1):
        rows.append(check_one(case, with_algorithm=with_algorithms))
        if progress is not None:
            progress(done, len(chosen), case.name)
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
            "worst_ratio": max(ratios, default=0.0),
            "elapsed_s": round(time.perf_counter() - start, 3),
        },
        "cases": rows,
    }
