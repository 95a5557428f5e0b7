# SPDX-License-Identifier: MIT
"""Build the sdist and manylinux wheels from it, look into them, and test them in clean environments outside the tree.

Without arguments: for this Python and this machine's architecture. The environment that runs this has the build
requirements and what requirements/wheels.txt lists. What cannot be built or run on this machine is named in the end.
"""

import argparse
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from foreign import run_foreign
from installed import check_contents, run_documents, run_installed
from toolchain import MissingToolError, make_toolchain

from build import ROOT, Interpreter, build_sdist, build_wheel, run, this_interpreter

ARCHITECTURES = ("x86_64", "aarch64")
PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.14t")
BUILD = ROOT / "build" / "wheels"


def interpreters(every: bool) -> Iterator[Interpreter | str]:
    """Yield each Python to build for, with the build requirements, or the name of one that is not on this machine."""
    this = this_interpreter()
    yield this
    for name in PYTHONS if every else ():
        if name == this.name:
            continue
        command = f"python{name}"
        # A version manager's shim for an absent version does not count.
        works = (
            shutil.which(command)
            and not subprocess.run([command, "-c", ""], check=False, capture_output=True).returncode
        )
        if not works:
            yield name
            continue
        environment = BUILD / f"environment-{name}"
        run(command, "-m", "venv", "--clear", environment, cwd=BUILD)
        python = environment / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "-r", ROOT / "requirements" / "locked" / "build.txt", cwd=BUILD)
        yield Interpreter(python)


def make_wheel(sdist: Path, interpreter: Interpreter, arch: str, folder: Path, documents: Sequence[str]) -> str:
    """Build one wheel and test it, with the blocks of the documents if packages for them are named; return its line."""
    wheel = build_wheel(sdist, interpreter, make_toolchain(arch, BUILD), BUILD, folder)
    check_contents(wheel, sdist)
    state = "tested"
    if arch == platform.machine():
        run_installed(wheel, sdist, interpreter)
        if documents and interpreter.path == Path(sys.executable):
            run_documents(wheel, interpreter, documents)
            state = "tested, with every block of README and the site"
    else:
        state = run_foreign(wheel, interpreter, arch, BUILD)
    return f"{wheel.stat().st_size / 1e6:6.2f} MB  {wheel.name}  {state}"


def main() -> int:
    """Run the steps; return 0 unless one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all-architectures", action="store_true", help=f"build for {' and '.join(ARCHITECTURES)}")
    parser.add_argument(
        "--all-pythons", action="store_true", help=f"build for each of {', '.join(PYTHONS)} that is on PATH"
    )
    parser.add_argument(
        "--documents",
        nargs="+",
        default=[],
        metavar="PACKAGE",
        help="also run every block of README and the site on the wheel of this Python, beside these packages",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="the folder for what is built (dist)")
    arguments = parser.parse_args()
    folder = arguments.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    lines = []
    try:
        sdist = build_sdist(folder)
        lines.append(f"{sdist.stat().st_size / 1e6:6.2f} MB  {sdist.name}")
        for interpreter in interpreters(arguments.all_pythons):
            if isinstance(interpreter, str):
                lines.append(f"   not built: no Python {interpreter} on this machine; cibuildwheel builds and tests it")
                continue
            architectures = ARCHITECTURES if arguments.all_architectures else (platform.machine(),)
            lines += [make_wheel(sdist, interpreter, arch, folder, arguments.documents) for arch in architectures]
    except MissingToolError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"failed with {error.returncode}: {error.cmd}", file=sys.stderr)
        return 1
    print(*lines, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
