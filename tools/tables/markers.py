# SPDX-License-Identifier: MIT
"""The parts of pages that tools write: each stands between two comments that name it."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def replace(page: str, name: str, text: str) -> str:
    """Return the page with `text` between the markers of that name."""
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page needs one '{begin}' and one '{end}'")
    head, rest = page.split(begin)
    return f"{head}{begin}\n{text}\n{end}{rest.split(end)[1]}"


def update(path: Path, renew: Callable[[str], str], arguments: Sequence[str]) -> int:
    """Write what `renew` makes of a file's text; with --check, return 1 if that is not what the file has."""
    text = path.read_text(encoding="utf-8")
    fresh = renew(text)
    if "--check" not in arguments:
        path.write_text(fresh, encoding="utf-8")
    elif fresh != text:
        print(f"{path} is out of date: run `make tables`", file=sys.stderr)
        return 1
    return 0
