# SPDX-License-Identifier: MIT
"""A wheel of another architecture, run here: Debian's Python of that architecture under qemu's user mode."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from toolchain import MissingToolError

from build import ROOT, Interpreter, run

DEBIAN_NAME = {"aarch64": "arm64", "x86_64": "amd64"}
# Products of each type against numpy in float64, and a refusal in rocpy's own words.
PROGRAM = """
import platform
import ml_dtypes, numpy as np, rocpy
rng = np.random.default_rng(0)
a, b, bias = (rng.standard_normal(shape) for shape in ((33, 70), (70, 41), (41,)))
for dtype, relative in (("float64", 1e-12), ("float32", 1e-5), ("float16", 1e-2), (ml_dtypes.bfloat16, 1e-1)):
    left, right, added = (x.astype(dtype) for x in (a, b, bias))
    expected = np.maximum(left.astype(float) @ right.astype(float) + added.astype(float), 0)
    found = rocpy.matmul(left, right, epilogue="relu_bias", bias=added).astype(float)
    assert np.abs(found - expected).max() <= relative * np.abs(expected).max(), dtype
try:
    rocpy.matmul(a, b, epilogue="relu_bia", bias=bias)
except rocpy.errors.RocpyError as error:
    print(type(error).__name__, error)
print(platform.machine(), platform.python_version(), rocpy.__version__)
"""


def emulator_of(arch: str) -> str:
    """Return qemu's user-mode emulator of an architecture."""
    emulator = shutil.which(f"qemu-{arch}-static") or shutil.which(f"qemu-{arch}")
    if emulator is None:
        raise MissingToolError(
            f"qemu-{arch}-static not found: a wheel for {arch} is tested with it "
            "(on Debian: apt-get install qemu-user-static)"
        )
    return emulator


def check_foreign_tools(arch: str) -> None:
    """Raise MissingToolError unless a wheel of another architecture can be tested here."""
    emulator_of(arch)
    missing = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]
    if missing:
        raise MissingToolError(
            f"{' and '.join(missing)} not found: a wheel for {arch} is tested with Debian's Python of that "
            "architecture, which they download and unpack"
        )


def debian_root(arch: str, build: Path) -> Path:
    """Unpack Debian's Python for ``arch``, and what it needs, below ``build``, once; nothing is installed."""
    root = build / f"debian-{arch}"
    if (root / "complete").exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    for name in ("state/lists/partial", "cache/archives/partial"):
        (root / "apt" / name).mkdir(parents=True)
    (root / "apt/status").touch()
    settings = {
        "Dir::State": root / "apt/state",
        "Dir::State::status": root / "apt/status",
        "Dir::Cache": root / "apt/cache",
        "APT::Architecture": DEBIAN_NAME[arch],
        "APT::Architectures": DEBIAN_NAME[arch],
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
        "Debug::NoLocking": "true",
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    run("apt-get", "-qq", *options, "update", cwd=root)
    run("apt-get", "-qq", *options, "--download-only", "install", "-y", "python3", "libstdc++6", cwd=root)
    for package in sorted((root / "apt/cache/archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    shutil.rmtree(root / "apt")
    (root / "complete").touch()
    return root


def run_foreign(wheel: Path, interpreter: Interpreter, arch: str, build: Path) -> str:
    """Run PROGRAM on the wheel and return "tested", or why it could not be."""
    emulator = emulator_of(arch)
    root = debian_root(arch, build)
    python = root / f"usr/bin/python{interpreter.name}"
    if not python.exists():
        there = ", ".join(sorted(path.name for path in (root / "usr/bin").glob("python3.*[0-9]")))
        return f"untested: Debian's Python for {arch} is {there}"
    packages = build / f"packages-{interpreter.abi}-{arch}"
    shutil.rmtree(packages, ignore_errors=True)
    platforms = [word for glibc in (28, 27, 17) for word in ("--platform", f"manylinux_2_{glibc}_{arch}")]
    version = [
        "--implementation",
        "cp",
        "--python-version",
        interpreter.version,
        "--abi",
        interpreter.abi,
        "--abi",
        "abi3",
        "--abi",
        "none",
    ]
    run(
        *(
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--only-binary",
            ":all:",
            "--target",
            packages,
            *platforms,
            *version,
        ),
        *("--constraint", ROOT / "requirements" / "runtime.txt", wheel),
        cwd=build,
    )
    command = [emulator, "-L", root, python, "-W", "error", "-c", PROGRAM]
    print("+", *command[:-1], "...", flush=True)
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(packages),
        "PYTHONHOME": str(root / "usr"),
        "ROCPY_PLATFORM": "host",
    }
    done = subprocess.run(command, cwd=build, env=environ, check=False, capture_output=True, text=True, timeout=1800)
    print(done.stdout, done.stderr, sep="", flush=True)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, f"the wheel's products under {Path(emulator).name}")
    return "tested under qemu"
