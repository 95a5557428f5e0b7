# SPDX-License-Identifier: MIT
"""`rocpy rccl`: what the communicators of this machine do, who is behind, and what is wrong with the setting."""

from __future__ import annotations

import time
from typing import Any

from rocpy.cli._application import Arguments, set_help, set_run
from rocpy.cli._checks import examine
from rocpy.cli._machine import Machine
from rocpy.cli._output import (
    EXIT_NO_PLATFORM,
    EXIT_PROBLEM,
    UsageError,
    print_error,
    print_findings,
    print_json,
    print_table,
    say,
    say_folded,
)
from rocpy.cli._parser import Parser, add_commands, add_json, number_from
from rocpy.errors import InvalidArgumentError, RcclError, RocpyError

COMMANDS = {
    "status": "Show every communicator of this machine's jobs, and each rank's calls.",
    "trace": "Watch the ranks' calls for a while, and report which ranks make no progress.",
    "check": "Check for common causes of hangs and slow collectives, and show the fix for each.",
}


class _NoAnswerError(Exception):
    """The RAS server or the platform did not answer; the exit code says which."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


def configure(parser: Parser) -> None:
    """Add the commands below `rocpy rccl`."""
    below = add_commands(parser, COMMANDS.items(), dest="rccl_command")
    for name in ("status", "trace"):
        below[name].add_argument(
            "--address",
            metavar="HOST:PORT",
            help="host:port of RCCL's RAS server (default: the value of NCCL_RAS_ADDR, else localhost:28028)",
        )
        below[name].add_argument(
            "--timeout-s",
            type=number_from(float, 0),
            default=10.0,
            metavar="S",
            help="how long to wait for an answer (default: 10)",
        )
    below["trace"].add_argument(
        "--seconds", type=number_from(float, 0), default=2.0, metavar="S", help="how long to watch (default: 2)"
    )
    below["trace"].add_argument(
        "--interval-s",
        type=number_from(float, 0.01),
        default=0.5,
        metavar="S",
        help="time between two samples (default: 0.5)",
    )
    below["check"].add_argument(
        "-r",
        "--run-level",
        dest="level",
        metavar="1|2|3",
        type=number_from(int, 1, 3),
        default=2,
        help="1: files and variables only; 2: load the platform (default); 3: compute",
    )
    for name, function in (("status", status), ("trace", trace), ("check", check)):
        add_json(below[name])
        set_run(below[name], function)
    set_help(parser)


def _document(address: str | None, timeout_s: float) -> dict[str, Any]:
    from rocpy.rccl import machine_status

    try:
        return machine_status(address=address, timeout_s=timeout_s)
    except InvalidArgumentError as error:
        raise UsageError(f"rocpy rccl: {error}") from None
    except RcclError as error:
        print_error(error)
        raise _NoAnswerError(EXIT_PROBLEM) from None
    except RocpyError as error:
        print_error(error, "`rocpy doctor` shows what is wrong with the platform")
        raise _NoAnswerError(EXIT_NO_PLATFORM) from None


def status(arguments: Arguments) -> int:
    """Show every communicator of this machine's jobs, and each rank's calls.

    Returns 0 if all is well, 1 if a rank is missing, behind, stopped or failed, or there is no RAS server, 3 if no
    platform can be used.
    """
    from rocpy.rccl import diagnose

    try:
        document = _document(arguments.address, arguments.timeout_s)
    except _NoAnswerError as error:
        return error.code
    problems = diagnose(document)
    if arguments.as_json:
        print_json({**document, "problems": problems})
    else:
        _show(document, problems)
    return EXIT_PROBLEM if problems else 0


def _show(document: dict[str, Any], problems: list[str]) -> None:
    if not document["communicators"]:
        say("no communicator is alive")
    for one in document["communicators"]:
        rows = []
        for row in one["ranks"]:
            calls = ", ".join(f"{name} {count}" for name, count in row["collective_counts"].items() if count)
            rows.append((row["rank"], f"{row['host']}:{row['pid']}", row["cuda_dev"], _deed(row), calls))
        rows += [
            (row["rank"], f"{row['host']}:{row['pid']}", row["cuda_dev"], "missing", "") for row in one["missing_ranks"]
        ]
        title = f"communicator {one['hash']} {one.get('name', '')}, {one['size']} ranks"
        print_table(title, ("rank", "process", "device", "last", "calls"), sorted(rows))
    for problem in problems:
        say_folded(f"! {problem}")


def _deed(row: dict[str, Any]) -> str:
    last = row.get("last")
    if not last or last.get("op", "none") == "none":
        return ""
    return f"{'in' if last['busy'] else 'did'} {last['op']} number {last['seq']}, {last['count']} of {last['dtype']}"


def trace(arguments: Arguments) -> int:
    """Watch the ranks' calls for a while, and report which ranks make no progress.

    Returns 0 if all advance or nothing waits, 1 if a rank stands still in a call, or as `rocpy rccl status` does.
    """
    try:
        looks, document = _watch(arguments)
    except _NoAnswerError as error:
        return error.code
    return _report(arguments, looks, document)


def _watch(arguments: Arguments) -> tuple[list[dict[tuple[str, int], dict[str, Any]]], dict[str, Any]]:
    looks = [_look(_document(arguments.address, arguments.timeout_s))]
    until = time.monotonic() + arguments.seconds
    while time.monotonic() < until:
        time.sleep(arguments.interval_s)
        looks.append(_look(_document(arguments.address, arguments.timeout_s)))
    return looks, _document(arguments.address, arguments.timeout_s)


def _report(arguments: Arguments, looks: list[dict[tuple[str, int], dict[str, Any]]], document: dict[str, Any]) -> int:
    from rocpy.rccl import diagnose

    rows = []
    for key, last in looks[-1].items():
        first = looks[0].get(key)
        advanced = None if first is None else last["total"] - first["total"]
        stands = advanced == 0 and bool(last["busy"])
        rows.append({"communicator": key[0], "rank": key[1], **last, "advanced": advanced, "stands_still": stands})
    problems = diagnose(document)
    stuck = any(row["stands_still"] for row in rows)
    if arguments.as_json:
        print_json({"seconds": arguments.seconds, "looks": len(looks), "ranks": rows, "problems": problems})
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
        title = f"{arguments.seconds:g} s, {len(looks)} samples"
        print_table(title, ("communicator", "rank", "calls", "more", "last", ""), shown)
        for problem in problems:
            say_folded(f"! {problem}")
    return EXIT_PROBLEM if stuck or problems else 0


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


def check(arguments: Arguments) -> int:
    """Check what commonly makes collectives hang or crawl; a problem found is exit code 1."""
    from rocpy.cli import _checks_rccl

    findings = examine(Machine.here(), arguments.level, _checks_rccl.CHECKS)
    if arguments.as_json:
        print_json({"findings": findings})
    else:
        print_findings("rccl check", findings)
    return EXIT_PROBLEM if any(row["status"] == "problem" for row in findings) else 0
