# SPDX-License-Identifier: MIT
"""HIP C++ made into code objects while a program runs: by the platform's hipRTC, else by the clang of ziglang's wheel.

Sources include nothing. What was compiled once is kept on disk, by source, architecture, compiler and its version.
"""

from __future__ import annotations

import functools
import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rocpy import platform
from rocpy.errors import LibraryError, UnsupportedError
from rocpy.runtime import _disk_cache
from rocpy.runtime.kernels import hiprtc

__all__ = ["Compiler", "clang", "code_object", "compiler", "device_arch", "isa_text"]

_LANGUAGE = ["-std=c++17", "-O3"]
# Counts changes that make kept code useless.
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler of HIP C++.

    Parameters
    ----------
    name, version
        Which one.
    run
        Takes source, a file name for messages, and architecture; gives the code object.
    """

    name: str
    version: str
    run: Callable[[str, str, str], bytes]


def device_arch(device: int) -> str:
    """Return the architecture of a device's code objects.

    Raises
    ------
    UnsupportedError
        If it is no GPU of AMD's.
    """
    arch = platform.current().devices[device].arch.partition(":")[0]
    if not arch.startswith("gfx"):
        raise UnsupportedError(f"kernels are compiled for AMD's GPUs, and device {device} is {arch or 'nameless'}")
    return arch


def compiler() -> Compiler:
    """Return the compiler of this process: hipRTC where the platform has it, else ziglang's clang.

    Raises
    ------
    UnsupportedError
        If there is neither.
    """
    if hiprtc.available():
        return Compiler("hiprtc", hiprtc.version(), _by_hiprtc)
    return clang()


def clang() -> Compiler:
    """Return the clang of the package ziglang.

    Raises
    ------
    UnsupportedError
        If it is not installed.
    """
    version = _zig_version()
    if not version:
        raise UnsupportedError(
            "there is no compiler for HIP C++: the platform has no libhiprtc, and the alternative, ziglang's clang, is "
            "not installed (pip install ziglang)"
        )
    return Compiler("ziglang", version, _by_clang)


def code_object(
    source: str, name: str, arch: str, *, using: Compiler | None = None, folder: Path | None = None
) -> bytes:
    """Return a source's code object, compiled now or before.

    Parameters
    ----------
    source
        HIP C++ without headers.
    name
        Of the program, for the compiler's messages.
    arch
        Architecture: ``"gfx942"``.
    using
        The compiler; :func:`compiler` by default.
    folder
        Where code is kept; rocpy's cache by default.

    Raises
    ------
    UnsupportedError
        If there is no compiler.
    LibraryError
        If the source does not compile.
    """
    using = compiler() if using is None else using
    record = "\0".join([str(_FORMAT), source, arch, using.name, using.version, *_LANGUAGE])
    path = (
        _disk_cache.folder() if folder is None else folder
    ) / f"{hashlib.sha256(record.encode()).hexdigest()[:32]}.json"
    record_read = _disk_cache.read(path)
    if record_read is None:
        record_read = {"code": using.run(source, f"{name}.hip", arch), "name": name, "arch": arch, "source": source}
        _disk_cache.write(path, record_read)
    code: bytes = record_read["code"]
    return code


def _by_hiprtc(source: str, name: str, arch: str) -> bytes:
    return hiprtc.compile_source(source, name, [f"--offload-arch={arch}", *_LANGUAGE])


@functools.cache
def _zig_version() -> str:
    if find_spec("ziglang") is None:
        return ""
    # Imported here: it brings `email` and more, which `import rocpy` is to do without.
    from importlib import metadata

    return metadata.version("ziglang")


def _zig(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ziglang", *arguments], capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode != 0:
        raise LibraryError(f"ziglang's {arguments[0]} failed: {done.stderr.strip()[-2000:]}")


def isa_text(source: str, arch: str, folder: Path) -> str:
    """Return the instructions that ziglang's clang makes of a source, as text; ``folder`` is for its files."""
    script, assembly = folder / "source.hip", folder / "code.s"
    script.write_text(source, encoding="utf-8")
    _zig(
        "clang", "-x", "hip", "--cuda-device-only", "-nogpuinc", "-nogpulib", "-mcode-object-version=5", *_LANGUAGE,
        f"--offload-arch={arch}", "-S", str(script), "-o", str(assembly),
    )  # fmt: skip
    return assembly.read_text(encoding="utf-8")


def _by_clang(source: str, name: str, arch: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="rocpy-clang-") as scratch:
        folder = Path(scratch)
        try:
            isa_text(source, arch, folder)
        except LibraryError as error:
            raise LibraryError(f"{name} does not compile: {error}") from None
        assembly, item, linked = folder / "code.s", folder / "code.o", folder / "code.co"
        _zig(
            "clang", "-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}", "-mcode-object-version=5", "-x", "assembler",
            "-c", str(assembly), "-o", str(item),
        )  # fmt: skip
        _zig("ld.lld", "-shared", "-m", "elf64_amdgpu", "--no-undefined", str(item), "-o", str(linked))
        return linked.read_bytes()
