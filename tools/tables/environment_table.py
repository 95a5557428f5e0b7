# SPDX-License-Identifier: MIT
"""Write the table of docs/reference/environment.md from its rows; with --check, say whether it is up to date."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "environment.md"
BEGIN, END = "<!-- begin: environment -->", "<!-- end: environment -->"
ROW = re.compile(r'ROCPY_VARIABLE\(\s*(\w+)\s*,\s*"([^"]*)"\s*,\s*(\w+)\s*,\s*"[^"]*"\s*,\s*"((?:[^"\\]|\\.)*)"\s*\)')


def rows(source: str) -> list[tuple[str, str, str, str]]:
    """Return (name, default, reader, meaning) of each variable."""
    return [match.groups() for match in ROW.finditer(source)]  # type: ignore[misc]


def table(source: str) -> str:
    """Return the Markdown table of the rows."""
    lines = ["| variable | default | meaning |", "|---|---|---|"]
    lines += [
        f"| `{name}` | {f'`{default}`' if default else ''} | {meaning} |" for name, default, _, meaning in rows(source)
    ]
    return "\n".join(lines)


def replace(page: str, text: str) -> str:
    """Return the page with `text` between its markers."""
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise ValueError(f"the page needs one '{BEGIN}' and one '{END}'")
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}"


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    page = PAGE.read_text(encoding="utf-8")
    fresh = replace(page, table((ROOT / "csrc/abi/environment.def").read_text(encoding="utf-8")))
    if "--check" in arguments:
        if fresh != page:
            print(f"{PAGE.relative_to(ROOT)} is out of date: run tools/tables/environment_table.py", file=sys.stderr)
        return int(fresh != page)
    PAGE.write_text(fresh, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
