# SPDX-License-Identifier: MIT
"""Insertions into a file's text, at a line that must be there once."""

from __future__ import annotations


def insert_before(texts: dict[str, str], path: str, line: str, text: str) -> str:
    """Return a file with text before the one line that is the anchor."""
    if texts[path].count(line) != 1:
        raise SystemExit(f"{path}: {line!r} is there {texts[path].count(line)} times, and must be once")
    return texts[path].replace(line, text + line)
