# SPDX-License-Identifier: MIT
"""What the index shows of a release: README with links that lead to the repository, and the project's addresses.

scikit-build-core asks for it when it builds the sdist and wheels (``tool.dynamic-metadata`` in pyproject.toml).
Everything is made from the repository's address there; while that is empty, links stay relative and there are no
addresses.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
# A relative link of Markdown: "!" of a picture, words, path, anchor.
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)#\s]+)(#[^)]*)?\)")
# Blocks of code, in which "x[1](y)" is no link.
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)


def replace_links(link: Callable[[re.Match[str]], str], text: str) -> str:
    """Return Markdown with what ``link`` returns in the place of each relative link outside blocks of code."""
    return "".join(part if FENCED.fullmatch(part) else LINK.sub(link, part) for part in FENCED.split(text))


def file_address(repository: str, version: str, path: str, *, picture: bool = False) -> str:
    """Return where a file of a release can be seen, or, of a picture, fetched."""
    return f"{repository}/{'raw' if picture else 'blob'}/v{version}/{path}"


def with_addresses(text: str, repository: str, version: str) -> str:
    """Return the text of a page at the root of the tree with absolute links; unchanged where there is no repository."""

    def link(match: re.Match[str]) -> str:
        mark, words, path, anchor = match[1], match[2], match[3], match[4] or ""
        return f"{mark}[{words}]({file_address(repository, version, path, picture=bool(mark))}{anchor})"

    return replace_links(link, text) if repository else text


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """Return the fields of ``project`` that are made: scikit-build-core's name for this.

    Parameters
    ----------
    settings
        None are read.
    project
        The table of pyproject.toml, of which the version is read.
    """
    repository = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["rocpy"]["repository"]
    version = project["version"]
    text = with_addresses((ROOT / "README.md").read_text(encoding="utf-8"), repository, version)
    addresses = {
        "Source": repository,
        "Documentation": file_address(repository, version, "docs/index.md"),
        "Changelog": file_address(repository, version, "CHANGELOG.md"),
    }
    return {
        "readme": {"content-type": "text/markdown", "text": text},
        "urls": addresses if repository else {},
    }
