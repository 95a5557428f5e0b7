# SPDX-License-Identifier: MIT
"""The locked requirements: every pin is there, with what it needs, and nothing without a hash."""

import re
import runpy
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
LOCK = runpy.run_path(str(ROOT / "tools" / "lock.py"))


def requirements_of(path):
    """Return the requirements of a file and of those that it includes, with each one's hashes."""
    found = []
    for line in path.read_text().replace("\\\n", " ").splitlines():
        if line.startswith("-r "):
            found += requirements_of(path.parent / line.removeprefix("-r ").strip())
        elif line and not line.startswith("#"):
            text, *hashes = line.split(" --hash=")
            found.append((Requirement(text.strip()), [one.strip() for one in hashes]))
    return found


def unmet(pins, locked):
    """Return the pins that a locked file does not have at their version, and its packages without a hash."""
    versions = {(one.name.lower().replace("_", "-"), str(one.specifier)) for one, _ in locked}
    wrong = [str(one) for one, _ in pins if (one.name.lower().replace("_", "-"), str(one.specifier)) not in versions]
    return wrong + [
        str(one) for one, hashes in locked if not hashes or not all(h.startswith("sha256:") for h in hashes)
    ]


@pytest.mark.parametrize("name", LOCK["locked_names"]())
def test_locked_requirements_are_those_of_the_file(name):
    pins = requirements_of(LOCK["REQUIREMENTS"] / f"{name}.txt")
    assert pins
    assert unmet(pins, requirements_of(LOCK["LOCKED"] / f"{name}.txt")) == [], "run `make lock`"


def test_another_version_and_a_missing_hash_are_noticed(tmp_path):
    (tmp_path / "pins.txt").write_text("# Two.\none==1.0\ntwo==2.0; sys_platform == 'linux'\n")
    (tmp_path / "locked.txt").write_text("one==1.1 \\\n    --hash=sha256:00\ntwo==2.0\n")
    pins, locked = (requirements_of(tmp_path / f"{name}.txt") for name in ("pins", "locked"))
    assert unmet(pins, locked) == ["one==1.0", "two==2.0"]


def test_every_file_is_locked_and_none_has_torch():
    assert {path.stem for path in LOCK["LOCKED"].glob("*.txt")} == set(LOCK["locked_names"]())
    for path in LOCK["LOCKED"].glob("*.txt"):
        names = {one.name for one, _ in requirements_of(path)}
        assert not {name for name in names if name == "torch" or name.startswith("nvidia-")}, path


def test_only_torch_is_installed_without_hashes():
    lines = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    installs = [line for line in lines if re.search(r"\$\(INSTALL\)|pip.* install", line) and line.startswith("\t")]
    assert len(installs) > 10
    unhashed = [line for line in installs if "$(LOCKED)" not in line and "-e ." not in line]
    assert [line for line in unhashed if "$(TORCH)" not in line and "/*.whl" not in line] == []
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for words in re.findall(r"pip install ([^\n]*)", path.read_text(encoding="utf-8")):
            assert set(words.split()[::2]) == {"-r"}, path
            assert all(word.startswith("requirements/locked/") for word in words.split()[1::2]), path
