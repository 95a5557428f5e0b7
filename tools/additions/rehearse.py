# SPDX-License-Identifier: MIT
"""Add a made-up thing to a copy of the tree, in the files that CONTRIBUTING.md names for its kind, and run its tests.

``rehearse.py`` rehearses all kinds that it knows, ``rehearse.py "primitive of kernels"`` one. It fails if the files of
the table's row and those that the addition needs are not the same, or if a test fails. Needs a built package, whose
compiled modules the copy uses.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import collective
import dtype
import epilogue
import library
import primitive

ROOT = Path(__file__).resolve().parent.parent.parent
COMPILED = (".so", "_lib", "_host")


@dataclass(frozen=True)
class Addition:
    """A made-up thing: the texts of the files that it changes, by path, and the tests that must pass with it.

    Where it needs them: the tool of ``make tables`` that writes what is generated, the targets that are built
    again, and what stands for NAME in the table.
    """

    change: Callable[[dict[str, str]], dict[str, str]]
    files: tuple[str, ...]
    test: str
    tests: tuple[str, ...]
    table: str = ""
    builds: tuple[str, ...] = ()
    name: str = ""


ADDITIONS = {
    "further collective of RCCL": Addition(collective.change, collective.FILES, collective.TEST, collective.TESTS),
    "dtype": Addition(
        dtype.change, dtype.FILES, dtype.TEST, dtype.TESTS, table="tables/dtype_table.py", builds=("rocpy_core",)
    ),
    "epilogue": Addition(
        epilogue.change, epilogue.FILES, epilogue.TEST, epilogue.TESTS, table="tables/epilogue_table.py"
    ),
    "library": Addition(
        library.change, library.FILES, library.TEST, library.TESTS, builds=library.TARGETS, name="hipchecksum"
    ),
    "primitive of kernels": Addition(primitive.change, primitive.FILES, primitive.TEST, primitive.TESTS),
}


def named_files(kind: str) -> list[str]:
    """Return what CONTRIBUTING's table names for a kind, without what it names for GPUs and for libraries' own code."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith(f"| {kind} |"))
    names = re.findall(r"`([\w./]+/[\w./]+)`", re.split("; (?:where|for GPUs)", row)[0])
    return [name.replace("NAME", ADDITIONS[kind].name) for name in names]


def problems_of(kind: str) -> list[str]:
    """Return where the table and the addition differ."""
    named, touched = named_files(kind), ADDITIONS[kind].files

    def covers(name: str, path: str) -> bool:
        return path == name or path.startswith(name.rstrip("/") + "/")

    return [
        *(
            f"{path}: not in CONTRIBUTING's row of a {kind}"
            for path in touched
            if not any(covers(n, path) for n in named)
        ),
        *(
            f"{name}: in CONTRIBUTING's row of a {kind}, but not needed"
            for name in named
            if not any(covers(name, p) for p in touched)
        ),
    ]


def copy_tree(folder: Path) -> None:
    """Copy the tree without what git ignores, with the compiled modules that are installed."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for path in filter(None, listed.split("\0")):
        if (ROOT / path).is_file():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, folder / path)
    spec = importlib.util.find_spec("rocpy._core")
    if spec is None or spec.origin is None:
        raise SystemExit("the package is not built: run `make .venv/.stamps/package`")
    installed = Path(spec.origin).parent
    for path in installed.rglob("*"):
        if path.is_file() and (path.suffix == ".so" or path.relative_to(installed).parts[0] in COMPILED):
            target = folder / "rocpy" / path.relative_to(installed)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def build(folder: Path, targets: tuple[str, ...]) -> None:
    """Build libraries and extension modules of the copy, and put them where they are looked for."""
    tree = folder / "build" / "addition"
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    if shutil.which("ccache"):
        # Paths below the copy as relative ones: what one copy compiled serves the next.
        environment |= {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "CCACHE_BASEDIR": str(folder), "CCACHE_NOHASHDIR": "1"}
    pybind11 = [sys.executable, "-m", "pybind11", "--cmakedir"]
    found = subprocess.run(pybind11, check=True, capture_output=True, text=True).stdout.strip()
    options = [
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-Dpybind11_DIR={found}",
        "-DCMAKE_BUILD_WITH_INSTALL_RPATH=ON",
    ]
    configured = ["cmake", "-S", str(folder), "-B", str(tree), "-G", "Ninja", *options]
    for command in (configured, ["cmake", "--build", str(tree), "--target", *targets]):
        subprocess.run(command, env=environment, check=True)
    for built in tree.rglob("*.so"):
        path = built.relative_to(tree)
        if path.parts[0] == "modules":
            path = path.relative_to("modules")
        elif built.name == "librocpy_core.so":
            path = Path("rocpy", "_lib", built.name)
        shutil.copy(built, folder / path)


# Loaded by pytest before anything imports the package: the copy's, not the one that is installed in editable mode.
PLUGIN = """# SPDX-License-Identifier: MIT
\"\"\"Imports the package of this folder.\"\"\"

import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in type(finder).__module__]
sys.path.insert(0, {folder!r})
"""


def rehearse(kind: str) -> int:
    """Add one thing and run its tests; return pytest's exit status."""
    addition = ADDITIONS[kind]
    with tempfile.TemporaryDirectory(prefix="rocpy-addition-") as name:
        folder = Path(name)
        copy_tree(folder)
        before = {
            path: (folder / path).read_text(encoding="utf-8") if (folder / path).exists() else ""
            for path in addition.files
        }
        for path, text in addition.change(before).items():
            if path not in addition.files or text == before[path]:
                raise SystemExit(f"{path}: changed without being listed, or not changed")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        plugin = PLUGIN.format(folder=name)
        if addition.table:
            tool = folder / "tools" / addition.table
            # As where it is run by its path, it finds the modules beside it.
            run = f"{plugin}sys.path.insert(0, {str(tool.parent)!r})\n"
            run += f"import runpy\n\nrunpy.run_path({str(tool)!r}, run_name='__main__')\n"
            subprocess.run([sys.executable, "-c", run], check=True)
        if addition.builds:
            build(folder, addition.builds)
        (folder / "tests" / "test_addition.py").write_text(addition.test, encoding="utf-8")
        (folder / "from_here.py").write_text(plugin, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "from_here", "-p", "no:cacheprovider", "-m", ""]
        return subprocess.run([*command, "tests/test_addition.py", *addition.tests], cwd=folder, check=False).returncode


def main(arguments: list[str]) -> int:
    """Rehearse the kinds; return 1 if the table is wrong of one or a test fails."""
    failed = False
    for kind in arguments or ADDITIONS:
        if kind not in ADDITIONS:
            print(f"usage: rehearse.py [{' | '.join(ADDITIONS)}]", file=sys.stderr)
            return 2
        problems = problems_of(kind)
        if problems:
            print("\n".join(problems), file=sys.stderr)
        failed |= bool(problems) or rehearse(kind) != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
