# SPDX-License-Identifier: MIT
"""How commands speak: tables for people, one JSON document for programs, and the exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

EXIT_PROBLEM = 1
EXIT_USAGE = 2
EXIT_NO_PLATFORM = 3

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]


def console() -> Console:
    """Return the console on standard output, as it is now: tests and pipes replace it."""
    return Console(highlight=False, soft_wrap=False)


def errors() -> Console:
    """Return the console on standard error."""
    return Console(stderr=True, highlight=False)


def print_json(document: Any) -> None:
    """Print a document for programs."""
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a table that a narrow terminal folds instead of cutting."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    made.min_width = len(title)
    made.show_header = any(columns)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(_text(cell) for cell in row))
    return made


def findings_table(title: str, findings: Iterable[Mapping[str, str | int]]) -> Table:
    """Return what checks found, each with its fix."""
    signs = {"ok": "ok", "note": "note", "problem": "PROBLEM"}
    rows = []
    for row in findings:
        seen = f"{row['seen']}\n-> {row['fix']}" if row["fix"] else row["seen"]
        rows.append((signs[str(row["status"])], row["check"], seen))
    return table(title, ("", "check", "seen"), rows)


def _text(cell: object) -> str:
    # Square brackets in a path or message are text here, not markup.
    from rich.markup import escape

    return "" if cell is None else escape(str(cell))


def error_message(error: Exception, advice: str = "") -> None:
    """Say on standard error what went wrong, and what to try."""
    from rich.markup import escape

    errors().print(f"[bold red]{type(error).__name__}[/]: {escape(str(error))}", soft_wrap=True)
    if advice:
        errors().print(advice)
