# SPDX-License-Identifier: MIT
"""Every Python block of README and docs runs, page by page, on the platform at hand."""

import os
import re
from pathlib import Path
from unittest import mock

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Each of them compiles several kernels, which takes seconds.
SLOW = {
    f"docs/kernels/{name}.md"
    for name in (
        "adjacent-difference",
        "exchange",
        "load",
        "merge-sort",
        "radix-sort",
        "reduce-batched",
        "run-length-decode",
        "scan",
        "top-k",
    )
}
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(text):
    """Return (first line, code) of each block."""
    return [(text[: match.start(1)].count("\n"), match[1]) for match in BLOCK.finditer(text)]


def pages():
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        code = blocks(path.read_text(encoding="utf-8"))
        if code:
            marks = [
                getattr(pytest.mark, name)
                for name in ("torch", "jax", "triton")
                if any(f"import {name}" in block for _, block in code)
            ]
            name = path.relative_to(ROOT).as_posix()
            yield pytest.param(path, code, id=name, marks=[*marks, *([pytest.mark.slow] if name in SLOW else [])])


@pytest.mark.parametrize(("path", "code"), list(pages()))
def test_page_runs(path, code, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__page__"}
    # A page may set variables for its own reader, not for the tests after it.
    with mock.patch.dict(os.environ):
        for line, block in code:
            # Line numbers of a failure are those of the page.
            exec(compile("\n" * line + block, str(path), "exec"), names)


def test_pages_are_found():
    found = {parameter.id for parameter in pages()}
    assert {"README.md", "docs/getting-started.md", "docs/guides/matmul.md"} <= found


def test_a_wrong_example_fails():
    ((line, code),) = blocks("text\n\n```python\nassert 1 + 1 == 3\n```\n")
    assert line == 3
    with pytest.raises(AssertionError):
        exec(code, {})


READ = re.compile(r'(?:environ\.get\(|environ\[|getenv\()\s*"([A-Z][A-Z0-9_]*)"')


def test_the_page_of_variables_lists_those_of_other_programs_that_the_sources_read():
    page = (ROOT / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
    listed = re.findall("`(?!ROCPY_)([A-Z][A-Z0-9_]*)`", page.partition("## Variables of other programs")[2])
    sources = [path for folder in ("rocpy", "csrc", "rocpy_torch_backend") for path in (ROOT / folder).rglob("*")]
    read = {
        name
        for path in sources
        if path.suffix in {".py", ".pyx", ".pxd", ".cpp", ".hpp", ".h"}
        for name in READ.findall(path.read_text(encoding="utf-8"))
        if not name.startswith("ROCPY_")
    }
    read.add("XDG_CACHE_HOME")  # by platformdirs
    assert sorted(listed) == sorted(read)
