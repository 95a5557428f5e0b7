# SPDX-License-Identifier: MIT
"""How commands speak: tables for people, one JSON document for programs, and the exit codes.

Where rich is installed it draws tables and progress bars; without it both are plain text.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any, TextIO, cast

EXIT_PROBLEM = 1
EXIT_USAGE = 2
EXIT_NO_PLATFORM = 3
EXIT_NOT_WRITTEN = 4

# Columns narrower than this break words into pieces: a row is then written as lines of its own.
LEAST_COLUMN = 12

_OF_WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EAGAIN}

Advance = Callable[[int, int, str], None]


class UsageError(Exception):
    """Wrong words on the command line: the message says which, and what to write instead."""


def say(text: str = "") -> None:
    """Print a line on standard output, as it is."""
    print(text)


def warn(text: str) -> None:
    """Print a line on standard error, as it is; nobody reads it where that cannot be written."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def prepare_streams() -> None:
    """Make the standard streams usable for all text, also where the process was started without them or closed them."""
    codecs.register_error("rocpy", _escape)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115  (until the end)
        elif getattr(stream, "closed", False):  # Python's own objects leave the file itself open
            setattr(sys, name, _opened(number, mode))
        elif isinstance(stream, io.TextIOWrapper) and mode == "w":
            stream.reconfigure(errors="rocpy")


def _opened(number: int, mode: str) -> TextIO:
    """Return the file of a standard stream, or one that is empty where that was closed, too."""
    try:
        stream = open(number, mode, encoding="utf-8", errors="rocpy", closefd=False)  # noqa: SIM115
    except OSError:
        stream = open(os.devnull, mode, encoding="utf-8")  # noqa: PTH123, SIM115
    return cast(TextIO, stream)


def _escape(error: UnicodeError) -> tuple[str | bytes, int]:
    """Write the bytes of a path as they are, and what the encoding of a stream lacks with its number."""
    try:
        return codecs.lookup_error("surrogateescape")(error)
    except UnicodeError:
        return codecs.lookup_error("backslashreplace")(error)


def discard(stream: TextIO) -> None:
    """Discard what is left to print on a stream that cannot be written, and what will be: it may not raise again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def is_of_writing(error: OSError) -> bool:
    """Whether an error is one of writing to a stream that was open: no space, a disk's, or open for reading only."""
    return error.filename is None and error.errno in _OF_WRITING


def say_folded(text: str) -> None:
    """Print a line on standard output at once, folded to the terminal's width."""
    print("\n".join(_fold(text, shutil.get_terminal_size((80, 24)).columns)), flush=True)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


@contextmanager
def writable(path: Path | None, command: str, option: str = "", *, parents: bool = False) -> Iterator[None]:
    """Try a file before the work whose result is written to it; a block that does not write it leaves no empty file.

    Parameters
    ----------
    path
        The file; nothing is tried if None.
    command, option
        The command, and its option that names the file; no option if an argument does.
    parents
        Create the folders that the path lacks.

    Raises
    ------
    UsageError
        The file cannot be written.
    """
    if path is None:
        yield
        return
    existed = path.exists()
    try:
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        by = f" by {option}" if option else ""
        raise UsageError(f"{command}: cannot write {path} ({error.strerror}); name another file{by}") from None
    try:
        yield
    finally:
        if not existed and path.is_file() and path.stat().st_size == 0:
            path.unlink()


