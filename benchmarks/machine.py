# SPDX-License-Identifier: MIT
"""What a benchmark ran on: platform, device, versions, commit, and the measured peak of the CPU."""

from __future__ import annotations

import json
import os
import platform as python_platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PACKAGES = ("rocpy", "numpy", "torch", "jax", "nvmath-python", "mkl")


def environment(threads: int) -> dict[str, str]:
    """Return the environment in which every library starts with this number of threads."""
    count = str(threads)
    return os.environ | {
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "ROCPY_NUM_THREADS": count,
        # Idle threads of a rival must not spin while the next one is measured: log2 of cycles, and milliseconds.
        "OPENBLAS_THREAD_TIMEOUT": "4",
        "KMP_BLOCKTIME": "1",
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that are compared."""
    found = {"python": python_platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """Return the commit of the source checkout, with a plus if files differ from it; "release" outside of one."""
    root = HERE.parent
    if not (root / ".git").exists():
        return "release"
    words = ["git", "-C", str(root), "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def device() -> tuple[str, str]:
    """Return the platform that rocpy chose, and the name of its first device."""
    import numpy as np

    import rocpy

    one = np.ones((1, 1), np.float32)
    explanation = rocpy.explain(one, one)
    return explanation.platform, explanation.device


def context(name: str, command: str) -> dict[str, Any]:
    """Return what every row carries."""
    platform, device_name = device()
    return {
        "benchmark": name,
        "platform": platform,
        "device": device_name,
        "versions": versions(),
        "commit": commit(),
        "command": command,
    }


def compile_program(source: str, folder: Path, *options: str) -> Path | None:
    """Compile a C++ file of this folder for this CPU; None where there is no compiler that can."""
    compiler = next((found for found in map(shutil.which, ("g++", "clang++", "c++")) if found), None)
    program = folder / Path(source).stem
    if compiler is None or not (HERE / "cpp" / source).exists():  # a wheel holds no C++
        return None
    if not program.exists():
        words = [
            compiler,
            "-std=c++17",
            "-O3",
            "-march=native",
            *options,
            str(HERE / "cpp" / source),
            "-o",
            str(program),
            "-pthread",
            "-ldl",
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"note: {source} did not compile: {done.stderr.strip().splitlines()[:1]}", file=sys.stderr)
            return None
    return program


def fma_peak(threads: int, folder: Path, *, quick: bool = False) -> dict[str, float]:
    """Return the measured peak in GF/s by dtype: multiply-adds in registers alone, best of several runs."""
    program = compile_program("fma_peak.cpp", folder, "-ffp-contract=fast")
    if program is None:
        return {}
    done = subprocess.run(
        [str(program), str(threads), "1" if quick else "40"], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)
