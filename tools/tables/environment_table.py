# SPDX-License-Identifier: MIT
"""Write the table of docs/reference/environment.md from its rows; with --check, say whether it is up to date."""

import re
import sys
from pathlib import Path

import markers

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "environment.md"
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


def renew(page: str, source: str) -> str:
    """Return the page with the table of the rows."""
    return markers.replace(page, "environment", table(source))


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    source = (ROOT / "csrc/abi/environment.def").read_text(encoding="utf-8")
    return markers.update(PAGE, lambda page: renew(page, source), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
