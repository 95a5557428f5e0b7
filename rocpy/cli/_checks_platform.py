# SPDX-License-Identifier: MIT
"""Checks that load the platform (level 2) and compute on its devices (level 3)."""

from __future__ import annotations

from collections.abc import Iterator

from rocpy.cli._checks import Finding, check
from rocpy.cli._machine import Machine
from rocpy.errors import RocpyError


@check(level=2)
def platform(machine: Machine) -> Iterator[Finding]:
    """Load the platform and say which one, and why."""
    import rocpy

    try:
        current = rocpy.platform.current()
    except RocpyError as error:
        yield Finding("problem", f"no platform can be used: {error}", "ROCPY_PLATFORM=host runs on the CPU")
        return
    yield Finding("ok", f"{current.name}: {current.reason}")
    if current.is_emulated and (machine.amd_gpus() or machine.path("/dev/kfd").exists()):
        yield Finding(
            "problem",
            "there is an AMD GPU, but rocpy runs on the CPU",
            "set ROCPY_PLATFORM=amd to see why AMD's libraries are not used",
        )


@check(level=2)
def one_hip_runtime(machine: Machine) -> Iterator[Finding]:
    """Find two HIP runtimes in one process: they do not know each other's streams and memory."""
    mapped = machine.mapped("amdhip64")
    if len(mapped) > 1:
        yield Finding(
            "problem",
            f"process {machine.process} has mapped {len(mapped)} HIP runtimes: {', '.join(mapped)}",
            "import rocpy after torch, or set ROCM_PATH to the ROCm that the other library uses",
        )
    elif mapped:
        yield Finding("ok", f"one HIP runtime is mapped: {mapped[0]}")


@check(level=3)
def product(_machine: Machine) -> Iterator[Finding]:
    """Compute one fused product per device and compare it with numpy."""
    import numpy as np

    import rocpy

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((65, 40), dtype=np.float32), rng.standard_normal((40, 33), dtype=np.float32)
    bias = rng.standard_normal(33, dtype=np.float32)
    wanted = np.maximum(a.astype(np.float64) @ b + bias, 0.0)
    try:
        result = rocpy.matmul(a, b, epilogue="relu_bias", bias=bias)
    except RocpyError as error:
        yield Finding(
            "problem",
            f"a product failed: {type(error).__name__}: {error}",
            "run `rocpy doctor --selftest` and report its file",
        )
        return
    worst = float(np.max(np.abs(result - wanted)))
    # 40 products of order 1, each rounded to 2**-24, and the sums: far below this; TF32 and a wrong kernel far above.
    if worst <= 1e-4:
        yield Finding("ok", f"relu(a @ b + bias) agrees with numpy (largest difference {worst:.1e})")
    else:
        yield Finding(
            "problem",
            f"relu(a @ b + bias) differs from numpy by {worst:.1e}",
            "run `rocpy doctor --selftest` and report its file",
        )
