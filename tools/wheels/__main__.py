# SPDX-License-Identifier: MIT
"""Build the sdist and manylinux wheels from it, look into them, and test them in clean environments outside the tree.

Without arguments: for this Python and this machine's architecture. The environment that runs this has the build
requirements and what requirements/wheels.txt lists. What the machine lacks is reported before anything is built. The
last lines of the output list what was built and how it was tested, after an error too.
"""

import argparse
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from foreign import check_foreign_tools, run_foreign
from installed import check_contents, run_documents, run_installed
from pythons import MissingPythonError, find_python
from toolchain import MissingToolError, compilers, make_toolchain

from build import ROOT, Interpreter, build_sdist, build_wheel, run, this_interpreter

ARCHITECTURES = ("x86_64", "aarch64")
# Not the free-threaded ones: docs/project/policy.md says why.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
BUILD = ROOT / "build" / "wheels"


@dataclass
class Result:
    """A line of the summary: a file that was built, and how it was tested; or what was not built."""

    path: Path | None
    state: str

    def __str__(self) -> str:
        if self.path is None:
            return f"           {self.state}"
        return f"{self.path.stat().st_size / 1e6:6.2f} MB  {self.path.name}  {self.state}".rstrip()


def missing_tools(architectures: Sequence[str]) -> list[str]:
    """Return what this machine lacks to build and test wheels for these architectures, and what to install."""
    problems = []
    for arch in architectures:
        for check in (compilers, *([check_foreign_tools] if arch != platform.machine() else [])):
            try:
                check(arch)
            except MissingToolError as error:
                problems.append(str(error))
    return problems


def interpreters(every: bool) -> Iterator[Interpreter | str]:
    """Yield each Python to build for, with the build requirements, or why there is none of a version."""
    this = this_interpreter()
    yield this
    for name in PYTHONS if every else ():
        if name == this.name:
            continue
        try:
            command = find_python(name)
        except MissingPythonError as error:
            yield str(error)
            continue
        environment = BUILD / f"environment-{name}"
        run(command, "-m", "venv", "--clear", environment, cwd=BUILD)
        python = environment / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "-r", ROOT / "requirements" / "locked" / "build.txt", cwd=BUILD)
        yield Interpreter(python)


def make_wheel(
    sdist: Path, interpreter: Interpreter, arch: str, folder: Path, documents: Sequence[str], results: list[Result]
) -> None:
    """Build one wheel and test it, with the blocks of the documents if packages for them are named."""
    wheel = build_wheel(sdist, interpreter, make_toolchain(arch, BUILD), BUILD, folder)
    result = Result(wheel, "FAILED its tests")
    results.append(result)
    check_contents(wheel, sdist)
    if arch != platform.machine():
        result.state = run_foreign(wheel, interpreter, arch, BUILD)
        return
    run_installed(wheel, sdist, interpreter)
    if documents and interpreter.path == Path(sys.executable):
        run_documents(wheel, interpreter, documents)
        result.state = "tested, with every block of README and the site"
    else:
        result.state = "tested"


def make_all(arguments: argparse.Namespace, architectures: Sequence[str], results: list[Result]) -> None:
    """Build and test what the arguments ask for; a result is in the list as soon as its file is built."""
    folder = arguments.output.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    sdist = build_sdist(folder)
    results.append(Result(sdist, ""))
    for interpreter in interpreters(arguments.all_pythons):
        if isinstance(interpreter, str):
            results.append(Result(None, f"not built, untested: {interpreter} (cibuildwheel builds and tests it)"))
            continue
        for arch in architectures:
            make_wheel(sdist, interpreter, arch, folder, arguments.documents, results)


def main() -> int:
    """Run the steps; return 0 unless one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all-architectures", action="store_true", help=f"build for {' and '.join(ARCHITECTURES)}")
    parser.add_argument(
        "--all-pythons", action="store_true", help=f"build for each of {', '.join(PYTHONS)} that this machine has"
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
    architectures = ARCHITECTURES if arguments.all_architectures else (platform.machine(),)
    if problems := missing_tools(architectures):
        print(*(f"error: {problem}" for problem in problems), "nothing was built", sep="\n", file=sys.stderr)
        return 1
    results: list[Result] = []
    error = ""
    try:
        make_all(arguments, architectures, results)
    except MissingToolError as missing:
        error = f"error: {missing}"
    except subprocess.CalledProcessError as failed:
        error = f"failed with {failed.returncode}: {failed.cmd}"
    print(*results, sep="\n", flush=True)
    if error:
        print(error, file=sys.stderr)
    return int(bool(error))


if __name__ == "__main__":
    sys.exit(main())
