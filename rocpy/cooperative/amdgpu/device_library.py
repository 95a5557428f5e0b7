# SPDX-License-Identifier: MIT
"""The device library: headers for raw kernels, and what zig's clang and linker make for kernels written in Python."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from rocpy._messages.distribution import install_command
from rocpy.errors import InvalidProblemError, LibraryError, UnsupportedError
from rocpy.runtime import _disk_cache

_CDNA = ("gfx906", "gfx908", "gfx90a", "gfx942", "gfx950")
_RDNA = (
    *("gfx1010", "gfx1011", "gfx1012", "gfx1013"),
    *("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"),
    *("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    *("gfx1200", "gfx1201", "gfx1250"),
)
# Code for a generic target runs on all cards of its family, with a ROCm that reads code objects of version 6.
_GENERIC_CDNA = ("gfx9-generic", "gfx9-4-generic")
_GENERIC_RDNA = ("gfx10-1-generic", "gfx10-3-generic", "gfx11-generic", "gfx12-generic")
# Architectures that code is made for, with the lanes of their waves.
ARCHITECTURES = dict.fromkeys(_CDNA + _GENERIC_CDNA, 64) | dict.fromkeys(_RDNA + _GENERIC_RDNA, 32)
_BOTH_SIZES = re.compile(r"gfx1(?:[01]|2(?!5))")  # those that run waves of 64 lanes beside their own of 32
_PARTS = ("groups", "lanes", "math", "move", "neighbours", "python", "sort")
_HEADERS = ("rocpy_coop.h", *(f"rocpy_coop_{part}.h" for part in _PARTS))
_OPTIONS = (
    "-std=c++17",
    "-O2",
    "-nogpuinc",
    "-nogpulib",
    "-ffp-contract=off",
    "-fno-exceptions",
    "-fgpu-rdc",
    "-emit-llvm",
    "-c",
)
LLVM_VERSION = 22  # of zig's clang; what reads its bitcode is as new
OBJECT_VERSION = 5  # of code objects: how a launch passes what is not the kernel's own argument
_SPILLED_BYTES = 4096  # of a thread's memory, left to registers that do not suffice
_GENERIC_OBJECT_VERSION = 6  # the first that knows generic targets


@functools.cache
def headers() -> dict[str, str]:
    """Return the headers of the device library as text, by name, for the in-memory headers of a hipRTC program.

    Returns
    -------
    dict of str to str
        ``rocpy_coop.h``, which a kernel includes, and the headers that it includes. They need no others.

    Examples
    --------
    >>> from rocpy import cooperative as coop
    >>> "block_reduce" in coop.headers()["rocpy_coop.h"]
    True
    """
    return {name: (header_folder() / name).read_text(encoding="utf-8") for name in _HEADERS}


@functools.cache
def header_folder() -> Path:
    """Return where the headers lie: in the wheel in the package, in a source tree in csrc/device."""
    here = Path(__file__).resolve().parents[1]
    for folder in (here / "include", here.parents[1] / "csrc" / "device"):
        if (folder / _HEADERS[0]).is_file():
            return folder
    raise LibraryError(f"{_HEADERS[0]} is missing from rocpy's installation at {here}: reinstall rocpy")


def wave_size(arch: str) -> int:
    """Return the lanes of an architecture's waves.

    Parameters
    ----------
    arch
        Name as in ``gfx942``.
    """
    try:
        return ARCHITECTURES[arch]
    except (KeyError, TypeError):
        name = str(arch).partition(":")[0]
        if name in ARCHITECTURES:
            raise InvalidProblemError(f"arch is {arch!r}; pass {name!r}, whose code runs with each setting") from None
        raise InvalidProblemError(f"arch is {arch!r}; code is generated for {', '.join(ARCHITECTURES)}") from None


def object_version(arch: str) -> int:
    """Return the version of the code objects that are made for an architecture.

    Parameters
    ----------
    arch
        Architecture.
    """
    return _GENERIC_OBJECT_VERSION if arch in _GENERIC_CDNA + _GENERIC_RDNA else OBJECT_VERSION


def has_waves_of(arch: str, lanes: int) -> bool:
    """Return whether an architecture can run waves of so many lanes.

    Parameters
    ----------
    arch
        Architecture.
    lanes
        32 or 64.
    """
    return lanes == wave_size(arch) or _BOTH_SIZES.match(arch) is not None


def wave_options(arch: str, lanes: int) -> tuple[str, ...]:
    """Return what tells clang of waves that are not as large as the architecture's own.

    Parameters
    ----------
    arch
        Architecture.
    lanes
        Lanes of a wave.
    """
    return () if lanes == wave_size(arch) else (f"-mwavefrontsize{lanes}", f"-DCOOP_WARP_SIZE={lanes}")


def shared_limit_bytes(arch: str) -> int:
    """Return the most shared memory that a block may have.

    Parameters
    ----------
    arch
        Architecture.
    """
    return {"gfx950": 163840, "gfx1250": 327680}.get(arch, 65536)


def private_limit_bytes(arch: str, lanes: int) -> int:
    """Return the most memory that a thread's local arrays may have.

    Parameters
    ----------
    arch
        Architecture.
    lanes
        Lanes of a wave.
    """
    wave = {"gfx11": 256 * (2**15 - 1), "gfx12": 256 * (2**18 - 1)}.get(arch[:5], 1024 * (2**13 - 1))
    return wave // lanes - _SPILLED_BYTES


@functools.cache
def zig() -> str:
    """Return the path of zig, whose clang compiles the device library and whose lld links."""
    specification = importlib.util.find_spec("ziglang")
    if specification is None or not specification.submodule_search_locations:
        raise UnsupportedError(
            "code for AMD GPUs is compiled and linked by ziglang, which is not installed: "
            f"{install_command('cooperative')}"
        )
    return str(Path(next(iter(specification.submodule_search_locations))) / "zig")


@functools.cache
def _toolchain() -> str:
    """Return what results depend on beside their source: the headers, the compiler's version and its options."""
    from importlib import metadata

    digest = hashlib.sha256(" ".join((metadata.version("ziglang"), *_OPTIONS)).encode())
    for text in headers().values():
        digest.update(text.encode())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return where compiled code is kept."""
    return _disk_cache.cache_folder("cooperative")


def read_cached(key: str, suffix: str) -> bytes | None:
    """Return what was kept under a key, whole; None otherwise."""
    return _disk_cache.read_bytes(cache_folder() / f"{key}{suffix}")


def keep(key: str, suffix: str, content: bytes) -> None:
    """Keep a result; a folder that cannot be written is no error."""
    _disk_cache.write_bytes(cache_folder() / f"{key}{suffix}", content)


def key_of(*parts: str) -> str:
    """Return the name that a result is kept under: a hash of all it depends on."""
    return hashlib.sha256("\0".join((_toolchain(), *parts)).encode()).hexdigest()[:40]


def bitcode(source: str, arch: str, lanes: int = 0, version: int | None = None) -> bytes:
    """Compile C++ that includes the device library into bitcode, or take it from the cache.

    Parameters
    ----------
    source
        Text of the C++ file.
    arch
        Architecture.
    lanes
        Lanes of a wave; 0: the architecture's own.
    version
        Version of the code object that it becomes part of; None: that of `object_version`.
    """
    version = object_version(arch) if version is None else version
    options = wave_options(arch, lanes or wave_size(arch))
    key = key_of(source, arch, str(version), *options)
    content = read_cached(key, ".bc")
    if content is None:
        with tempfile.TemporaryDirectory(prefix="rocpy-") as folder:
            path = Path(folder)
            (path / "library.hip").write_text(source, encoding="utf-8")
            command = [zig(), "clang", "-x", "hip", "--cuda-device-only", f"--offload-arch={arch}", *_OPTIONS, *options]
            command += [
                f"-mcode-object-version={version}",
                f"-cuid={key}",
            ]  # a name of its own in what is linked
            command += ["-I", str(header_folder()), "-o", "library.bc", "library.hip"]
            _run(command, path, "the device library cannot be compiled")
            content = (path / "library.bc").read_bytes()
        keep(key, ".bc", content)
    return content


def link(objects: Sequence[bytes]) -> bytes:
    """Link relocatable objects into a code object, which HIP loads.

    Parameters
    ----------
    objects
        ELF files for one architecture.
    """
    with tempfile.TemporaryDirectory(prefix="rocpy-") as folder:
        path = Path(folder)
        names = [f"{i}.o" for i in range(len(objects))]
        for name, content in zip(names, objects, strict=True):
            (path / name).write_bytes(content)
        options = ["-shared", "-m", "elf64_amdgpu", "--no-undefined", "-o", "code.hsaco"]
        _run([zig(), "ld.lld", *options, *names], path, "the kernel cannot be linked")
        return (path / "code.hsaco").read_bytes()


def _run(command: Iterable[str], folder: Path, complaint: str) -> None:
    done = subprocess.run(list(command), cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LibraryError(f"{complaint}: {done.stderr.strip() or f'status {done.returncode}'}")
