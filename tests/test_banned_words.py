# SPDX-License-Identifier: MIT
"""The tool that counts banned words sees them in names and text, and only them; `make lint` runs it over the tree."""

import ast
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parent.parent / "tools" / "prose"


@pytest.fixture(scope="module")
def tool():
    sys.path.insert(0, str(TOOLS))
    try:
        import banned_words
    finally:
        sys.path.remove(str(TOOLS))
    return banned_words


@pytest.mark.parametrize("name", ["place_of", "RoomOfRank", "_kept", "KEPT_PLANS", "Matmul.way", "beside"])
def test_names_with_a_banned_word_are_seen(tool, name):
    assert tool.banned(name)


@pytest.mark.parametrize("name", ["placement", "in_place", "foundation", "device_index", "Algorithm.always", "replace"])
def test_names_that_only_contain_its_letters_are_not(tool, name):
    assert not tool.banned(name)


@pytest.mark.parametrize(
    "text",
    [
        "The process leaves with 3.",
        "Nothing falls back in\nsilence.",
        "It is composed. Who has no GPU uses the host platform.",
        "an error is told at planning",
        "rows whose bits do not depend on M",
    ],
)
def test_phrases_are_seen_over_line_ends(tool, text):
    assert list(tool.phrases(text))


def test_ordinary_english_passes(tool):
    assert not list(tool.phrases("Numbers are told apart by type; a kernel leaves 3 items."))


def test_members_and_parameters_of_public_names_are_seen(tool):
    tree = ast.parse("class Plan:\n    place: int\n    def run(self, given): ...\nclass Other:\n    way: int\n")
    seen = [name for _, name in tool.public_identifiers(tree, {"Plan"}) if tool.banned(name)]
    assert seen == ["Plan.place", "Plan.given"]


def test_a_private_identifier_is_seen(tool):
    python = tool.private_identifiers(Path("x.pyx"), "kept_plans = [room for room in plan.rooms]  # placed\n")
    assert python == ["kept_plans", "room", "rooms"]
    assert tool.private_identifiers(Path("x.hpp"), "int lonely();  // place\nhipErrorNotFound") == ["lonely"]
    assert tool.private_identifiers(Path("x.md"), "place") == []


def test_strings_and_comments_are_not_code(tool):
    python = tool.CODE[".pyx"].sub(" ", "x = \"kept\"  # found\nplace = 'way'\n")
    native = tool.CODE[".cpp"].sub(" ", 'int kept = f("way"); // found\n/* place */')
    assert (python.split(), native.split()) == (["x", "=", "place", "="], ["int", "kept", "=", "f(", ");"])
