# SPDX-License-Identifier: MIT
"""Say whether a release can be made of this tree, and refuse with every reason at once where it cannot.

Examined are pyproject.toml, the changelog and the tag. Only the standard library is needed.
"""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def reasons(root: Path, tag: str | None) -> Iterator[str]:
    """Yield each reason why the tree below ``root`` cannot be released as ``tag``, or at all where it is None."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    if not settings["tool"]["rocpy"]["repository"]:
        yield "[tool.rocpy] repository is empty: the address that the links of README and site are made from"
    elif not re.fullmatch(r"https://[^/\s]+/\S*[^/\s]", settings["tool"]["rocpy"]["repository"]):
        yield "[tool.rocpy] repository is not an address: https://HOST/PATH, without a slash at the end"
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", project["version"]):
        yield f"[project] version is {project['version']}: a release has three numbers, or a, b or rc with one more"
    if tag is not None and tag != f"v{project['version']}":
        yield f"the tag is {tag}, the version {project['version']}: it must be v{project['version']}"
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## \[{re.escape(project['version'])}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        yield f'CHANGELOG.md has no section "## [{project["version"]}] - YYYY-MM-DD"'


def main() -> int:
    """Print the reasons; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", help="the tag that the release is made of, as v1.2.3")
    found = list(reasons(ROOT, parser.parse_args().tag))
    for reason in found:
        print(f"not ready: {reason}", file=sys.stderr)
    if not found:
        print("ready")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
