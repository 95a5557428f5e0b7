# SPDX-License-Identifier: MIT
"""``rocpy run -- PROGRAM``: a program that links AMD's libraries, on the host platform."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path

from rocpy.cli._application import Arguments, set_run
from rocpy.cli._output import UsageError, warn
from rocpy.cli._parser import Parser
from rocpy.cli.rocm_tree import add_release, environment, lay_out


def configure(parser: Parser) -> None:
    """Add the command's options."""
    add_release(parser)
    parser.add_argument(
        "--report", action="store_true", help="list the functions that the program called and the tree does not support"
    )
    set_run(parser, run, takes_program=True)


def run(arguments: Arguments) -> int:
    """Run the program with a stand-in ROCm tree and return its exit code."""
    command = arguments.program_arguments
    if not command:
        raise UsageError("rocpy run: name the program: rocpy run -- python app.py")
    if shutil.which(command[0]) is None:
        raise UsageError(f"rocpy run: there is no program {command[0]!r}")
    with tempfile.TemporaryDirectory(prefix="rocpy-rocm-") as folder:
        tree = Path(folder)
        lay_out(tree, arguments.release)
        report = tree / "report"
        variables = environment(tree, arguments.release, os.environ.get("LD_LIBRARY_PATH", ""))
        if arguments.report:
            variables["ROCPY_HOST_REPORT"] = str(report)
        settings = [f"{name}={value}" for name, value in variables.items()]
        code = subprocess.run(["env", *settings, *command], check=False).returncode
        if arguments.report:
            warn(render(report.read_text(encoding="utf-8") if report.exists() else ""))
    if code < 0:
        warn(f"rocpy run: {command[0]} was ended by {signal.Signals(-code).name}")
        return 128 - code
    return code


def render(report: str) -> str:
    """Return the report as text for people.

    Parameters
    ----------
    report
        Lines of process, library, function and calls so far, as the host platform writes them.
    """
    last: dict[tuple[str, str, str], int] = {}
    for line in report.splitlines():
        process, library, function, count = line.split()
        last[process, library, function] = max(int(count), last.get((process, library, function), 0))
    if not last:
        return "rocpy run: the program asked for nothing that the stand-in ROCm lacks"
    total: dict[tuple[str, str], int] = defaultdict(int)
    for (_, library, function), calls in last.items():
        total[library, function] += calls
    rows = [f"  {library:16} {function:48} {calls:8}" for (library, function), calls in sorted(total.items())]
    return "\n".join(["rocpy run: not supported (library, function, calls):", *rows])
