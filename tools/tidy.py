# SPDX-License-Identifier: MIT
"""Run clang-tidy with .clang-tidy over the C++ of the tree: `tidy.py [part of a path ...]`.

CMake says how each file is compiled. A file that is built more than once is read once: kernels as those of the
baseline instruction set.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "tidy"
# Without OpenMP, whose header clang-tidy's package lacks.
SETTINGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
    "-DCMAKE_CXX_COMPILER_LAUNCHER=",
    "-DCMAKE_DISABLE_FIND_PACKAGE_OpenMP=ON",
)


def commands() -> dict[str, dict[str, str]]:
    """Return a compile command of each tracked file."""
    subprocess.run(
        ["cmake", "-S", "tests/cpp", "-B", BUILD, "-G", "Ninja", "--log-level=WARNING", *SETTINGS], cwd=ROOT, check=True
    )
    listed = subprocess.run(["git", "ls-files", "*.cpp"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    tracked = {str(ROOT / path): path for path in listed.splitlines()}
    chosen: dict[str, dict[str, str]] = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text(encoding="utf-8")):
        path = tracked.get(os.path.normpath(entry["file"]))
        if path is not None:
            chosen[path] = entry  # the last one of a kernel is that of the baseline
    return chosen


def check(path: str) -> tuple[str, int, str]:
    """Return what clang-tidy says of a file."""
    done = subprocess.run(
        ["clang-tidy", "--quiet", "-p", BUILD / "once", path], cwd=ROOT, check=False, capture_output=True, text=True
    )
    errors = "" if done.returncode == 0 else done.stderr
    return path, done.returncode, done.stdout + errors


def main(parts: list[str]) -> int:
    """Check the files whose path has one of the parts, or all; return 1 if something was found."""
    entries = commands()
    (BUILD / "once").mkdir(exist_ok=True)
    (BUILD / "once" / "compile_commands.json").write_text(json.dumps(list(entries.values())), encoding="utf-8")
    paths = [path for path in sorted(entries) if not parts or any(part in path for part in parts)]
    failed = 0
    with ThreadPoolExecutor(int(os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or os.cpu_count() or 1)) as pool:
        for path, code, text in pool.map(check, paths):
            if code:
                failed += 1
                print(f"{path}:\n{text}", flush=True)
    print(f"clang-tidy: {len(paths)} files, {failed} with findings")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
