# SPDX-License-Identifier: MIT
"""`rocpy bench`: runs the benchmarks, each in processes of its own, writes their rows as JSON and draws them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from rocpy.cli._output import EXIT_PROBLEM, EXIT_USAGE, JsonFlag, console, errors, print_json

NAMES = (
    "overhead",
    "matmul",
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


def bench(
    name: Annotated[
        str, typer.Argument(help=f"One of {', '.join(NAMES)}; or reach, which judges the rest; or all.")
    ] = "all",
    quick: Annotated[
        bool, typer.Option("--quick", help="Small and short: shows that it runs, not how fast it is.")
    ] = False,
    threads: Annotated[
        list[int] | None, typer.Option("--threads", help="Number of threads; may be given more than once.")
    ] = None,
    only: Annotated[str, typer.Option("--only", help="Only groups whose name contains this.")] = "",
    output: Annotated[Path, typer.Option("--output", help="Folder for the results, one JSON file a benchmark.")] = Path(
        "benchmark-results"
    ),
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the results: FILE.png or FILE.html (needs matplotlib).")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Measure rocpy beside numpy, torch and nvmath-python, where they are installed.

    Leaves with 0, 1 if a benchmark failed, 2 for wrong usage, or 3 if no platform can be used.
    """
    from importlib import util

    if name not in (*NAMES, "reach", "all"):
        _wrong(f"there is no benchmark {name!r}: take one of {', '.join(NAMES)}, reach, all")
    if plot is not None and plot.suffix not in {".png", ".html"}:
        _wrong(f"--plot {plot}: the file's name must end in .png or .html")
    if plot is not None and util.find_spec("matplotlib") is None:
        _wrong("--plot needs matplotlib: pip install 'rocpy[bench]'")
    options = (
        ["--quick"] * quick
        + (["--threads", *map(str, threads)] if threads else [])
        + (["--only", only] if only else [])
    )
    documents = []
    for chosen in (*NAMES, "reach") if name == "all" else (name,):
        path = output / f"{chosen}.json"
        script = folder() / ("reach.py" if chosen == "reach" else f"bench_{chosen}.py")
        words = [
            "--json",
            str(path),
            *(["--results", str(output)] + ["--quick"] * quick if chosen == "reach" else options),
        ]
        done = subprocess.run(
            [sys.executable, str(script), *words], stdout=sys.stderr if as_json else None, check=False
        )
        if done.returncode:
            errors().print(f"benchmark {chosen} failed with code {done.returncode}")
            raise typer.Exit(EXIT_PROBLEM)
        documents.append(json.loads(path.read_text(encoding="utf-8")))
    if plot is not None:
        draw([document for document in documents if document["benchmark"] != "reach"], plot)
    if as_json:
        print_json(documents if name == "all" else documents[0])
    else:
        console().print(f"results: {output}" + (f", {plot}" if plot else ""), markup=False)


def folder() -> Path:
    """Return where the benchmarks are: in the source checkout, or beside this file in an installed package."""
    beside = Path(__file__).resolve().parent / "benchmarks"
    return beside if beside.is_dir() else Path(__file__).resolve().parents[2] / "benchmarks"


def _wrong(message: str) -> None:
    errors().print(message, markup=False)
    raise typer.Exit(EXIT_USAGE)


def draw(documents: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw one panel a group of rivals, with the median as a bar and the best as a mark.

    Parameters
    ----------
    documents
        What the benchmarks wrote.
    path
        File to write: a ``.png`` image, or a ``.html`` page with the drawing inside.
    """
    import io

    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for document in documents:
        for row in document["rows"]:
            groups.setdefault((row["benchmark"], row["case"], row["threads"]), []).append(row)
    if not groups:
        errors().print("nothing was measured, so that nothing is drawn")
        raise typer.Exit(EXIT_PROBLEM)
    heights = [0.8 + 0.25 * len(rows) for rows in groups.values()]
    figure, axes = plt.subplots(
        len(groups), 1, figsize=(9, sum(heights) + 1), squeeze=False, height_ratios=heights, layout="constrained"
    )
    for axis, ((benchmark, case, threads), rows) in zip(axes[:, 0], groups.items(), strict=True):
        labels = [row["label"] for row in rows]
        colours = ["tab:red" if label.startswith("rocpy") else "tab:gray" for label in labels]
        axis.barh(labels, [row["median_us"] for row in rows], color=colours)
        axis.plot([row["best_us"] for row in rows], labels, "k|", markersize=8)
        axis.invert_yaxis()
        axis.set_xscale("log")
        axis.set_title(f"{benchmark}: {case}, {threads} thread{'s' if threads != 1 else ''}", fontsize=9)
        axis.tick_params(labelsize=7)
        axis.set_xlabel("microseconds; bar: median, mark: best", fontsize=7)
    first = documents[0]["rows"][0]
    versions = " ".join(f"{package} {version}" for package, version in first["versions"].items())
    figure.suptitle(f"{first['platform']} | {first['device']} | {versions} | commit {first['commit']}", fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":
        figure.savefig(path, dpi=120)
    else:
        text = io.StringIO()
        figure.savefig(text, format="svg")
        drawing = text.getvalue()
        page = f"<!doctype html>\n<meta charset=utf-8><title>rocpy bench</title>\n{drawing[drawing.index('<svg') :]}"
        path.write_text(page, encoding="utf-8")
    plt.close(figure)
