# SPDX-License-Identifier: MIT
"""What a manylinux wheel is linked with: the C and C++ libraries as old systems have them, in a folder of stubs.

The compiler is the machine's GCC, or Debian's for another architecture, so that a wheel holds the code that is tested
and measured. A stub has the names of a library and no code: of the C library, ziglang makes them for any release; of
the C++ library, they are made here from those names of the machine's own that are old enough. What is newer comes
from the static C++ library.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

GLIBC = (2, 28)
# The newest node of each family that the policy manylinux_2_28 allows in libstdc++.so.6.
NEWEST = {"GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}
# Where a stub has a name that is no function's, and what the assembler calls it.
SECTIONS = {"STT_OBJECT": (".data", "object"), "STT_TLS": ('.tbss,"awT",%nobits', "tls_object")}
C_LIBRARIES = {"c": 6, "m": 6, "pthread": 0, "dl": 2, "rt": 1, "ld": 2}
COMPAT_SOURCE = Path(__file__).with_name("compat.c")


class MissingToolError(Exception):
    """A program or file that a build needs is not on this machine; the text says what to install."""


@dataclass(frozen=True)
class Toolchain:
    """Compilers and stubs for one architecture, and CMake's file that names them."""

    arch: str
    file: Path

    @property
    def platform_tag(self) -> str:
        """The platform's part of the wheel's name."""
        return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{self.arch}"


def compilers(arch: str) -> dict[str, str]:
    """Return the path of each program of GCC for ``arch``: the machine's own where that is its architecture."""
    prefix = "" if arch == platform.machine() else f"{arch}-linux-gnu-"
    found = {name: shutil.which(prefix + name) for name in ("gcc", "g++", "ar", "strip")}
    missing = [prefix + name for name, path in found.items() if path is None]
    if missing:
        package = "g++" if not prefix else f"g++-{arch.replace('_', '-')}-linux-gnu"
        raise MissingToolError(
            f"{', '.join(missing)} not found: wheels for {arch} need GCC (on Debian: apt-get install {package})"
        )
    programs = {name: path for name, path in found.items() if path}
    for library in ("libstdc++.a", "libstdc++.so.6", "libc_nonshared.a"):
        if not Path(output_of(programs["g++"], f"-print-file-name={library}").strip()).is_absolute():
            raise MissingToolError(
                f"{programs['g++']} has no {library}: its development files are needed, static ones too"
            )
    return programs


def output_of(*command: str | Path) -> str:
    """Return what a program prints."""
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def c_library_stubs(arch: str, folder: Path, caches: Path) -> None:
    """Let ziglang make its stubs of the C library, and put them into ``folder`` under a linker's names."""
    cache = caches / f"{arch}-{metadata.version('ziglang')}"
    source = folder.parent / "empty.c"
    source.write_text("int rocpy_empty;\n")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", f"{arch}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}", "-shared"]
    environ = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)}
    output = folder.parent / "empty.so"
    subprocess.run(
        [*command, source, "-o", output, *(f"-l{name}" for name in C_LIBRARIES if name not in ("c", "ld"))],
        check=True,
        env=environ,
    )
    for name, version in C_LIBRARIES.items():
        (made,) = cache.glob(f"o/*/lib{name}.so.{version}")
        shutil.copy(made, folder / made.name)
        (folder / f"lib{name}.so").symlink_to(made.name)


def version_of(node: str) -> tuple[str, tuple[int, ...]]:
    """Split "GLIBCXX_3.4.24" into its family and number; a node without a number has an empty one."""
    family, _, number = node.partition("_")
    parts = number.split(".")
    return family, tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else ()


def old_names(library: Path) -> dict[str, dict[str, tuple[str, int]]]:
    """Return the names of a C++ library that NEWEST allows, each under its newest: {node: {name: (type, size)}}."""
    chosen: dict[str, tuple[tuple[int, ...], str, str, int]] = {}
    with library.open("rb") as stream:
        elf = ELFFile(stream)
        symbols, versions, definitions = (
            elf.get_section_by_name(f".{name}") for name in ("dynsym", "gnu.version", "gnu.version_d")
        )
        assert isinstance(symbols, SymbolTableSection)
        assert isinstance(versions, GNUVerSymSection)
        assert isinstance(definitions, GNUVerDefSection)
        nodes = {verdef["vd_ndx"]: next(iter(names)).name for verdef, names in definitions.iter_versions()}
        for index, symbol in enumerate(symbols.iter_symbols()):
            number = versions.get_symbol(index)["ndx"]
            if symbol["st_shndx"] in ("SHN_UNDEF", "SHN_ABS") or not isinstance(number, int):
                continue
            node = nodes[number & 0x7FFF]
            family, version = version_of(node)
            if not version or version > NEWEST.get(family, ()):
                continue
            if symbol.name not in chosen or version > chosen[symbol.name][0]:
                chosen[symbol.name] = (version, node, symbol["st_info"]["type"], symbol["st_size"])
    names: dict[str, dict[str, tuple[str, int]]] = defaultdict(dict)
    for name, (_, node, kind, size) in chosen.items():
        names[node][name] = (kind, size)
    return names


