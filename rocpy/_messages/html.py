# SPDX-License-Identifier: MIT
"""Tables for notebooks: what ``_repr_html_`` returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["facts", "page", "table"]

STYLE = (
    ":root{color-scheme:light dark}body{font-family:sans-serif;margin:2em}"
    "svg{max-width:100%;height:auto;background:#fff}"
    "table{border-collapse:collapse;display:block;overflow-x:auto;margin:1em 0}caption{font-weight:bold;padding:.3em 0}"
    "td,th{padding:.3em .8em;text-align:left;border-bottom:1px solid #8884}"
)


def escape(text: str) -> str:
    """Return a text with what HTML would take for markup written out."""
    import html  # here: with its list of entities it takes a millisecond to import

    return html.escape(text)


def page(title: str, parts: Iterable[str]) -> str:
    """Return a page of HTML that needs no other file.

    Parameters
    ----------
    title
        Its title, and the heading at its top.
    parts
        What follows, as HTML.
    """
    words = escape(title)
    head = "<meta charset=utf-8><meta name=viewport content='width=device-width'>"
    return (
        f"<!doctype html>\n<html lang=en>{head}\n<title>{words}</title>\n<style>{STYLE}</style>\n<h1>{words}</h1>\n"
        + "\n".join(parts)
        + "\n"
    )


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as HTML.

    Parameters
    ----------
    title
        Its caption.
    columns
        Names of the columns; no line of names if there are none.
    rows
        Cells, of any type that ``str`` takes; ``None`` is an empty cell.
    """
    left = ' style="text-align:left"'
    head = "".join(f"<th{left}>{escape(name)}</th>" for name in columns)
    text = f"<table><caption{left}>{escape(title)}</caption>"
    text += f"<thead><tr>{head}</tr></thead>" if columns else ""
    for row in rows:
        cells = "".join(f"<td{left}>{escape('' if cell is None else str(cell))}</td>" for cell in row)
        text += f"<tr>{cells}</tr>"
    return text + "</table>"


def facts(title: str, text: str) -> str:
    """Return lines of a name, two or more spaces and a value (``"chosen by  tuned"``) as a table."""
    return table(title, (), [[part.strip() for part in line.split("  ", maxsplit=1)] for line in text.splitlines()])
