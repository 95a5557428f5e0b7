# SPDX-License-Identifier: MIT
"""`rocpy bench`: runs the benchmarks, each in processes of its own, writes their rows as JSON and draws them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from rocpy.cli._application import Arguments, set_run
from rocpy.cli._output import EXIT_PROBLEM, UsageError, print_json, say, warn
from rocpy.cli._parser import Parser, add_json, choice_of, number_from

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
    "collectives",
)


def configure(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "name",
        nargs="?",
        type=choice_of((*NAMES, "goals", "all")),
        default="all",
        metavar="NAME",
        help=f"one of {', '.join(NAMES)}; or goals, which judges the rest; or all (the default)",
    )
    parser.add_argument("--quick", action="store_true", help="small and short: shows that it runs, not how fast it is")
    parser.add_argument(
        "--threads",
        type=number_from(int, 1),
        action="append",
        metavar="N",
        help="number of threads; may be given more than once",
    )
    parser.add_argument("--seconds", type=number_from(float, 0), metavar="S", help="seconds for each rival of a group")
    parser.add_argument(
        "--isa",
        type=choice_of(("native", "avx2")),
        default="native",
        metavar="SET",
        help="instruction set that rocpy and its peers are held to: native (the default) or avx2",
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="only groups whose name contains this")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        default=Path("benchmark-results"),
        help="folder for the results, one JSON file a benchmark (default: benchmark-results)",
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the results: FILE.png or FILE.html (needs matplotlib)"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask before a run of many minutes")
    add_json(parser)
    set_run(parser, bench)


def bench(arguments: Arguments) -> int:
    """Measure rocpy beside numpy, torch and nvmath-python; a benchmark that fails is exit code 1."""
    _require_plot(arguments.plot)
    names = (*NAMES, "goals") if arguments.name == "all" else (arguments.name,)
    if len(names) > 1 and not arguments.quick and not arguments.yes and not _confirm(len(names)):
        return EXIT_PROBLEM
    documents = []
    for number, name in enumerate(names, 1):
        if len(names) > 1:
            warn(f"benchmark {number} of {len(names)}: {name}")
        document = _measure(name, arguments)
        if document is None:
            return EXIT_PROBLEM
        documents.append(document)
    measured = [document for document in documents if document.get("rows")]
    if arguments.only and not any(document["benchmark"] != "goals" for document in measured):
        raise UsageError(
            f"rocpy bench: no group's name contains {arguments.only!r}; run without --only to see the names"
        )
    if arguments.plot is not None:
        draw([document for document in measured if document["benchmark"] != "goals"], arguments.plot)
    if arguments.as_json:
        print_json(documents if arguments.name == "all" else documents[0])
    else:
        say(f"results: {arguments.output}" + (f", {arguments.plot}" if arguments.plot else ""))
    return 0


def _require_plot(plot: Path | None) -> None:
    from importlib import util

    if plot is None:
        return
    if plot.suffix not in {".png", ".html"}:
        raise UsageError(f"rocpy bench: --plot {plot}: the file's name must end in .png or .html")
    if util.find_spec("matplotlib") is None:
        raise UsageError("rocpy bench: --plot needs matplotlib: pip install 'rocpy[plot]'")


def _confirm(count: int) -> bool:
    """Ask whether to run them all, where somebody can answer."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    sys.stderr.write(f"This runs {count} benchmarks, for half an hour or more. Go on? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _measure(name: str, arguments: Arguments) -> dict[str, Any] | None:
    """Run one benchmark in a process of its own and return what it wrote; None if it failed."""
    path = arguments.output / f"{name}.json"
    words = ["--json", str(path), *["--quick"] * arguments.quick]
    if name == "goals":
        script = folder() / "goals.py"
        words += ["--results", str(arguments.output)]
    else:
        script = folder() / f"bench_{name}.py"
        words += ["--threads", *map(str, arguments.threads)] if arguments.threads else []
        words += ["--only", arguments.only] if arguments.only else []
        words += ["--seconds", str(arguments.seconds)] if arguments.seconds else []
        words += ["--isa", arguments.isa] if arguments.isa != "native" else []
    code = _run_group([sys.executable, str(script), *words], stdout=sys.stderr if arguments.as_json else None)
    if code:
        warn(f"benchmark {name} failed with code {code}")
        return None
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def _run_group(words: Sequence[str], *, stdout: TextIO | None) -> int:
    """Run a program in a process group of its own, which ends with this process, and return its exit code.

    Ctrl-C reaches this process alone: the programs below it would each answer with a traceback.
    """
    handlers = {number: signal.signal(number, _raise_exit) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=stdout, process_group=0) as child:
            try:
                return child.wait()
            finally:
                if child.returncode is None:
                    os.killpg(child.pid, signal.SIGKILL)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _raise_exit(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def folder() -> Path:
    """Return where the benchmarks are: in the source checkout, or beside this file in an installed package."""
    beside = Path(__file__).resolve().parent / "benchmarks"
    return beside if beside.is_dir() else Path(__file__).resolve().parents[2] / "benchmarks"


def draw(documents: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw one panel a group of rivals: dots for the medians on a logarithmic axis, ticks for the best.

    rocpy has one colour in every panel, and the label of the fastest median is bold with a star.

    Parameters
    ----------
    documents
        What the benchmarks wrote; at least one row.
    path
        File to write: a ``.png`` image, or a ``.html`` page with the drawing inside.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for document in documents:
        for row in document["rows"]:
            groups.setdefault((row["benchmark"], row["case"], row["threads"]), []).append(row)
    heights = [0.8 + 0.25 * len(rows) for rows in groups.values()]
    figure, axes = plt.subplots(
        len(groups), 1, figsize=(9, sum(heights) + 1), squeeze=False, height_ratios=heights, layout="constrained"
    )
    for axis, ((benchmark, case, threads), rows) in zip(axes[:, 0], groups.items(), strict=True):
        _draw_group(axis, rows)
        axis.set_title(f"{benchmark}: {case}, {threads} thread{'s' if threads != 1 else ''}", fontsize=9)
    first = documents[0]["rows"][0]
    versions = " ".join(f"{package} {version}" for package, version in first["versions"].items())
    figure.suptitle(f"{first['platform']} | {first['device']} | {versions} | commit {first['commit']}", fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    _save(figure, path)
    plt.close(figure)


def _draw_group(axis: Any, rows: Sequence[dict[str, Any]]) -> None:
    fastest = min(rows, key=lambda row: float(row["median_us"]))
    for height, row in enumerate(rows):
        color = "tab:red" if row["label"].startswith("rocpy") else "tab:gray"
        axis.plot(row["median_us"], height, "o", color=color, markersize=6)
        axis.plot(row["best_us"], height, "|", color=color, markersize=10)
    axis.set_yticks(range(len(rows)), [f"{row['label']} *" if row is fastest else row["label"] for row in rows])
    for label, row in zip(axis.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row is fastest else "normal")
    axis.invert_yaxis()
    axis.margins(y=0.2)
    axis.set_xscale("log")
    axis.grid(visible=True, which="both", axis="x", linewidth=0.3)
    axis.tick_params(labelsize=7)
    axis.set_xlabel("microseconds, logarithmic; dot: median, tick: best, *: fastest median", fontsize=7)


def _save(figure: Any, path: Path) -> None:
    import io

    if path.suffix == ".png":
        figure.savefig(path, dpi=120)
        return
    text = io.StringIO()
    figure.savefig(text, format="svg")
    drawing = text.getvalue()
    page = f"<!doctype html>\n<meta charset=utf-8><title>rocpy bench</title>\n{drawing[drawing.index('<svg') :]}"
    path.write_text(page, encoding="utf-8")
