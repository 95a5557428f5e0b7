# SPDX-License-Identifier: MIT
"""Pages of benchmarks: one file of HTML with the tables of a run, or of two compared."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib import util
from typing import Any

from rocpy._messages.html import page, table
from rocpy.cli.measured.comparison import COLUMNS, COUNTS, Change
from rocpy.cli.measured.drawing import figure_of, svg_of

TIMES = ("who", "best, us", "median, us", "spread", "GF/s", "speed vs peer", "kernels")


def page_of(documents: Sequence[dict[str, Any]]) -> str:
    """Return the page of one run: for each benchmark its drawing, where matplotlib is installed, and its tables."""
    parts = []
    for document in documents:
        rows = document["rows"]
        parts.append(f"<h2>{html.escape(document['benchmark'])}</h2>")
        if "best_us" in rows[0]:
            parts += [svg_of(figure_of([document]))] if util.find_spec("matplotlib") else []
            parts += _groups(rows)
        elif "instructions" in rows[0]:
            cells = [(row["label"], *(row[name] for name in COUNTS)) for row in rows]
            parts.append(table("one call", ("who", *COUNTS), cells))
        else:
            names = [name for name, value in rows[0].items() if not isinstance(value, dict | list)]
            parts.append(table("", names, [[row.get(name) for name in names] for row in rows]))
        parts.append(_ran_on(rows[0]))
    return page("rocpy bench", parts)


def comparison_page(changes: Sequence[Change], notes: Sequence[str]) -> str:
    """Return the page of two runs compared."""
    paragraphs = [f"<p>{html.escape(note)}</p>" for note in notes]
    return page("rocpy bench: old and new", [*paragraphs, table("", COLUMNS, [change.cells for change in changes])])


def _groups(rows: Sequence[dict[str, Any]]) -> list[str]:
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["case"], row["threads"]), []).append(row)
    return [
        table(f"{case}, threads: {threads}", TIMES, map(_cells, group)) for (case, threads), group in groups.items()
    ]


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    speed = row.get("speed_best")
    return (
        row["label"],
        f"{row['best_us']:,.4g}",
        f"{row['median_us']:,.4g}",
        f"{row['spread']:.0%}",
        f"{row['gflops_best']:,.4g}" if row.get("gflops_best") else "",
        "" if speed is None else f"{speed:.2f} of {row['against']}",
        ", ".join(f"{name} {kernels}" for name, kernels in row.get("kernels", {}).items()),
    )


def _ran_on(row: dict[str, Any]) -> str:
    words = [str(row[name]) for name in ("platform", "device", "isa", "commit", "command") if row.get(name)]
    versions = " ".join(f"{name} {version}" for name, version in row.get("versions", {}).items())
    return f"<p>{html.escape(' | '.join([*words, versions]))}</p>"
