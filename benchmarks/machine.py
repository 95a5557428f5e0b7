# SPDX-License-Identifier: MIT
"""What a benchmark ran on: platform, device, versions, instruction set, the libraries' kernels, and measured peaks."""

from __future__ import annotations

import ctypes
import json
import math
import os
import platform as python_platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
MAPS = Path("/proc/self/maps")
PACKAGES = ("numpy", "scipy", "torch", "jax", "nvmath-python", "mkl")


@dataclass(frozen=True)
class InstructionSet:
    """What holds rocpy and its peers to a set of instructions, and a compiler's options for it."""

    switches: Mapping[str, str]
    options: tuple[str, ...]


# oneDNN is in torch, OpenBLAS in numpy and scipy; glibc's switch holds memcpy.
INSTRUCTION_SETS = {
    "native": InstructionSet({}, ("-march=native",)),
    "avx2": InstructionSet(
        {
            "ROCPY_HOST_ISA": "avx2",
            "ATEN_CPU_CAPABILITY": "avx2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "OPENBLAS_CORETYPE": "Haswell",
            "BLIS_ARCH_TYPE": "haswell",
            "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
            "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD,-AVX512DQ",
        },
        ("-mavx2", "-mfma", "-mf16c"),
    ),
}


def environment(threads: int, isa: str = "native") -> dict[str, str]:
    """Return the environment in which every library starts with this number of threads and this instruction set."""
    count = str(threads)
    return (
        os.environ
        | INSTRUCTION_SETS[isa].switches
        | {
            "OMP_NUM_THREADS": count,
            "OPENBLAS_NUM_THREADS": count,
            "MKL_NUM_THREADS": count,
            "ROCPY_NUM_THREADS": count,
            # What torch.compile made under one instruction set ends a process under another.
            "TORCHINDUCTOR_CACHE_DIR": str(Path(tempfile.gettempdir()) / f"rocpy-bench-torchinductor-{isa}"),
            # Idle threads of a rival must not spin while the next one is measured: log2 of cycles, and milliseconds.
            "OPENBLAS_THREAD_TIMEOUT": "4",
            "KMP_BLOCKTIME": "1",
        }
    )


def command(script: str) -> str:
    """Return the command that repeats this run; the file of its results is no part of it."""
    words = sys.argv[1:]
    if "--json" in words:
        first = words.index("--json")
        del words[first : first + 2]
    return " ".join(["python", f"benchmarks/{script}", *words])


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a benchmark's result as JSON, in one step; one without rows does not replace another."""
    if not result["rows"] and path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that are compared."""
    import rocpy

    found = {"python": python_platform.python_version(), "rocpy": rocpy.__version__}
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


def device() -> tuple[str, str, str]:
    """Return the platform that rocpy chose, its first device, and that device's instruction set or architecture."""
    import numpy as np

    import rocpy

    one = np.ones((1, 1), np.float32)
    explanation = rocpy.explain(one, one)
    chosen = rocpy.platform.current()
    return explanation.platform, explanation.device, str(chosen.info.get("isa") or chosen.devices[0].arch)


def context(name: str, command: str) -> dict[str, Any]:
    """Return what every row carries."""
    platform, device_name, isa = device()
    return {
        "benchmark": name,
        "platform": platform,
        "device": device_name,
        "isa": isa,
        "versions": versions(),
        "commit": commit(),
        "command": command,
    }


