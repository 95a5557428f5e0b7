# SPDX-License-Identifier: MIT
"""Fake ROCm trees, compiled from the rows when a test asks, and programs run against them in a process of their own."""

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import generate_abi
import pytest

ABI = generate_abi.ABI
HIP_6 = 60_342_134
HIP_7 = 70_151_000
HIP_5 = 50_221_152  # Debian 12's ROCm 5.2

# What the fakes answer where "success" alone would not do. The words in capitals come from the compiler's command line.
BODIES = {
    "hipRuntimeGetVersion": "*version = VERSION; return hipSuccess;",
    "hipGetDeviceCount": "*count = DEVICES; return DEVICES > 0 ? hipSuccess : hipErrorNoDevice;",
    "hipGetDevicePropertiesR0600": (
        'memset(properties, 0, sizeof *properties); snprintf(properties->name, 256, "%s", LABEL);'
        ' snprintf(properties->gcnArchName, 256, "gfx942");'
        " return device < DEVICES ? hipSuccess : hipErrorInvalidDevice;"
    ),
    "hipMemGetInfo": "*free = *total = (size_t)1 << 34; return hipSuccess;",
    "hipMalloc": "*ptr = 0; return hipErrorOutOfMemory;",
    "hipGetErrorName": 'return error == hipErrorOutOfMemory ? "hipErrorOutOfMemory" : LABEL;',
    "hipGetErrorString": 'return error == hipErrorOutOfMemory ? "out of memory" : LABEL;',
    "hipblasLtCreate": "static int object; *handle = &object; return HIPBLAS_STATUS_SUCCESS;",
    "hiprtcVersion": "*major = 7; *minor = 2; return HIPRTC_SUCCESS;",
    "ncclGetVersion": "*version = 23004; return ncclSuccess;",
    "hipblasLtGetVersion": "*version = 100401; return HIPBLAS_STATUS_SUCCESS;",
}


def _source(library: str, without: tuple[str, ...]) -> str:
    lines = ["#include <stdio.h>", "#include <stdlib.h>", "#include <string.h>", '#include "types.h"']
    # The mark that the library was opened, left before anybody can call it.
    lines.append(
        '__attribute__((constructor)) static void opened(void) { const char *path = getenv("FAKE_ROCM_LOG");'
        ' FILE *log = path ? fopen(path, "a") : 0; if (log) { fprintf(log, "%s\\n", LABEL); fclose(log); } }'
    )
    for row in generate_abi.all_rows():
        if row.library != library or row.name.startswith("rocpyExt") or row.name in without:
            continue
        body = BODIES.get(row.name, "" if row.result == "void" else "return 0;")
        lines.append(f"{row.result} {row.name}({row.declaration}) {{ {body} }}")
    return "\n".join(lines) + "\n"


