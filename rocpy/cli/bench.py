# SPDX-License-Identifier: MIT
"""`rocpy bench`: runs the benchmarks, each in processes of its own, writes their rows as JSON and draws them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from rocpy._messages.distribution import install_command
from rocpy.cli._application import Arguments, set_run
from rocpy.cli._output import EXIT_PROBLEM, UsageError, print_json, print_table, say, warn, writable
from rocpy.cli._parser import Parser, add_json, choice_of, number_from, path_of
from rocpy.cli.measured.comparison import COLUMNS, NUMBERS, changes, left_out, machines, read
from rocpy.cli.measured.drawing import draw
from rocpy.cli.measured.pages import comparison_page, page_of

NAMES = (
    "overhead",
    "matmul",
    "reach",
    "epilogue",
    "grouped",
    "cooperative",
    "algorithms",
    "autotune",
    "import",
    "torch",
    "jax",
    "training",
    "weights",
    "threads",
    "collectives",
)
OTHERS = ("counts", "goals")  # scripts of that name, which time nothing
TIMING = ("threads", "seconds", "isa")
MOST_THREADS = 4096  # more than a machine has
UNUSED = {  # options that have no effect with another
    "--list": (*TIMING, "output", "plot", "html", "compare"),
    "--compare": (*TIMING, "quick", "only", "output", "plot"),
}


def configure(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "name",
        nargs="?",
        type=choice_of((*NAMES, *OTHERS, "all")),
        default="all",
        metavar="NAME",
        help=f"one of {', '.join(NAMES)}; or counts, which counts the instructions, library calls and allocations of "
        "one call; or goals, which judges the other results; or all (the default)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small problems and short runs, to check that the benchmarks work; the timings are not meaningful",
    )
    parser.add_argument(
        "--threads",
        type=number_from(int, 1, MOST_THREADS),
        action="append",
        metavar="N",
        help="number of threads; may be given more than once",
    )
    parser.add_argument(
        "--seconds", type=number_from(float, 0), metavar="S", help="time for each library in a group, in seconds"
    )
    parser.add_argument(
        "--isa",
        type=choice_of(("native", "avx2")),
        default="native",
        metavar="SET",
        help="instruction set that rocpy and its peers are limited to: native (the default) or avx2",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="run only groups whose name contains this text")
    parser.add_argument("--list", action="store_true", help="measure nothing; list the groups' names for --only")
    parser.add_argument(
        "--output",
        type=path_of,
        metavar="FOLDER",
        default=Path("benchmark-results"),
        help="folder for the results, one JSON file per benchmark (default: benchmark-results)",
    )
    parser.add_argument(
        "--plot", type=path_of, metavar="FILE", help="draw the results: FILE.png or FILE.html (needs matplotlib)"
    )
    parser.add_argument(
        "--html",
        type=path_of,
        metavar="PAGE",
        help="write the results to one HTML page, with tables and, if matplotlib is installed, plots",
    )
    parser.add_argument(
        "--compare",
        type=path_of,
        nargs=2,
        metavar=("OLD", "NEW"),
        help="measure nothing; compare two results (files, or folders of them): exit code 1 if rocpy became slower",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before a run of many minutes")
    add_json(parser)
    set_run(parser, bench)


def bench(arguments: Arguments) -> int:
    """Measure rocpy beside numpy, torch and nvmath-python; a benchmark that fails is exit code 1."""
    names = _names(arguments)
    if arguments.list:
        _refuse(arguments, UNUSED["--list"], "--list")
        return _list(names, arguments)
    if arguments.compare is not None:
        _refuse(arguments, UNUSED["--compare"], "--compare")
    _require_plot(arguments.plot)
    if arguments.html is not None and arguments.html.suffix != ".html":
        raise UsageError(f"rocpy bench: --html {arguments.html}: the file's name must end in .html")
    with (
        writable(arguments.html, "rocpy bench", "--html", parents=True),
        writable(arguments.plot, "rocpy bench", "--plot", parents=True),
    ):
        return _measure_all(names, arguments) if arguments.compare is None else _compare(arguments)


def _refuse(arguments: Arguments, options: Sequence[str], other: str) -> None:
    """Refuse options that have no effect with another option or a benchmark, rather than ignore them."""
    for name in options:
        if getattr(arguments, name) != arguments.parser.get_default(name):
            raise UsageError(f"rocpy bench: --{name} has no effect with {other}; leave one of the two out")


def _list(names: Sequence[str], arguments: Arguments) -> int:
    """List the groups of benchmarks, those that ``--only`` chooses if it is given."""
    groups = _groups(names, arguments)
    if groups is None:
        return EXIT_PROBLEM
    if arguments.as_json:
        print_json(groups)
    else:
        print_table("groups", ("benchmark", "group"), [(name, group) for name in groups for group in groups[name]])
    return 0


def _groups(names: Sequence[str], arguments: Arguments) -> dict[str, list[str]] | None:
    """Return the groups that are chosen of each benchmark that has any; None if a benchmark fails to list them."""
    groups = {}
    for name in names:
        with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
            words = [sys.executable, str(folder() / f"bench_{name}.py"), "--list", *["--quick"] * arguments.quick]
            if code := _run_group(words, stdout=file):
                warn(f"benchmark {name} failed with code {code}")
                return None
            file.seek(0)
            groups[name] = [line for line in file.read().splitlines() if arguments.only in line]
    chosen = {name: lines for name, lines in groups.items() if lines}
    if not chosen:
        quick = " --quick" if arguments.quick else ""
        raise UsageError(
            f"rocpy bench: no group's name contains {arguments.only!r}; "
            f"`rocpy bench {arguments.name}{quick} --list` shows the names"
        )
    return chosen


def _measure_all(names: Sequence[str], arguments: Arguments) -> int:
    documents = []
    if arguments.only:
        groups = _groups(names, arguments)
        if groups is None:
            return EXIT_PROBLEM
        names = tuple(groups)
    with _scratch(arguments.output) as scratch:
        if len(names) > 1 and not arguments.quick and not arguments.yes and not _confirm(len(names)):
            return EXIT_PROBLEM
        for number, name in enumerate(names, 1):
            if len(names) > 1:
                warn(f"benchmark {number} of {len(names)}: {name}")
            document = _measure(name, arguments, scratch)
            if document is None:
                return EXIT_PROBLEM
            documents.append(document)
    measured = [document for document in documents if document.get("rows")]
    timed = [document for document in measured if document["benchmark"] not in OTHERS]
    if arguments.plot is not None and not timed:
        raise UsageError(f"rocpy bench: {arguments.name} timed nothing that --plot could draw; its notes say why")
    if arguments.plot is not None:
        draw(timed, arguments.plot)
    if arguments.html is not None:
        arguments.html.write_text(page_of(measured), encoding="utf-8")
    if arguments.as_json:
        print_json(documents if arguments.name == "all" else documents[0])
    else:
        say(", ".join(map(str, filter(None, (f"results: {arguments.output}", arguments.plot, arguments.html)))))
    return 0


def _names(arguments: Arguments) -> tuple[str, ...]:
    """Return the benchmarks to run: those that have no groups are left out of a choice of groups."""
    if arguments.name == "all":
        return NAMES if arguments.only or arguments.list else (*NAMES, *OTHERS)
    if arguments.name in OTHERS and (arguments.only or arguments.list):
        option, what = ("--list", "show") if arguments.list else ("--only", "choose from")
        raise UsageError(f"rocpy bench: {arguments.name} has no groups that {option} could {what}")
    if arguments.name in OTHERS and arguments.plot is not None:
        raise UsageError(f"rocpy bench: {arguments.name} times nothing that --plot could draw")
    if arguments.name in OTHERS:
        _refuse(arguments, TIMING, arguments.name)
    return (arguments.name,)


@contextmanager
def _scratch(output: Path) -> Iterator[Path]:
    """Create the folder for results, and in it one for those that are not complete."""
    existed = output.exists()
    try:
        output.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=".rocpy-bench-", dir=output)
    except OSError as error:
        raise UsageError(
            f"rocpy bench: cannot write {output} ({error.strerror}); name another folder by --output"
        ) from None
    try:
        with scratch as name:
            yield Path(name)
    finally:
        if not existed and not any(output.iterdir()):
            output.rmdir()


def _compare(arguments: Arguments) -> int:
    """Compare two results; a row of rocpy's that became slower is exit code 1."""
    old, new = map(read, arguments.compare)
    differences = changes(old, new)
    if not differences:
        raise UsageError(f"rocpy bench: {arguments.compare[0]} and {arguments.compare[1]} have no row in common")
    gone, added = left_out(old, new)
    notes = [f"rows in one run only: {gone} in the old one, {added} in the new one"] if gone or added else []
    if machines(old) != machines(new):
        notes.append("measured on different machines: judged by the speed relative to each group's peer")
    if arguments.html is not None:
        arguments.html.write_text(comparison_page(differences, notes), encoding="utf-8")
    if arguments.as_json:
        print_json({"changes": [asdict(change) for change in differences], "notes": notes})
    else:
        print_table("old and new", COLUMNS, [change.cells for change in differences], numbers=NUMBERS)
        for note in notes:
            say(note)
    return EXIT_PROBLEM if any(change.verdict in {"slower", "grown"} for change in differences) else 0


