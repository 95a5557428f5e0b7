# SPDX-License-Identifier: MIT
"""Write every command's options into docs/reference/command-line.md; with --check, say whether it is up to date."""

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import markers

from rocpy.cli._application import COMMANDS, parser_for
from rocpy.cli._parser import Parser

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "command-line.md"


def commands() -> Iterator[Parser]:
    """Return the parser of each command that runs something, those below others too."""
    for name in COMMANDS:
        parser = parser_for([name]).commands()[name]
        yield from parser.commands().values() or [parser]


def words(action: argparse.Action) -> str:
    """Return an option, or a word without one, as it is typed."""
    name = action.metavar if action.metavar is not None else action.dest
    value = " ".join(name) if isinstance(name, tuple) else name
    if not action.option_strings:
        return {"?": f"[{value}]", "*": f"[{value}...]", "+": f"{value}..."}.get(action.nargs, value)
    return " ".join([", ".join(action.option_strings), *([value] if action.nargs != 0 else [])])


def table(parser: Parser) -> list[str]:
    """Return a command's heading and table."""
    lines = [f"### {parser.prog}", "", "| option | meaning |", "|---|---|"]
    for action in parser.actions():
        if action.help is not argparse.SUPPRESS and "--help" not in action.option_strings:
            # An option outside of code would be shown with a dash in the place of its two hyphens.
            meaning = re.sub(r"`[^`]*`|--[a-z-]*", lambda match: f"`{match[0].strip('`')}`", action.help or "")
            cells = (f"`{words(action)}`", meaning)
            lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return [*lines, ""]


def renew(page: str) -> str:
    """Return the page with the options of every command."""
    text = "\n".join(line for parser in commands() for line in table(parser))
    return markers.replace(page, "options", text.rstrip())


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    return markers.update(PAGE, renew, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