@functools.cache
def _compiled(
    library: str, label: str, version: int, devices: int, without: tuple[str, ...], soname: str, needed: str
) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the fake libraries with")
    folder = Path(tempfile.mkdtemp(prefix="fake-rocm-", dir=_scratch()))
    (folder / "fake.c").write_text(_source(library, without), encoding="utf-8")
    defines = [f'-DLABEL="{label}"', f"-DVERSION={version}", f"-DDEVICES={devices}"]
    command = [
        compiler,
        "-shared",
        "-fPIC",
        "-w",
        f"-I{ABI}",
        *defines,
        "fake.c",
        "-o",
        "fake.so",
        f"-Wl,-soname,{soname}",
    ]
    if needed:
        command += ["-Wl,--no-as-needed", needed, "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "fake.so"


@functools.cache
def _scratch() -> str:
    folder = tempfile.TemporaryDirectory(prefix="fake-rocm-")
    _retained.append(folder)
    return folder.name


_retained: list[tempfile.TemporaryDirectory] = []


def tree(
    lib: Path,
    *,
    label: str,
    version: int = HIP_7,
    devices: int = 2,
    without: tuple[str, ...] = (),
    hip: str = "libamdhip64.so",
    hipblaslt: str | None = "libhipblaslt.so",
    rccl: str | None = None,
    hiprtc: str | None = None,
    link: bool = False,
) -> Path:
    """Put fake libraries into a folder.

    Parameters
    ----------
    lib
        The folder, made if need be.
    label
        Name of its devices, and what it writes into the log when it is opened.
    version, devices
        What its HIP answers.
    without
        Functions that it lacks.
    hip, hipblaslt, rccl, hiprtc
        File names; no such library for ``None``.
    link
        Whether hipBLASLt names the HIP runtime as a library that it needs, as AMD's does.

    Returns
    -------
    Path
        The folder.
    """
    lib.mkdir(parents=True, exist_ok=True)
    major = version // 10_000_000
    hip_soname = f"libamdhip64.so.{major}"
    shutil.copy(_compiled("hip", label, version, devices, without, hip_soname, ""), lib / hip)
    if link and not (lib / hip_soname).exists():
        (lib / hip_soname).symlink_to(hip)
    if hipblaslt:
        needed = str(_compiled("hip", label, version, devices, without, hip_soname, "")) if link else ""
        shutil.copy(
            _compiled("hipblaslt", label, version, devices, without, "libhipblaslt.so.1", needed), lib / hipblaslt
        )
    if rccl:
        shutil.copy(_compiled("rccl", label, version, devices, without, "librccl.so.1", ""), lib / rccl)
    if hiprtc:
        shutil.copy(_compiled("hiprtc", label, version, devices, without, "libhiprtc.so.7", ""), lib / hiprtc)
    return lib


def package(site: Path, name: str, **files: str) -> Path:
    """Make a package whose import fails, so that a test notices one; further files by name, without suffix."""
    folder = site / name
    folder.mkdir(parents=True, exist_ok=True)
    files.setdefault("__init__", f"raise AssertionError('{name} was imported')\n")
    for stem, text in files.items():
        (folder / f"{stem}.py").write_text(text, encoding="utf-8")
    return folder


PRELUDE = """
import json, os, sys, warnings
from pathlib import Path

def prepare(node, system_loader):
    from rocpy import _search, platform
    platform.DEVICE_NODES = (node,)
    _search.DEFAULT_ROCM = Path(os.environ["FAKE_ROCM_DEFAULT"])
    if not system_loader:
        trees = _search.rocm_trees
        _search.rocm_trees = lambda excluded: [tree for tree in trees(excluded) if tree.directories]

def mapped(stem):
    lines = Path("/proc/self/maps").read_text().splitlines()
    files = {line.split(maxsplit=5)[5] for line in lines if "/" in line}
    return sorted(file for file in files if Path(file).name.startswith("lib" + stem + ".so"))

def facts():
    from rocpy import platform
    chosen = platform.current()
    return {
        "name": chosen.name, "origin": chosen.origin, "reason": chosen.reason, "hip_python": chosen.hip_python,
        "paths": {name: library.path for name, library in chosen.libraries.items()},
        "versions": {name: library.version for name, library in chosen.libraries.items()},
        "missing": {name: list(library.missing) for name, library in chosen.libraries.items()},
        "devices": [device.name for device in chosen.devices], "is_emulated": chosen.is_emulated,
    }

def failure(call):
    try:
        call()
    except Exception as error:
        bases = [base.__name__ for base in type(error).__mro__]
        return {"type": type(error).__name__, "text": str(error), "bases": bases, "carries": vars(error)}
    return None

result = {}
"""


class Machine:
    """A machine as the loader sees it: its folders, its environment, and whether it has a GPU.

    Parameters
    ----------
    folder
        Where its files go.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / "site"
        self.log = folder / "opened.log"
        self.node = folder / "kfd"
        self.environment: dict[str, str] = {}
        # Whatever torch this Python has must not take part.
        package(self.site, "torch", version="hip = None\n")

    def add_gpu(self) -> None:
        """Let the kernel driver's node exist."""
        self.node.touch()

    def run(self, program: str, *, system_loader: bool = False, early: str = "") -> dict:
        """Run a program that fills ``result``, and give that.

        Parameters
        ----------
        program
            Its text; `prepare` has been called, `facts`, `failure` and `mapped` are there.
        system_loader
            Whether the system's loader may be asked; it knows more than the fake trees.
        early
            What to run before rocpy is imported.

        Returns
        -------
        dict
            ``result``, with ``opened``: the labels of the fake trees whose libraries were opened.
        """
        self.log.write_text("")
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ROCPY_", "ROCM_", "HIP_", "LD_", "COVERAGE")) or name == "LD_PRELOAD"
        }
        search_path = os.pathsep.join([str(self.site), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {
            **inherited,
            "PYTHONPATH": search_path,
            "FAKE_ROCM_LOG": str(self.log),
            "FAKE_ROCM_DEFAULT": str(self.folder / "opt" / "rocm"),
            **self.environment,
        }
        text = "\n".join(
            [
                PRELUDE,
                textwrap.dedent(early),
                f"prepare({str(self.node)!r}, {system_loader})",
                textwrap.dedent(program),
                "print(json.dumps(result))",
            ]
        )
        done = subprocess.run(
            [sys.executable, "-c", text], env=environment, cwd=self.folder, capture_output=True, text=True, timeout=120
        )
        if done.returncode != 0:
            raise AssertionError(f"the program ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        result = json.loads(done.stdout.splitlines()[-1])
        result["opened"] = self.log.read_text().split()
        result["stderr"] = done.stderr
        return result
