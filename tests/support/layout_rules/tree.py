# SPDX-License-Identifier: MIT
"""What a rule is, and the tree that rules read: tracked text files, by path from the root."""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SKIPPED_FOLDERS = {".git", ".venv", "build", "dist", "__pycache__"}

Tree = Mapping[str, str]
Check = Callable[[Tree], Iterator[str]]


@dataclass(frozen=True)
class Rule:
    """A check over the tree, with violations that it must report: one per planted set of files."""

    name: str
    check: Check
    planted: tuple[Mapping[str, str], ...]

    def problems(self, tree: Tree) -> list[str]:
        """Return what the check complains about."""
        return list(self.check(tree))


RULES: list[Rule] = []


def rule(*planted: Mapping[str, str]) -> Callable[[Check], Check]:
    """Register the function as a rule; `planted` are the violations that show it is not vacuous."""

    def register(check: Check) -> Check:
        RULES.append(Rule(check.__name__, check, planted))
        return check

    return register


def tracked_paths() -> list[str]:
    """Return the files that git tracks or would add; in an unpacked sdist, all of them."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return sorted({path for path in listed.stdout.split("\0") if path and (ROOT / path).is_file()})
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return sorted(str(path) for path in paths if not SKIPPED_FOLDERS & set(path.parts))


def read_tree() -> dict[str, str]:
    """Return path and text of every tracked text file."""
    tree = {}
    for path in tracked_paths():
        try:
            tree[path] = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return tree


def matching(tree: Tree, *prefixes: str, suffixes: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of files under one of the folders and with one of the endings; vendored files are left out."""
    for path, text in tree.items():
        if (
            "third_party" not in path.split("/")
            and path.startswith(prefixes or "")
            and (not suffixes or path.endswith(suffixes))
        ):
            yield path, text


def numbered(text: str) -> Iterator[tuple[int, str]]:
    """Yield (line number, line)."""
    yield from enumerate(text.splitlines(), 1)
