# SPDX-License-Identifier: MIT
"""Run clang-tidy with .clang-tidy over the C++ of the tree: `tidy.py [part of a path ...]`.

CMake says how each file is compiled. A file that is built more than once is read once: kernels as those of the
baseline instruction set. Headers are read with the sources that include them, and by themselves where only Cython's
output, generated code or a device's compiler does.
"""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "tidy"
SETTINGS = (
    "-DCMAKE_BUILD_TYPE=Release",
    "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
    "-DCMAKE_CXX_COMPILER_LAUNCHER=",
    "-DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON",
)
# A Cython module whose command finds every header that one includes.
CYTHON_MODULE = "jax/_handler.cpp"
# What GCC is told and clang refuses to read.
GCC_OPTION = re.compile(r" -mmem(cpy|set)-strategy=\S+")
# The device library as one unit, for an architecture of AMD's.
DEVICE_HEADER = "csrc/device/rocpy_coop_python.h"
DEVICE_COMMAND = "clang++ -std=c++17 -x hip --cuda-device-only --offload-arch=gfx942 -nogpuinc -nogpulib -c"


def tracked(*patterns: str) -> list[str]:
    """Return the files that git knows by these patterns."""
    done = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def configured(project: str, *settings: str) -> list[dict[str, str]]:
    """Return the compile commands of a CMake project."""
    build = BUILD / (project.replace("/", "-").replace(".", "package"))
    subprocess.run(
        ["cmake", "-S", project, "-B", build, "-G", "Ninja", "--log-level=WARNING", *SETTINGS, *settings],
        cwd=ROOT,
        check=True,
    )
    text = GCC_OPTION.sub("", (build / "compile_commands.json").read_text(encoding="utf-8"))
    entries: list[dict[str, str]] = json.loads(text)
    return entries


def lone_headers() -> list[str]:
    """Return the headers that no tracked file of C++ includes."""
    headers = tracked("*.hpp")
    text = "".join((ROOT / path).read_text(encoding="utf-8") for path in [*tracked("*.cpp"), *headers])
    included = {Path(name).name for name in re.findall(r'#include "([^"]+)"', text)}
    return [path for path in headers if Path(path).name not in included]


def commands() -> dict[str, dict[str, str]]:
    """Return a compile command of each tracked file."""
    pybind11 = subprocess.run(
        [sys.executable, "-m", "pybind11", "--cmakedir"], check=True, capture_output=True, text=True
    ).stdout.strip()
    package = configured(".", f"-Dpybind11_DIR={pybind11}")
    # Without OpenMP, whose header clang-tidy's package lacks.
    tests = configured("tests/cpp", "-DCMAKE_DISABLE_FIND_PACKAGE_OpenMP=ON")
    sources = {str(ROOT / path): path for path in tracked("*.cpp")}
    chosen: dict[str, dict[str, str]] = {}
    for entry in [*package, *tests]:
        path = sources.get(os.path.normpath(entry["file"]))
        if path is not None:
            chosen[path] = entry  # the last one of a kernel is that of the baseline
    like = next(entry["command"] for entry in package if entry["file"].endswith(CYTHON_MODULE))
    like = like[: like.index(" -o ")] + " -x c++-header -c"
    for header, command in [*((header, like) for header in lone_headers()), (DEVICE_HEADER, DEVICE_COMMAND)]:
        path = str(ROOT / header)
        chosen[header] = {"directory": str(BUILD), "command": f"{command} {path}", "file": path}
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
    unknown = set(tracked("*.cpp")) - set(entries)
    if unknown:
        print("CMake compiles no", ", ".join(sorted(unknown)), file=sys.stderr)
        return 1
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
