# SPDX-License-Identifier: MIT
"""Drawings of benchmarks: dots on a logarithmic axis, rocpy in one colour."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rocpy._messages.html import page


def draw(documents: Sequence[dict[str, Any]], path: Path, title: str = "") -> None:
    """Draw one panel for each group of rivals: dots for the medians on a logarithmic axis, ticks for the best.

    rocpy has one colour in every panel, and the label of the fastest median is bold with a star.

    Parameters
    ----------
    documents
        What the benchmarks wrote; at least one row.
    path
        File to write: a ``.png`` image, or a ``.html`` page with the drawing inside.
    title
        First line of the heading, such as the machine and the instruction set; what the rows tell of both follows it.
    """
    figure = figure_of(documents, title)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path)


def heading(row: dict[str, Any], title: str = "") -> str:
    """Return the lines above a drawing: a title, where the row was measured, and with which versions."""
    where = [row["platform"], row["device"], f"instruction set {row['isa']}" if row.get("isa") else ""]
    versions = " ".join(f"{package} {version}" for package, version in row["versions"].items())
    lines = (title, " | ".join(filter(None, where)), f"{versions} | commit {row['commit']}")
    return "\n".join(filter(None, lines))


def figure_of(documents: Sequence[dict[str, Any]], title: str = "") -> Any:
    """Return the drawing of :func:`draw` as a figure of matplotlib's."""
    from matplotlib.figure import Figure

    groups: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for document in documents:
        for row in document["rows"]:
            groups.setdefault((row["benchmark"], row["case"], row["threads"]), []).append(row)
    heights = [0.8 + 0.25 * len(rows) for rows in groups.values()]
    figure = Figure(figsize=(9, sum(heights) + 1), layout="constrained")
    axes = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)
    for axis, ((benchmark, case, threads), rows) in zip(axes[:, 0], groups.items(), strict=True):
        _draw_group(axis, rows)
        axis.set_title(f"{benchmark}: {case}, {threads} thread{'s' if threads != 1 else ''}", fontsize=9)
    figure.suptitle(heading(documents[0]["rows"][0], title), fontsize=7)
    return figure


def _draw_group(axis: Any, rows: Sequence[dict[str, Any]]) -> None:
    fastest = min(rows, key=lambda row: float(row["median_us"]))
    for height, row in enumerate(rows):
        color = "tab:red" if "rocpy" in row["label"] else "tab:gray"
        axis.plot(row["median_us"], height, "o", color=color, markersize=6)
        axis.plot(row["best_us"], height, "|", color=color, markersize=10)
    axis.set_yticks(range(len(rows)), [f"{row['label']} *" if row is fastest else row["label"] for row in rows])
    for label, row in zip(axis.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row is fastest else "normal")
    axis.invert_yaxis()
    axis.margins(y=0.2)
    axis.set_xscale("log")
    axis.grid(visible=True, which="both", axis="x", linewidth=0.3)
    axis.tick_params(which="both", labelsize=7)
    axis.set_xlabel("microseconds, logarithmic; dot: median, tick: best, *: fastest median", fontsize=7)


def save(figure: Any, path: Path) -> None:
    """Write a figure of matplotlib's to a ``.png`` image, or to a ``.html`` page with the drawing inside."""
    if path.suffix == ".png":
        figure.savefig(path, dpi=120)
        return
    path.write_text(page("rocpy bench", [svg_of(figure)]), encoding="utf-8")


def svg_of(figure: Any) -> str:
    """Return a figure of matplotlib's as an SVG element for a page."""
    text = io.StringIO()
    figure.savefig(text, format="svg")
    drawing = text.getvalue()
    return drawing[drawing.index("<svg") :]
