# SPDX-License-Identifier: MIT
"""Write the guide's table of epilogues from the rows of rocpy; with --check, say whether it is up to date."""

from __future__ import annotations

import re
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocpy.blaslt.model.epilogues import EpilogueRow

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "matmul.md"
BEGIN, END = "<!-- begin: epilogues -->", "<!-- end: epilogues -->"
HEAD = "| name | result | inputs | additional result |\n|---|---|---|---|\n"
SUMS = {
    "bgrad": "column sums of the result, length N",
    "bgrada": "row sums of `a`, length M",
    "bgradb": "column sums of `b`, length N",
}


def plain_name(row: EpilogueRow) -> str:
    """Return the name without the suffix of a bias or of its gradient: rows of one such name share a line."""
    return re.sub(r"(?<=.)_(bias|bgrad)$", "", row.name)


def cells(rows: list[EpilogueRow], aliases: dict[str, str]) -> list[str]:
    """Return the cells of one line of the table."""
    names = []
    for row in rows:
        also = ", ".join(f"`{alias}`" for alias, name in aliases.items() if name == row.name)
        mark = r" (\*)" if row.enumerator is None else ""  # escaped: two of them would be emphasis
        names.append(f"`{row.name}`{f' (also {also})' if also else ''}{mark}")
    first, last = rows[0], rows[-1]
    second = "" if len(rows) == 1 else " for the second"
    inputs = [
        *(["`clamp=(low, high)`"] if first.clamp else []),
        *(["`aux`"] if first.aux == "load" else []),
        *([f"`bias`{second}"] if last.bias else []),
    ]
    results = [
        *([f"`{first.aux_name}`: the pre-activation, of the result's shape"] if first.aux == "store" else []),
        *([f"`{last.gradient}`{second}: {SUMS[last.gradient]}"] if last.gradient else []),
    ]
    return [", ".join(names), f"`{first.formula.split(', and ')[0]}`", ", ".join(inputs), ", ".join(results)]


def table() -> str:
    """Return the table, one line for each activation without and with its bias or bias gradient."""
    from rocpy.blaslt import EPILOGUES
    from rocpy.testing.oracles import ALIASES

    lines = [cells(list(rows), ALIASES) for _, rows in groupby(EPILOGUES.values(), plain_name)]
    return HEAD + "".join("| " + " | ".join(line) + " |\n" for line in lines)


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    text = GUIDE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    fresh = f"{before}{BEGIN}\n{table()}{END}{after}"
    if "--check" in arguments:
        if fresh != text:
            print("the table of epilogues in docs/guides/matmul.md is out of date: run `make tables`", file=sys.stderr)
        return int(fresh != text)
    GUIDE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
