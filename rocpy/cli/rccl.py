# SPDX-License-Identifier: MIT
"""`rocpy rccl`: what the communicators of this machine do, who is behind, and what is wrong with the setting."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from rocpy.cli._checks import examine
from rocpy.cli._machine import Machine
from rocpy.cli._output import (
    EXIT_NO_PLATFORM,
    EXIT_PROBLEM,
    JsonFlag,
    console,
    error_message,
    findings_table,
    print_json,
    table,
)
from rocpy.errors import RcclError, RocpyError

AddressOption = Annotated[
    str | None, typer.Option("--address", help="host:port of RCCL's RAS server; default NCCL_RAS_ADDR.")
]
TimeoutOption = Annotated[float, typer.Option("--timeout-s", help="How long to wait for an answer.")]


def application() -> typer.Typer:
    """Return the commands under `rocpy rccl`."""
    app = typer.Typer(no_args_is_help=True, help="Communicators: what they do, who is behind, what is wrong.")
    for command in (status, trace, check):
        app.command(command.__name__)(command)
    return app


def _document(address: str | None, timeout_s: float) -> dict[str, Any]:
    from rocpy.rccl import machine_status

    try:
        return machine_status(address=address, timeout_s=timeout_s)
    except RcclError as error:
        error_message(error)
        raise typer.Exit(EXIT_PROBLEM) from None
    except RocpyError as error:
        error_message(error, "`rocpy doctor` says what is wrong with the platform")
        raise typer.Exit(EXIT_NO_PLATFORM) from None


def status(address: AddressOption = None, timeout_s: TimeoutOption = 10.0, as_json: JsonFlag = False) -> None:
    """Show every communicator of this machine's jobs, and each rank's calls.

    Leaves with 0 if all is well, 1 if a rank is missing, behind, stopped or failed, or there is no RAS server, 3 if no
    platform can be used.
    """
    from rocpy.rccl import diagnose

    document = _document(address, timeout_s)
    problems = diagnose(document)
    if as_json:
        print_json({**document, "problems": problems})
    else:
        _show(document, problems)
    if problems:
        raise typer.Exit(EXIT_PROBLEM)


def _show(document: dict[str, Any], problems: list[str]) -> None:
    if not document["communicators"]:
        console().print("no communicator is alive")
    for one in document["communicators"]:
        rows = []
        for row in one["ranks"]:
            calls = ", ".join(f"{name} {count}" for name, count in row["collective_counts"].items() if count)
            rows.append((row["rank"], f"{row['host']}:{row['pid']}", row["cuda_dev"], _deed(row), calls))
        rows += [
            (row["rank"], f"{row['host']}:{row['pid']}", row["cuda_dev"], "missing", "") for row in one["missing_ranks"]
        ]
        title = f"communicator {one['hash']} {one.get('name', '')}, {one['size']} ranks"
        console().print(table(title, ("rank", "process", "device", "last", "calls"), sorted(rows)))
    for problem in problems:
        console().print(f"! {problem}", markup=False)


def _deed(row: dict[str, Any]) -> str:
    last = row.get("last")
    if not last or last.get("op", "none") == "none":
        return ""
    return f"{'in' if last['busy'] else 'did'} {last['op']} number {last['seq']}, {last['count']} of {last['dtype']}"


def trace(
    seconds: Annotated[float, typer.Option("--seconds", help="How long to watch.")] = 2.0,
    interval_s: Annotated[float, typer.Option("--interval-s", help="How long between two looks.")] = 0.5,
    address: AddressOption = None,
    timeout_s: TimeoutOption = 10.0,
    as_json: JsonFlag = False,
) -> None:
    """Watch the ranks' calls for a while, and say which of them stand still.

    Leaves with 0 if all advance or nothing waits, 1 if a rank stands still in a call, or as `rocpy rccl status` does.
    """
    from rocpy.rccl import diagnose

    looks = [_look(_document(address, timeout_s))]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(max(0.01, interval_s))
        looks.append(_look(_document(address, timeout_s)))
    rows = []
    for key, last in looks[-1].items():
        first = looks[0].get(key)
        advanced = None if first is None else last["total"] - first["total"]
        stands = advanced == 0 and bool(last["busy"])
        rows.append({"communicator": key[0], "rank": key[1], **last, "advanced": advanced, "stands_still": stands})
    problems = diagnose(_document(address, timeout_s))
    stuck = any(row["stands_still"] for row in rows)
    if as_json:
        print_json({"seconds": seconds, "looks": len(looks), "ranks": rows, "problems": problems})
    else:
        shown = [
            (
                row["communicator"],
                row["rank"],
                row["total"],
                row["advanced"],
                row["last"],
                "stands still" if row["stands_still"] else "",
            )
            for row in rows
        ]
        console().print(
            table(f"{seconds:g} s, {len(looks)} looks", ("communicator", "rank", "calls", "more", "last", ""), shown)
        )
        for problem in problems:
            console().print(f"! {problem}", markup=False)
    if stuck or problems:
        raise typer.Exit(EXIT_PROBLEM)


def _look(document: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    return {
        (one["hash"], row["rank"]): {
            "total": sum(row["collective_counts"].values()),
            "last": _deed(row),
            "busy": bool(row.get("last", {}).get("busy")),
        }
        for one in document["communicators"]
        for row in one["ranks"]
    }


def check(
    level: Annotated[int, typer.Option("--run-level", "-r", min=1, max=3, help="As for `rocpy doctor`.")] = 2,
    as_json: JsonFlag = False,
) -> None:
    """Check what commonly makes collectives hang or crawl, and say how to mend it.

    Leaves with 0 if nothing is wrong, 1 if a check found a problem, 2 for wrong usage.
    """
    from rocpy.cli import _checks_rccl

    findings = examine(Machine.here(), level, _checks_rccl.CHECKS)
    if as_json:
        print_json({"findings": findings})
    else:
        console().print(findings_table("rccl check", findings))
    if any(row["status"] == "problem" for row in findings):
        raise typer.Exit(EXIT_PROBLEM)
