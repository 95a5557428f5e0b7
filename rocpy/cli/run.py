# SPDX-License-Identifier: MIT
"""``rocpy run -- PROGRAM``: a program that links AMD's libraries, on the host platform."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from rocpy.cli._application import Arguments, set_run
from rocpy.cli._output import UsageError, print_json, warn
from rocpy.cli._parser import Parser, add_json
from rocpy.cli.rocm_tree import SEPARATED, add_release, environment, lay_out, separator_in
from rocpy.platform import environment as variable
from rocpy.platform import environment_with

# A terminal sends these to the program, too: the kernel does, with a positive si_code, other than a process's kill.
_OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def configure(parser: Parser) -> None:
    """Add the command's options."""
    add_release(parser)
    parser.add_argument("--report", action="store_true", help="list the unsupported functions that the program called")
    add_json(parser)
    set_run(parser, run, after_dashes="the program and its arguments")


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
        # What the program prints is no part of the document.
        stdout = sys.stderr if arguments.as_json else None
        code = _run_program(command, variables, stdout)
        lines = report.read_text(encoding="utf-8") if report.exists() else ""
        calls = not_supported(lines)
    if lines and (users := variable("ROCPY_HOST_REPORT")):
        _append(Path(users), lines)
    if code < 0:
        warn(f"rocpy run: {command[0]} was ended by {name_of(-code)}")
        code = 128 - code
    if arguments.as_json:
        rows = [{"library": library, "function": function, "calls": n} for library, function, n in calls]
        print_json({"exit_code": code, "not_supported": rows})
    elif arguments.report:
        warn(render(calls))
    return code


def _run_program(command: Sequence[str], variables: dict[str, str], stdout: TextIO | None) -> int:
    """Run a program, to which the signals of this process are left, and return what it ended with."""
    started: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def pass_on(number: int, _: object) -> None:
        if started:
            started[0].send_signal(number)
        else:
            early.append(number)

    # The program ignores what was ignored, as under nohup.
    handled = [one for one in (*_OF_TERMINAL, *_PASSED_ON) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, pass_on) for number in handled}
    try:
        started.append(_start(command, environment_with(variables), stdout))
        for number in early:
            started[0].send_signal(number)
        return _wait(started[0], handled)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start(command: Sequence[str], environ: Mapping[str, str], stdout: TextIO | None) -> subprocess.Popen[bytes]:
    try:
        try:
            return subprocess.Popen(command, stdout=stdout, env=environ)
        except OSError as error:
            script = shutil.which(command[0])
            if error.errno != errno.ENOEXEC or script is None:
                raise
            # What does not say what runs it is the shell's, as it is for a shell.
            return subprocess.Popen(["/bin/sh", script, *command[1:]], stdout=stdout, env=environ)
    except OSError as error:
        raise UsageError(f"rocpy run: cannot run {command[0]} ({error.strerror})") from None


def _wait(program: subprocess.Popen[bytes], handled: Sequence[int]) -> int:
    """Wait for the program, to which signals are passed on but those of a terminal, and return what it ended with."""
    awaited = {*handled, signal.SIGCHLD}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    try:
        while (code := program.poll()) is None:
            # With a timeout: a signal may arrive between two waits, in another thread, for which its handler runs here.
            received = signal.sigtimedwait(awaited, 0.1)
            if received is None or received.si_signo == signal.SIGCHLD:
                continue
            if received.si_signo not in _OF_TERMINAL or received.si_code <= 0:
                program.send_signal(received.si_signo)
        return code
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _append(path: Path, lines: str) -> None:
    """Append the report to the file that the user named, which the program's report was written in place of."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(lines)
    except OSError as error:
        warn(f"rocpy run: cannot write to {path}, which ROCPY_HOST_REPORT names: {error.strerror}")


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
        Lines of process, library, function and calls, one of each process and function, as the host platform writes
        them.
    """
    total: dict[tuple[str, str], int] = defaultdict(int)
    for line in report.splitlines():
        _, library, function, calls = line.split()
        total[library, function] += int(calls)
    return [(library, function, calls) for (library, function), calls in sorted(total.items())]


def render(calls: Sequence[tuple[str, str, int]]) -> str:
    """Return the report as text for people."""
    if not calls:
        return "rocpy run: the program called no function that the stand-in ROCm lacks"
    rows = [f"  {library:16} {function:48} {count:8}" for library, function, count in calls]
    return "\n".join(["rocpy run: not supported (library, function, calls):", *rows])
