# SPDX-License-Identifier: MIT
"""`rocpy doctor`: checks what commonly goes wrong on ROCm, each with the fix, and runs the self-test."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from rocpy.cli import _checks_platform, _checks_rocm, _checks_system  # noqa: F401  (they register their checks)
from rocpy.cli._application import Arguments, set_run
from rocpy.cli._checks import examine
from rocpy.cli._machine import Machine
from rocpy.cli._output import (
    EXIT_NOT_WRITTEN,
    EXIT_PROBLEM,
    UsageError,
    counted,
    print_findings,
    print_json,
    print_table,
    progress,
    say,
    warn,
    writable,
)
from rocpy.cli._parser import Parser, add_json, choice_of, number_from, path_of

TIERS = ("quick", "full")
DEFAULT_TIER = "quick"
DEFAULT_REPORT = Path("rocpy-selftest.json")


def configure(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "-r",
        "--run-level",
        dest="level",
        metavar="1|2|3",
        type=number_from(int, 1, 3),
        default=2,
        help="1: files and variables only; 2: load the platform (default); 3: compute",
    )
    parser.add_argument(
        "--pid", dest="process", metavar="PID", default="self", help="check the libraries that this process has mapped"
    )
    parser.add_argument(
        "--selftest", action="store_true", help="compare the platform with float64 references, case by case"
    )
    parser.add_argument(
        "--tier",
        type=choice_of(TIERS),
        metavar="|".join(TIERS),
        help=f"size of the self-test (default: {DEFAULT_TIER})",
    )
    parser.add_argument(
        "--report",
        type=path_of,
        metavar="FILE",
        help=f"file for the self-test's report, which can be attached to an issue (default: {DEFAULT_REPORT})",
    )
    add_json(parser)
    set_run(parser, doctor)


def doctor(arguments: Arguments) -> int:
    """Check what commonly goes wrong on ROCm; a failed check or case of the self-test is exit code 1."""
    _require_process(arguments.process)
    for option, value in (("--tier", arguments.tier), ("--report", arguments.report)):
        if value is not None and not arguments.selftest:
            raise UsageError(f"rocpy doctor: {option} is an option of the self-test; add --selftest")
    outcome, report = None, arguments.report or DEFAULT_REPORT
    with writable(report if arguments.selftest else None, "rocpy doctor", "--report"):
        findings = examine(Machine.here(arguments.process), arguments.level)
        if arguments.selftest:
            outcome = _run_selftest(arguments.tier or DEFAULT_TIER, quiet=arguments.as_json, findings=findings)
            outcome["report"] = _write_report(outcome, report)
    if arguments.as_json:
        print_json({"findings": findings, "selftest": outcome and outcome["summary"]})
    else:
        _show(findings)
        if outcome is not None:
            _show_selftest(outcome)
    wrong = any(row["status"] == "problem" for row in findings)
    if wrong or (outcome is not None and failures(outcome)):
        return EXIT_PROBLEM
    return EXIT_NOT_WRITTEN if outcome is not None and outcome["report"] != str(report) else 0


def failures(outcome: dict[str, Any]) -> int:
    """Return how many cases of a self-test failed; what the platform says it does not support is no failure."""
    return sum(row["status"] in {"failed", "error"} for row in outcome["cases"])


def _require_process(process: str) -> None:
    if process == "self":
        return
    reason = "not a number"
    if process.isdecimal():
        try:
            (Path("/proc") / process / "maps").read_bytes()
        except OSError as error:
            reason = str(error.strerror)
        else:
            return
    raise UsageError(
        f"rocpy doctor: cannot see process {process} ({reason}); give the number of a running process of yours"
    )


def _write_report(outcome: dict[str, Any], report: Path) -> str:
    """Write the report and return its file: another one if its own has become unwritable meanwhile."""
    text = json.dumps(outcome, indent=1, default=str) + "\n"
    try:
        report.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = f"cannot write {report} ({error.strerror})"
    else:
        return str(report)
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="rocpy-selftest-", suffix=".json", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
    except OSError as error:
        warn(f"{reason}, nor a temporary file ({error.strerror})")
        return "no file"
    warn(f"{reason}; the report is in {file.name}")
    return file.name


def _show(findings: list[dict[str, str | int]]) -> None:
    print_findings("doctor", findings)
    problems = sum(row["status"] == "problem" for row in findings)
    say(f"{counted(len(findings), 'finding')}, {counted(problems, 'problem')}")


def _run_selftest(tier: str, *, quiet: bool, findings: list[dict[str, str | int]]) -> dict[str, Any]:
    from rocpy.cli.info import describe
    from rocpy.testing import run_selftest

    with progress(shown=not quiet) as advance:
        outcome: dict[str, Any] = run_selftest(tier, advance, record=True)
    # The owner of a GPU sends one file: it says on what the cases ran.
    return {**outcome, "tier": tier, "call_us": _time_of_a_call(), "info": describe(), "findings": findings}


def _time_of_a_call() -> float:
    """Return the microseconds of one small product, from call to result: the median of some hundred."""
    import statistics
    import time

    import numpy as np

    import rocpy

    a = np.ones((32, 32), dtype=np.float32)
    samples = []
    for _ in range(300):
        begin = time.perf_counter()
        rocpy.matmul(a, a)
        samples.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(samples[100:])


def _show_selftest(outcome: dict[str, Any]) -> None:
    wrong = sum("native" in row for row in outcome["cases"])
    if wrong:
        say(
            f"self-test: the library's results of {counted(wrong, 'case')} are wrong; such products are composed from "
            f"now on (rocpy.explain shows which; {outcome['record'] or 'the record was not written'})"
        )
    bad = [
        (row["status"], row["name"], row.get("message", ""))
        for row in outcome["cases"]
        if row["status"] in {"failed", "error"}
    ]
    if bad:
        print_table("self-test: cases that failed", ("", "case", "message"), bad)
    say(f"{_summary(dict(outcome['summary']))}; report in {outcome['report']}")


def _summary(facts: dict[str, Any]) -> str:
    total, ratio, elapsed_s = (facts.pop(name) for name in ("total", "worst_ratio", "elapsed_s"))
    counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in facts.items())
    times = f"{counted(total, 'case')} in {elapsed_s:.1f} s"
    return f"self-test: {times}: {counts}; largest error {ratio:.4g} of its bound"