def cxx_library_stub(programs: dict[str, str], folder: Path) -> None:
    """Make libstdc++.so.6 with the names that are old enough, from the compiler's own."""
    library = Path(output_of(programs["g++"], "-print-file-name=libstdc++.so.6").strip()).resolve()
    names = old_names(library)
    assembly = []
    for members in names.values():
        for name, (kind, size) in members.items():
            section, shape = SECTIONS.get(kind, (".text", "function"))
            assembly += [
                f".section {section}",
                f".globl {name}",
                f".type {name},%{shape}",
                f".size {name},{size}",
                f"{name}:",
                ".zero 8",
            ]
    source, script = folder.parent / "libstdc++.s", folder.parent / "libstdc++.map"
    source.write_text("\n".join(assembly) + "\n")
    script.write_text(
        "".join(f"{node} {{ {'; '.join(sorted(members))}; }};\n" for node, members in sorted(names.items()))
    )
    link = ["-shared", "-nostdlib", "-Wl,-soname,libstdc++.so.6", f"-Wl,--version-script={script}"]
    output_of(programs["gcc"], *link, source, "-o", folder / "libstdc++.so.6")
    (folder / "libstdc++.so").symlink_to("libstdc++.so.6")


def make_toolchain(arch: str, build: Path) -> Toolchain:
    """Make the stubs for ``arch`` in a folder below ``build``, and CMake's file that links with them alone."""
    programs = compilers(arch)
    root = build / "toolchain" / arch
    folder = root / "lib"
    made = Toolchain(arch, root / "toolchain.cmake")
    shutil.rmtree(root, ignore_errors=True)
    folder.mkdir(parents=True)
    c_library_stubs(arch, folder, build / "zig")
    cxx_library_stub(programs, folder)
    for part in ("FLAG", "STAT", "WAIT"):
        options = ("-O2", "-fPIC", "-Wall", "-Werror", f"-DROCPY_{part}")
        output_of(programs["gcc"], *options, "-c", COMPAT_SOURCE, "-o", root / f"{part}.o")
    output_of(programs["ar"], "rcs", folder / "librocpy_compat.a", *sorted(root.glob("*.o")))
    # The static C++ library adds what the stub before it lacks, and nothing that the stub has: the stub stays, whatever
    # is known to be needed of it before the optimiser has run.
    c_libraries = "-lrocpy_compat -Wl,--as-needed -lgcc_s -lgcc -lm -lpthread -ldl -lrt -lc -l:libc_nonshared.a -lld"
    libraries = {"C": c_libraries, "CXX": f"-Wl,--no-as-needed -lstdc++ -l:libstdc++.a {c_libraries}"}
    options = f"-nodefaultlibs -L{folder} -Wl,--exclude-libs,libstdc++.a:libgcc.a:librocpy_compat.a:libc_nonshared.a"
    lines = [f'string(APPEND CMAKE_{kind}_LINKER_FLAGS_INIT " {options}")' for kind in ("SHARED", "MODULE", "EXE")] + [
        f'set(CMAKE_{language}_STANDARD_LIBRARIES_INIT "{words}")' for language, words in libraries.items()
    ]
    if arch != platform.machine():
        lines += [
            "set(CMAKE_SYSTEM_NAME Linux)",
            # CMake searches for a Python only where it may run one: this machine's, which generates code.
            "set(CMAKE_CROSSCOMPILING_EMULATOR /usr/bin/env)",
            f"set(CMAKE_SYSTEM_PROCESSOR {arch})",
            f'set(CMAKE_C_COMPILER "{programs["gcc"]}")',
            f'set(CMAKE_CXX_COMPILER "{programs["g++"]}")',
        ]
    made.file.write_text("\n".join(lines) + "\n")
    return made
