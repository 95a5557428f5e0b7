# SPDX-License-Identifier: MIT
"""`rocpy doctor`: checks what commonly goes wrong on ROCm, each with the fix, and runs the self-test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from rocpy.cli import _checks_platform, _checks_rocm, _checks_system  # noqa: F401  (they register their checks)
from rocpy.cli._checks import examine
from rocpy.cli._machine import Machine
from rocpy.cli._output import EXIT_PROBLEM, JsonFlag, console, errors, findings_table, print_json, table


def doctor(
    level: Annotated[
        int,
        typer.Option(
            "--run-level", "-r", min=1, max=3, help="1: files and variables only; 2: load the platform; 3: compute."
        ),
    ] = 2,
    process: Annotated[str, typer.Option("--pid", help="Look at the libraries that this process has mapped.")] = "self",
    selftest: Annotated[
        bool, typer.Option("--selftest", help="Compare the platform with the oracles, case by case.")
    ] = False,
    tier: Annotated[str, typer.Option("--tier", help="Size of the self-test: quick or full.")] = "quick",
    report: Annotated[Path, typer.Option("--report", help="File for the self-test's report.")] = Path(
        "rocpy-selftest.json"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Check what commonly goes wrong on ROCm, and say how to mend it.

    Leaves with 0 if nothing is wrong, 1 if a check or a case of the self-test failed, 2 for wrong usage.
    """
    findings = examine(Machine.here(process), level)
    outcome = _run_selftest(tier, report, quiet=as_json, findings=findings) if selftest else None
    if as_json:
        print_json({"findings": findings, "selftest": outcome and outcome["summary"]})
    else:
        _show(findings)
        if outcome is not None:
            _show_selftest(outcome, report)
    wrong = any(row["status"] == "problem" for row in findings)
    if wrong or (outcome is not None and failures(outcome)):
        raise typer.Exit(EXIT_PROBLEM)


def failures(outcome: dict[str, Any]) -> int:
    """Return how many cases of a self-test failed; what the platform says it does not support is no failure."""
    return sum(row["status"] in {"failed", "error"} for row in outcome["cases"])


def _show(findings: list[dict[str, str | int]]) -> None:
    console().print(findings_table("doctor", findings))
    problems = sum(row["status"] == "problem" for row in findings)
    console().print(f"{len(findings)} findings, {problems} problem{'' if problems == 1 else 's'}")


def _run_selftest(tier: str, report: Path, *, quiet: bool, findings: list[dict[str, str | int]]) -> dict[str, Any]:
    from rich.progress import Progress

    from rocpy.cli.info import describe
    from rocpy.testing import run_selftest

    with Progress(console=errors(), transient=True, disable=quiet) as bar:
        task = bar.add_task("self-test", total=None)

        def advance(done: int, total: int, name: str) -> None:
            bar.update(task, completed=done, total=total, description=name)

        outcome: dict[str, Any] = run_selftest(tier, advance)
    # The owner of a GPU sends one file: it says on what the cases ran.
    outcome = {**outcome, "info": describe(), "findings": findings}
    report.write_text(json.dumps(outcome, indent=1, default=str) + "\n", encoding="utf-8")
    return outcome


def _show_selftest(outcome: dict[str, Any], report: Path) -> None:
    bad = [
        (row["status"], row["name"], row.get("message", ""))
        for row in outcome["cases"]
        if row["status"] in {"failed", "error"}
    ]
    if bad:
        console().print(table("self-test: cases that failed", ("", "case", "message"), bad))
    summary = ", ".join(f"{count} {name}" for name, count in outcome["summary"].items())
    console().print(f"self-test: {summary}; report in {report}")
