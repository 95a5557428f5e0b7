# SPDX-License-Identifier: MIT
"""Run the linters of requirements/lint.txt over the tracked files: `check` reports, `format` rewrites."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def tracked(*suffixes: str) -> list[str]:
    """Return the files with one of these endings that git knows or would add; vendored files are left alone."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    return sorted(
        path
        for path in listed
        if path.endswith(suffixes) and "third_party" not in path.split("/") and (ROOT / path).is_file()
    )


def commands(mode: str) -> list[list[str]]:
    """Return the command of each linter, files last."""
    python = tracked(".py", ".pyi")
    c_files = tracked(".c", ".h", ".cpp", ".hpp")
    cython = tracked(".pyx", ".pxd")
    text = tracked(
        ".py",
        ".pyi",
        ".pyx",
        ".pxd",
        ".c",
        ".h",
        ".cpp",
        ".hpp",
        ".def",
        ".md",
        ".toml",
        ".cmake",
        ".sh",
        ".yaml",
        "Makefile",
    )
    if mode == "format":
        return [
            ["ruff", "check", "--fix-only", "--quiet", *python],
            ["ruff", "format", *python],
            ["clang-format", "-i", *c_files],
        ]
    return [
        ["ruff", "check", *python],
        ["ruff", "format", "--check", *python],
        ["cython-lint", *cython],
        ["clang-format", "--dry-run", "-Werror", *c_files],
        ["codespell", *text],
        [sys.executable, "tools/prose/banned_words.py"],
    ]


def main(arguments: list[str]) -> int:
    """Run them all; return 1 if one found something."""
    mode = arguments[0] if arguments else "check"
    if mode not in {"check", "format"}:
        print("usage: lint.py check|format", file=sys.stderr)
        return 2
    failed = []
    for command in commands(mode):
        name = " ".join(word for word in command[:3] if not Path(ROOT / word).is_file())
        if name == " ".join(command):
            continue
        print(f"{name}: {sum(Path(ROOT / word).is_file() for word in command)} files", flush=True)
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            failed.append(name)
    if failed:
        print("failed:", ", ".join(failed), file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