def print_json(document: Any) -> None:
    """Print a document for programs."""
    print(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Collection[str] = ()
) -> None:
    """Print a table that a narrow terminal folds instead of cutting.

    Parameters
    ----------
    title
        Line above the table.
    columns
        Names of the columns; no line of names is printed if all are empty.
    rows
        Cells, of any type that ``str`` takes; ``None`` is an empty cell.
    numbers
        Names of columns that end at the right.
    """
    cells = [tuple("" if cell is None else str(cell) for cell in row) for row in rows]
    width = shutil.get_terminal_size((80, 24)).columns
    # A column without a name may have no cell with text either.
    natural = [max([1, len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
    needed = sum(min(one, LEAST_COLUMN) + 2 for one in natural)
    if needed > width:
        _print_records(title, columns, cells, width)
    elif not _print_rich_table(title, columns, cells, width, numbers):
        _print_plain_table(title, columns, cells, _fit(natural, width), numbers)


def _fit(natural: Sequence[int], width: int) -> list[int]:
    """Return the widths of columns: the widest give way until all fit."""
    widths = list(natural)
    while sum(widths) + 2 * (len(widths) - 1) > width and max(widths) > LEAST_COLUMN:
        widths[widths.index(max(widths))] -= 1
    return widths


def _print_plain_table(
    title: str,
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    widths: list[int],
    numbers: Collection[str],
) -> None:
    say_folded(title)
    justify = [str.rjust if name in numbers else str.ljust for name in columns]
    for row in ([columns] if any(columns) else []) + list(cells):
        folded = [_fold(cell, width) for cell, width in zip(row, widths, strict=True)]
        for line in range(max(map(len, folded))):
            parts = [part[line] if line < len(part) else "" for part in folded]
            placed = (put(part, width) for put, part, width in zip(justify, parts, widths, strict=True))
            say("  ".join(placed).rstrip())


def _fold(cell: str, width: int) -> list[str]:
    return [line for part in cell.split("\n") for line in wrap(part, width, break_on_hyphens=False) or [""]]


def _print_records(title: str, columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> None:
    say_folded(title)
    for row in cells:
        for name, cell in zip(columns, row, strict=True):
            text = f"{name}: {cell}" if name else cell
            for line in _fold(text, max(width - 2, 10)) if cell else []:
                say(f"  {line}")
        say()


def _print_rich_table(
    title: str, columns: Sequence[str], cells: Sequence[Sequence[str]], width: int, numbers: Collection[str]
) -> bool:
    try:
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table
    except ImportError:
        return False

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))  # rich's would exit with 1

    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    table.min_width = min(len(title), width)
    table.show_header = any(columns)
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in numbers else "left")
    for row in cells:
        # Square brackets in a path or message are text here, not markup.
        table.add_row(*(escape(cell) for cell in row))
    Output(highlight=False, soft_wrap=False, width=width).print(table)
    return True


def print_findings(title: str, findings: Iterable[Mapping[str, str | int]]) -> None:
    """Print what checks found, each with its fix."""
    signs = {"ok": "ok", "note": "note", "problem": "PROBLEM"}
    rows = []
    for row in findings:
        seen = f"{row['seen']}\n-> {row['fix']}" if row["fix"] else row["seen"]
        rows.append((signs[str(row["status"])], row["check"], seen))
    print_table(title, ("", "check", "seen"), rows)


def print_error(error: BaseException, advice: str = "") -> None:
    """Say on standard error what went wrong, and what to try."""
    warn(f"{type(error).__name__}: {error}")
    if advice:
        warn(advice)


@contextmanager
def progress(*, shown: bool) -> Iterator[Advance]:
    """Show a bar on standard error while the block runs, if that is a terminal.

    Parameters
    ----------
    shown
        Whether to show it at all.

    Yields
    ------
    callable
        Takes how many steps are done, how many there are, and the name of the one that runs.
    """
    if not shown or not sys.stderr.isatty():
        yield _no_progress
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield _plain_progress
        sys.stderr.write("\r\x1b[K")
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, name: bar.update(task, completed=done, total=total, description=name)


def _no_progress(done: int, total: int, name: str) -> None:
    del done, total, name


def _plain_progress(done: int, total: int, name: str) -> None:
    width = shutil.get_terminal_size((80, 24)).columns - 1
    sys.stderr.write(f"\r\x1b[K{f'{done} of {total}  {name}'[:width]}")
    sys.stderr.flush()
