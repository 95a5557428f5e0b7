# SPDX-License-Identifier: MIT
"""The commands that README, the pages and the messages tell a reader to type exist, with their options."""

import re
import shlex
from pathlib import Path

import command_table
import pytest

from rocpy.cli._application import parser_for

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCES = [*sorted((ROOT / "rocpy").rglob("*.py")), *sorted((ROOT / "rocpy").rglob("*.pyx"))]
SPAN = re.compile(r"`(rocpy [^`\n]+)`")
LINE = re.compile(r"^\s*(?:\$ )?(?:\w+=\S* )*(rocpy [^\n]+)$", re.MULTILINE)
FENCE = re.compile(r"^```(?:sh|console|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands_of(text):
    """Return the commands in code spans and in blocks of shell commands."""
    return SPAN.findall(text) + [line for block in FENCE.findall(text) for line in LINE.findall(block)]


def unknown_words(command):
    """Return the commands and options of a command line that rocpy does not have."""
    words = shlex.split(re.split(r" -- | [|>&]", command)[0], comments=True)[1:]
    parser, unknown = parser_for([]), []
    for word in words:
        below = parser.commands()
        if word in below:
            parser = parser_for(words).commands()[word] if parser.prog == "rocpy" else below[word]
        elif word.startswith("-"):
            options = {option for action in parser.actions() for option in action.option_strings}
            unknown += [word] if word.split("=")[0] not in options else []
        elif below:
            unknown.append(word)
    return unknown


@pytest.mark.parametrize("path", [*PAGES, *SOURCES], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_commands_that_are_named_exist(path):
    for command in commands_of(path.read_text(encoding="utf-8")):
        assert unknown_words(command) == [], command


@pytest.mark.parametrize(
    ("command", "unknown"),
    [
        ("rocpy doctr", ["doctr"]),
        ("rocpy bench matmul --onyl x", ["--onyl"]),
        ("rocpy tune lst", ["lst"]),
        ("rocpy tune run a.py -- --epochs 1", []),
        ("rocpy info --json | head --lines 1", []),
    ],
)
def test_a_command_that_does_not_exist_is_noticed(command, unknown):
    assert unknown_words(command) == unknown


def test_the_pages_name_commands():
    assert sum(len(commands_of(path.read_text(encoding="utf-8"))) for path in PAGES) > 50


def test_the_page_of_the_command_line_has_every_option():
    assert command_table.main(["--check"]) == 0, "run `make tables`"
