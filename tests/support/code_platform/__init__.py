# SPDX-License-Identifier: MIT
"""A platform of the shape of AMD's whose code objects run on the CPU: the host platform's rows, not its extensions.

Its devices call themselves gfx942 and have memory of their own. Its hipRTC compiles HIP C++ for this CPU, and its
module rows load and run that: everything from the generated source to the launch is what an AMD GPU would be given.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import generate_abi
import pytest
from host_platform import folder as host_folder

HERE = Path(__file__).resolve().parent
OWN = ("hipGetDevicePropertiesR0600",)
_retained: list[tempfile.TemporaryDirectory] = []


def _forwarding(library: str, file: str, own: tuple[str, ...]) -> str:
    """C source of a library's rows, each calling the host platform's."""
    lines = [
        "#define _GNU_SOURCE", "#include <dlfcn.h>", "#include <stdlib.h>", '#include "types.h"',
        f'static void *opened(void) {{ return dlopen(UNDER "/{file}", RTLD_NOW | RTLD_LOCAL); }}',
        "void *under(void) { static void *h; if (!h) h = opened(); if (!h) abort(); return h; }",
    ]  # fmt: skip
    for row in generate_abi.all_rows():
        if row.library == library and not row.name.startswith(("rocpyExt", "hipModule")) and row.name not in own:
            kinds = ", ".join(kind for kind, _ in row.parameters) or "void"
            call = f"(({row.result} (*)({kinds}))p)({row.arguments})"
            lines.append(
                f"{row.result} {row.name}({row.declaration}) {{ static void *p;"
                f' if (!p) p = dlsym(under(), "{row.name}"); {"" if row.result == "void" else "return "}{call}; }}'
            )
    lines.append("")
    return "\n".join(lines)


@functools.cache
def tree() -> Path:
    """Build the platform, once for each run of the tests; returns a folder for ``ROCM_PATH``."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or _cxx() is None:
        pytest.skip("no C and C++ compiler to build the platform of code objects with")
    scratch = tempfile.TemporaryDirectory(prefix="code-platform-")
    _retained.append(scratch)
    root = Path(scratch.name)
    lib = root / "lib"
    lib.mkdir()
    under = str(host_folder().resolve() / "lib")
    command = [compiler, "-shared", "-fPIC", "-w", f"-I{generate_abi.ABI}", f'-DUNDER="{under}"']
    for library, file, extra in (
        ("hip", "libamdhip64.so", [str(HERE / "modules.c")]),
        ("hipblaslt", "libhipblaslt.so", []),
    ):
        source = root / f"{library}.c"
        source.write_text(_forwarding(library, file, OWN), encoding="utf-8")
        subprocess.run([*command, str(source), *extra, "-o", str(lib / file), "-ldl"], check=True)
    subprocess.run([*command, str(HERE / "hiprtc.c"), "-o", str(lib / "libhiprtc.so")], check=True)
    return root


def _cxx() -> str | None:
    return shutil.which("g++") or shutil.which("clang++")


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return the environment of a process on this platform, with its files in a folder of the test's."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ROCPY_", "ROCM_", "HIP_"))}
    return {
        **inherited,
        "ROCPY_PLATFORM": "amd",
        "ROCM_PATH": str(tree()),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "ROCPY_TUNING_DB": str(folder / "tuning"),
        "CODE_PLATFORM_CXX": str(_cxx()),
        "CODE_PLATFORM_GRID": str(HERE / "grid.hpp"),
        "CODE_PLATFORM_FOLDER": str(folder),
        "CODE_PLATFORM_LOG": str(folder / "launches.log"),
        **more,
    }


def run(folder: Path, program: str, **more: str) -> list[str]:
    """Run a program on the platform; returns the launches: kernel, blocks of the grid's three extents, threads."""
    log = folder / "launches.log"
    log.write_text("")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment(folder, **more), capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return log.read_text().splitlines()
