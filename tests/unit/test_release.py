# SPDX-License-Identifier: MIT
"""What a release is made of: the page that the index shows, and the reasons not to release."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import release
from metadata import project_page

ROOT = Path(__file__).resolve().parent.parent.parent
ADDRESS = "https://example.invalid/team/rocpy"


@pytest.fixture
def tree(tmp_path):
    """Write a tree that can be released, changed as the keywords say, and return its folder."""

    def write(repository=ADDRESS, version="1.2.3", section="## [1.2.3] - 2026-01-31"):
        (tmp_path / "pyproject.toml").write_text(
            f'[project]\nname = "rocpy"\nversion = "{version}"\n[tool.rocpy]\nrepository = "{repository}"\n'
        )
        (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{section}\n")
        return tmp_path

    return write


def test_a_tree_that_is_ready(tree):
    assert list(release.reasons(tree(), "v1.2.3")) == []


@pytest.mark.parametrize(
    ("change", "tag", "words"),
    [
        ({"repository": ""}, "v1.2.3", "repository is empty"),
        ({"repository": "somewhere"}, "v1.2.3", "repository is not an address"),
        ({"repository": ADDRESS + "/"}, "v1.2.3", "repository is not an address"),
        ({"version": "1.2"}, None, "version is 1.2"),
        ({}, "v1.2.4", "the tag is v1.2.4, the version 1.2.3"),
        ({"section": "## [Unreleased]"}, "v1.2.3", 'no section "## [1.2.3]'),
    ],
)
def test_a_tree_that_is_not(tree, change, tag, words):
    assert any(words in reason for reason in release.reasons(tree(**change), tag))


def test_this_tree_waits_for_its_address():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    empty = any("repository is empty" in reason for reason in release.reasons(ROOT, None))
    assert empty == (settings["tool"]["rocpy"]["repository"] == "")


def test_every_link_of_the_page_is_absolute():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    page = project_page.with_addresses(text, ADDRESS, "1.2.3")
    targets = re.findall(r"\]\(([^)\s]+)\)", page)
    assert targets
    assert [target for target in targets if not re.match(r"https://|#", target)] == []
    assert f"{ADDRESS}/blob/v1.2.3/docs/getting-started.md" in targets
    assert f"{ADDRESS}/raw/v1.2.3/docs/_static/overview.svg" in targets
    assert project_page.with_addresses(text, "", "1.2.3") == text


def test_anchors_and_addresses_stay():
    text = "[a](CONTRIBUTING.md#how) [b](#here) [c](https://example.invalid/x)"
    expected = f"[a]({ADDRESS}/blob/v1/CONTRIBUTING.md#how) [b](#here) [c](https://example.invalid/x)"
    assert project_page.with_addresses(text, ADDRESS, "1") == expected


def test_workflows_name_what_exists():
    """A file or target that a workflow names is there, so that a rename is noticed before the owner's host runs it."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    if not workflows:
        pytest.skip("an sdist has no workflows")
    for path in workflows:
        text = path.read_text(encoding="utf-8")
        for named in re.findall(r"(?:tools|requirements)/[\w./-]+|\./\.github/[\w./-]+", text):
            assert (ROOT / named).exists(), (path.name, named)
        for words in re.findall(r"run: make ([^\n]*)", text):
            assert {word for word in words.split() if "=" not in word} <= targets, (path.name, words)


def test_the_distributions_name_is_the_same_everywhere():
    """A rename in pyproject.toml fails here until the pages follow; sources look the name up."""
    name = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    words = rf"(rocpy[\w.-]*|{re.escape(name)})"
    said = re.compile(rf"pip install [\"'`]*{words}|\b{words}\[[a-z]")
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.ipynb")]
    found = {
        (str(path.relative_to(ROOT)), match[1] or match[2])
        for path in pages
        for match in said.finditer(path.read_text(encoding="utf-8"))
    }
    assert found
    assert {(path, other) for path, other in found if other != name} == set()
