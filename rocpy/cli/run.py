# SPDX-License-Identifier: MIT
"""``rocpy run -- PROGRAM``: a program that links AMD's libraries, on the host platform."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rocpy.cli._application import Arguments, set_run
from rocpy.cli._output import UsageError, print_json, warn
from rocpy.cli._parser import Parser, add_json
from rocpy.cli.rocm_tree import SEPARATED, add_release, environment, lay_out, separator_in


def configure(parser: Parser) -> None:
    """Add the command's options."""
    add_release(parser)
    parser.add_argument("--report", action="store_true", help="list the unsupported functions that the program called")
    add_json(parser)
    set_run(parser, run, takes_program=True)


def run(arguments: Arguments) -> int:
    """Run the program with a stand-in ROCm tree and return its exit code."""
    command = arguments.program_arguments
    if not command:
        raise UsageError("rocpy run: name the program: rocpy run -- python app.py")
    if arguments.as_json and not arguments.report:
        raise UsageError("rocpy run: --json prints the report; add --report")
    if shutil.which(command[0]) is None:
        raise UsageError(f"rocpy run: there is no program {command[0]!r}")
    with tempfile.TemporaryDirectory(prefix="rocpy-rocm-") as folder:
        tree = Path(folder)
        if separator := separator_in(tree):
            raise UsageError(f"rocpy run: {SEPARATED.format(tree, separator)}; set TMPDIR to another folder")
        lay_out(tree, arguments.release)
        report = tree / "report"
        variables = environment(tree, arguments.release, os.environ.get("LD_LIBRARY_PATH", ""))
        if arguments.report:
            variables["ROCPY_HOST_REPORT"] = str(report)
        settings = [f"{name}={value}" for name, value in variables.items()]
        # What the program prints is no part of the document.
        stdout = sys.stderr if arguments.as_json else None
        code = subprocess.run(["env", *settings, *command], stdout=stdout, check=False).returncode
        calls = not_supported(report.read_text(encoding="utf-8") if report.exists() else "")
    if code < 0:
        warn(f"rocpy run: {command[0]} was ended by {name_of(-code)}")
        code = 128 - code
    if arguments.as_json:
        rows = [{"library": library, "function": function, "calls": n} for library, function, n in calls]
        print_json({"exit_code": code, "not_supported": rows})
    elif arguments.report:
        warn(render(calls))
    return code


def name_of(number: int) -> str:
    """Return a signal's name; real-time signals but the first and the last have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def not_supported(report: str) -> list[tuple[str, str, int]]:
    """Return library, function and number of calls of what a program called and the tree does not support.

    Parameters
    ----------
    report
        Lines of process, library, function and calls so far, as the host platform writes them.
    """
    last: dict[tuple[str, str, str], int] = {}
    for line in report.splitlines():
        process, library, function, count = line.split()
        last[process, library, function] = max(int(count), last.get((process, library, function), 0))
    total: dict[tuple[str, str], int] = defaultdict(int)
    for (_, library, function), calls in last.items():
        total[library, function] += calls
    return [(library, function, calls) for (library, function), calls in sorted(total.items())]


def render(calls: Sequence[tuple[str, str, int]]) -> str:
    """Return the report as text for people."""
    if not calls:
        return "rocpy run: the program called no function that the stand-in ROCm lacks"
    rows = [f"  {library:16} {function:48} {count:8}" for library, function, count in calls]
    return "\n".join(["rocpy run: not supported (library, function, calls):", *rows])
