# SPDX-License-Identifier: MIT
"""Write the table of docs/developing/emulator.md from the decoder's tables; with --check, say whether it is fresh."""

import re
import sys
from collections import defaultdict
from pathlib import Path

from rocpy.testing import amdgpu

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "developing" / "emulator.md"
BEGIN, END = "<!-- begin: emulator -->", "<!-- end: emulator -->"
ARCHITECTURES = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
WIDTH = 148


def table() -> str:
    """Return how many instructions of each encoding are executed, and the names of those that are not."""
    known: dict[str, list[amdgpu.Opcode]] = defaultdict(list)
    for opcode in amdgpu.opcodes():
        known[opcode.encoding].append(opcode)
    lines = [f"| encoding | {' | '.join(ARCHITECTURES)} |", "|---" * (len(ARCHITECTURES) + 1) + "|"]
    for encoding, rows in known.items():
        cells = []
        for arch in ARCHITECTURES:
            here = [row for row in rows if arch in row.numbers]
            cells.append(f"{sum(row.executed for row in here)} of {len(here)}" if here else "-")
        lines.append(f"| {encoding} | {' | '.join(cells)} |")
    names = sorted({row.name for rows in known.values() for row in rows if not row.executed})
    lines += ["", "Decoded and printed, but not executed:", "", *wrapped(names)]
    return "\n".join(lines)


def wrapped(names: list[str]) -> list[str]:
    """Return the names as lines of text."""
    lines, line = [], ""
    for name in names:
        word = f"`{name}`" + ("." if name == names[-1] else ",")
        if line and len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = ""
        line += (" " if line else "") + word
    return [*lines, line] if line else lines


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    page = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(f"{BEGIN}\n.*?{END}", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        print(f"{PAGE.relative_to(ROOT)} needs one '{BEGIN}' and one '{END}'", file=sys.stderr)
        return 1
    fresh = pattern.sub(lambda _: f"{BEGIN}\n{table()}\n{END}", page)
    if "--check" in arguments:
        if fresh != page:
            print(f"{PAGE.relative_to(ROOT)} is out of date: run tools/emulator_table.py", file=sys.stderr)
        return int(fresh != page)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