def _require_plot(plot: Path | None) -> None:
    from importlib import util

    if plot is None:
        return
    if plot.suffix not in {".png", ".html"}:
        raise UsageError(f"rocpy bench: --plot {plot}: the file's name must end in .png or .html")
    if util.find_spec("matplotlib") is None:
        raise UsageError(f"rocpy bench: --plot needs matplotlib: {install_command('plot')}")


def _confirm(count: int) -> bool:
    """Ask whether to run them all, where somebody can answer."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    sys.stderr.write(f"This runs {count} benchmarks, for half an hour or more. Continue? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _measure(name: str, arguments: Arguments, scratch: Path) -> dict[str, Any] | None:
    """Run one benchmark in a process of its own and return what it wrote; None if it failed.

    Results without rows, as of a peer that is not installed, replace no others.
    """
    path = scratch / f"{name}.json"
    words = ["--json", str(path), *["--quick"] * arguments.quick]
    if name in OTHERS:
        script = folder() / f"{name}.py"
        words += ["--results", str(arguments.output)] if name == "goals" else []
    else:
        script = folder() / f"bench_{name}.py"
        words += ["--threads", *map(str, arguments.threads)] if arguments.threads else []
        words += ["--only", arguments.only] if arguments.only else []
        words += ["--seconds", str(arguments.seconds)] if arguments.seconds else []
        words += ["--isa", arguments.isa] if arguments.isa != "native" else []
    code = _run_group([sys.executable, str(script), *words], stdout=sys.stderr if arguments.as_json else None)
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if document.get("rows"):
        path.replace(arguments.output / path.name)
    if code:
        warn(f"benchmark {name} failed with code {code}")
        return None
    return document


def _run_group(words: Sequence[str], *, stdout: TextIO | None) -> int:
    """Run a program in a process group of its own, which ends with this process, and return its exit code.

    Ctrl-C reaches this process alone: the programs below it would each answer with a traceback.
    """
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stdout, process_group=0) as child:
        try:
            return child.wait()
        finally:
            if child.returncode is None:
                os.killpg(child.pid, signal.SIGKILL)


def folder() -> Path:
    """Return where the benchmarks are: in the source checkout, or beside this file in an installed package."""
    bundled = Path(__file__).resolve().parent / "benchmarks"
    return bundled if bundled.is_dir() else Path(__file__).resolve().parents[2] / "benchmarks"