def compile_program(source: str, folder: Path, *options: str, isa: str = "native") -> Path | None:
    """Compile a C++ file of this folder for an instruction set; None where there is no compiler that can."""
    compiler = next((found for found in map(shutil.which, ("g++", "clang++", "c++")) if found), None)
    program = folder / Path(source).stem
    if compiler is None or not (HERE / "cpp" / source).exists():  # a wheel holds no C++
        return None
    if not program.exists():
        words = [
            compiler,
            "-std=c++17",
            "-O3",
            *INSTRUCTION_SETS[isa].options,
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


def fma_peak(threads: int, folder: Path, *, runs: int = 40, isa: str = "native") -> dict[str, float]:
    """Return the measured peak in GF/s by dtype: multiply-adds in registers alone, best of several runs."""
    return measured_by("fma_peak.cpp", folder, threads, runs, "-ffp-contract=fast", isa=isa)


def read_bandwidth(threads: int, folder: Path, *, quick: bool = False, isa: str = "native") -> dict[int, float]:
    """Return the measured GB/s of reading in order, by the bytes of the working set."""
    found = measured_by("stream_read.cpp", folder, threads, 1 if quick else 12, isa=isa)
    return {int(size): rate for size, rate in found.items()}


@dataclass(frozen=True)
class Roofline:
    """The measured bounds of the machine: GF/s by dtype, and GB/s by the bytes of a working set.

    The roofline of a product is the larger of two times: its multiply-adds at the peak of the FMA units, and its
    operands and result at the bandwidth with which a working set of that size is read.
    """

    peak: Mapping[str, float]
    bandwidth: Mapping[int, float]

    def microseconds(self, shape: tuple[int, int, int], dtype: str, calls: int, entries: int) -> float | None:
        """Return the time below which no product can be, or None where the bounds could not be measured.

        The first of the `calls` of a sample finds in the caches what the operands of all `entries` left there, the
        others find their own.
        """
        if dtype not in self.peak or not self.bandwidth:
            return None
        m, n, k = shape
        size = np.dtype(dtype).itemsize * (m * k + k * n + m * n)
        arithmetic = 2.0 * m * n * k / self.peak[dtype]
        first, others = (max(arithmetic, size / self.rate(working_set)) for working_set in (size * entries, size))
        return (first + (calls - 1) * others) / calls / 1e3

    def rate(self, size: int) -> float:
        """Return GB/s between the measured working sets, along a line over the logarithm of their bytes."""
        sizes = sorted(self.bandwidth)
        rates = [self.bandwidth[one] for one in sizes]
        return float(np.interp(math.log(size), [math.log(one) for one in sizes], rates))


def measured_by(
    source: str, folder: Path, threads: int, runs: int, *options: str, isa: str = "native"
) -> dict[str, float]:
    """Return what a C++ program of this folder measured; nothing where it cannot be compiled."""
    program = compile_program(source, folder, *options, isa=isa)
    if program is None:
        return {}
    done = subprocess.run([str(program), str(threads), str(runs)], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def kernels_of_peers() -> dict[str, str]:
    """Return the kernels of every peer that has been imported."""
    found = {"numpy": openblas_of("numpy")}
    if "scipy.linalg.blas" in sys.modules:
        found["scipy"] = openblas_of("scipy")
    if "torch" in sys.modules:
        found["torch"] = torch_kernels()
    return found


def openblas_of(package: str) -> str:
    """Return the kernels that a package's OpenBLAS has chosen, once the package has been imported."""
    for path in {line.split()[-1] for line in MAPS.read_text(encoding="utf-8").splitlines() if "openblas" in line}:
        if f"/{package}" not in path:
            continue
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_get_corename64_", "scipy_openblas_get_corename", "openblas_get_corename"):
            function = getattr(library, name, None)
            if function is not None:
                function.restype = ctypes.c_char_p
                return f"OpenBLAS {function().decode()}"
    return "unknown"


@cache
def torch_kernels() -> str:
    """Return torch's own kernels, and for which processors MKL says that it computes."""
    import torch

    own = f"ATen {torch.backends.cpu.get_cpu_capability()}"
    if not torch.backends.mkl.is_available():
        return own
    named = re.search(r"^MKL_VERBOSE .* for .*? architecture (.*?)(?: enabled)? processors", mkl_report(), re.MULTILINE)
    return f"{own}, MKL for {named[1].replace('(R)', '') if named else 'unknown processors'}"


def mkl_report() -> str:
    """Return what torch's MKL prints of a product: it writes to the file that stdout is, past Python."""
    import torch

    c_library = ctypes.CDLL(None)
    sys.stdout.flush()
    c_library.fflush(None)
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            with torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON):
                torch.ones(64, 64) @ torch.ones(64, 64)
            c_library.fflush(None)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        return file.read().decode(errors="replace")
