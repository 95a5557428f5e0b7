# SPDX-License-Identifier: MIT
"""`rocpy report`: many reports of self-tests as one table or page, a row a machine."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rocpy._messages.html import page, table
from rocpy.cli._application import Arguments, set_run
from rocpy.cli._output import EXIT_PROBLEM, UsageError, print_json, print_table, writable
from rocpy.cli._parser import Parser, add_json, path_of

COLUMNS = (
    "card",
    "HIP",
    "hipBLASLt",
    "rocpy",
    "tier",
    "cases",
    "pass rate",
    "unsupported",
    "wrong",
    "one call, us",
    "file",
)
NUMBERS = ("cases", "pass rate", "unsupported", "wrong", "one call, us")
WRONG_COLUMNS = ("case", "message")
BAD = ("failed", "error")
STATUSES = ("ok", "unsupported", *BAD)


def configure(parser: Parser) -> None:
    """Add the command's options."""
    parser.add_argument(
        "files", metavar="FILE", type=path_of, nargs="+", help="reports that `rocpy doctor --selftest` wrote"
    )
    parser.add_argument(
        "--output",
        type=path_of,
        metavar="PAGE",
        help="write a page to this file, .md or .html, instead of a table to standard output",
    )
    add_json(parser)
    set_run(parser, report)


def report(arguments: Arguments) -> int:
    """Render reports; one with a wrong case is exit code 1."""
    if arguments.output is not None and arguments.output.suffix not in {".md", ".html"}:
        raise UsageError(f"rocpy report: --output {arguments.output}: the file's name must end in .md or .html")
    with writable(arguments.output, "rocpy report", "--output"):
        return _render(arguments)


def _render(arguments: Arguments) -> int:
    documents = [_load(path) for path in arguments.files]
    rows = [_row(path, document) for path, document in zip(arguments.files, documents, strict=True)]
    wrong = [_wrong_cases(document) for document in documents]
    if arguments.output is not None:
        text = _page(rows, wrong) if arguments.output.suffix == ".html" else _markdown(rows, wrong)
        arguments.output.write_text(text, encoding="utf-8", errors="backslashreplace")  # a text of half a character
    if arguments.as_json:
        print_json([{**row, "wrong_cases": cases} for row, cases in zip(rows, wrong, strict=True)])
    elif arguments.output is None:
        _show(rows, wrong)
    return EXIT_PROBLEM if any(wrong) else 0


def _show(rows: Sequence[dict[str, Any]], wrong: Sequence[Sequence[dict[str, str]]]) -> None:
    print_table("self-tests", COLUMNS, map(_cells, rows), numbers=NUMBERS)
    for row, cases in zip(rows, wrong, strict=True):
        if cases:
            print_table(f"wrong cases in {row['file']}", WRONG_COLUMNS, [tuple(case.values()) for case in cases])


def _load(path: Path) -> dict[str, Any]:
    """Return the report; what it lacks is filled in by :func:`_row`."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"rocpy report: cannot read {path} ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise UsageError(f"rocpy report: {path} is not JSON") from None
    cases = document.get("cases") if isinstance(document, dict) else None
    if not isinstance(cases, list) or not all(isinstance(row, dict) and row.get("status") in STATUSES for row in cases):
        raise UsageError(f"rocpy report: {path} is not a report of `rocpy doctor --selftest`: it has no list of cases")
    return document


def _row(path: Path, document: dict[str, Any]) -> dict[str, Any]:
    info = _object(document.get("info"))
    device = next(iter(_objects(info.get("devices"))), {})
    libraries = {str(one.get("name")): one.get("version") for one in _objects(info.get("libraries"))}
    statuses = [row["status"] for row in document["cases"]]
    ran = [status for status in statuses if status != "unsupported"]
    bad = sum(status in BAD for status in ran)
    emulated = " (emulated on the CPU)" if _object(info.get("platform")).get("is_emulated") else ""
    return {
        "card": f"{device.get('name', 'unknown')}, {device.get('arch', 'unknown')}{emulated}",
        "HIP": libraries.get("hip"),
        "hipBLASLt": libraries.get("hipblaslt"),
        "rocpy": _object(info.get("packages")).get("rocpy"),
        "tier": document.get("tier"),
        "cases": len(statuses),
        "pass rate": f"{(len(ran) - bad) / len(ran):.1%}" if ran else None,
        "unsupported": statuses.count("unsupported"),
        "wrong": bad,
        "one call, us": _microseconds(document.get("call_us")),
        "file": path.name,
    }


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[dict[str, Any]]:
    return [_object(one) for one in value] if isinstance(value, list) else []


def _microseconds(value: object) -> str | None:
    try:
        return f"{value:.2f}" if isinstance(value, int | float) else None
    except OverflowError:  # an integer beyond all floats
        return None


def _wrong_cases(document: dict[str, Any]) -> list[dict[str, str]]:
    return [
        {"case": str(row.get("name", "")), "message": str(row.get("message", ""))}
        for row in document["cases"]
        if row["status"] in BAD
    ]


def _cells(row: dict[str, Any]) -> list[str]:
    return ["" if row[name] is None else str(row[name]) for name in COLUMNS]


def _markdown(rows: Sequence[dict[str, Any]], wrong: Sequence[Sequence[dict[str, str]]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |\n"

    text = "# Self-tests of rocpy\n\n" + line(COLUMNS) + line(["---"] * len(COLUMNS))
    text += "".join(line(_cells(row)) for row in rows)
    for row, cases in zip(rows, wrong, strict=True):
        if cases:
            text += f"\n## Wrong cases in {row['file']}\n\n" + line(WRONG_COLUMNS) + line(("---", "---"))
            text += "".join(line((case["case"], case["message"])) for case in cases)
    return text


def _page(rows: Sequence[dict[str, Any]], wrong: Sequence[Sequence[dict[str, str]]]) -> str:
    tables = [table("", COLUMNS, map(_cells, rows))]
    for row, cases in zip(rows, wrong, strict=True):
        if cases:
            lines = [(case["case"], case["message"]) for case in cases]
            tables.append(table(f"Wrong cases in {row['file']}", WRONG_COLUMNS, lines))
    return page("Self-tests of rocpy", tables)
