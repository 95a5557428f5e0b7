# SPDX-License-Identifier: MIT
"""Compile the core library and the host platform for 64-bit Arm, with ziglang as CMake's cross compiler.

The libraries are linked too, so that a kernel set that exists on x86 alone is noticed.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = "aarch64-linux-gnu.2.28"


def write_compiler(folder: Path, name: str, mode: str) -> Path:
    """Write a one-line program that CMake can call as a compiler."""
    path = folder / name
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang {mode} "$@"\n')
    path.chmod(0o755)
    return path


def main() -> int:
    """Configure and build the libraries; return CMake's status."""
    build = ROOT / "build" / "aarch64"
    tools = build / "tools"
    shutil.rmtree(tools, ignore_errors=True)
    tools.mkdir(parents=True)
    toolchain = tools / "toolchain.cmake"
    compilers = {
        name: write_compiler(tools, name, mode)
        for name, mode in {
            "cc": f"cc -target {TARGET}",
            "c++": f"c++ -target {TARGET}",
            "ar": "ar",
            "ranlib": "ranlib",
        }.items()
    }
    toolchain.write_text(
        "set(CMAKE_SYSTEM_NAME Linux)\nset(CMAKE_SYSTEM_PROCESSOR aarch64)\n"
        f'set(CMAKE_C_COMPILER "{compilers["cc"]}")\nset(CMAKE_CXX_COMPILER "{compilers["c++"]}")\n'
        f'set(CMAKE_AR "{compilers["ar"]}")\nset(CMAKE_RANLIB "{compilers["ranlib"]}")\n'
    )
    configure = [
        "cmake",
        "-S",
        ".",
        "-B",
        str(build),
        "-G",
        "Ninja",
        f"-DCMAKE_TOOLCHAIN_FILE={toolchain}",
        "-DROCPY_PYTHON=OFF",
        "-DCMAKE_BUILD_TYPE=Release",
        "--log-level=WARNING",
    ]
    for command in (configure, ["cmake", "--build", str(build), "--", "--quiet"]):
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        if status:
            return status
    made = sorted(path.name for path in build.rglob("*.so"))
    print("aarch64:", ", ".join(made))
    return 0 if made else 1


if __name__ == "__main__":
    sys.exit(main())
