# SPDX-License-Identifier: MIT
"""Compiled kernels as object code: kept on disk and brought into the process by llvmlite alone, without Numba.

What a kernel is kept under says all that its code depends on, so that a process which finds it needs no type inference,
and reads one file.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import glob
import hashlib
import importlib.metadata
import json
import os
import platform as machine
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocpy._locks import hold_over_forks
from rocpy.cooperative.cpu import _simt
from rocpy.cooperative.kernel.fingerprint import own_sources
from rocpy.runtime import _disk_cache

_MOST_ALIKE = 256  # files for one name and one kind of arguments; docs/guides/cooperative.md has the number
FORMAT = 5  # of the files: raise it when what is in them, or the runtime's C interface, changes
_lock = threading.Lock()
hold_over_forks(_lock)
_loaded: dict[str, tuple[int, Compiled]] = {}  # addresses by name: a name stands for one code
_UNDEFINED = 0  # section of a symbol that an object does not define
_GLOBAL_BINDINGS = (1, 2)


class Form(enum.IntEnum):
    """How a kernel's entry is called; csrc/simt/block.hpp has the same numbers."""

    FIBERS = 0  # for each thread, on a stack that it may wait on
    TURNS = 1  # for each thread; it returns where the thread waits, and is called again to go on
    LOOPS = 2  # once for a block, all of whose threads it runs


@dataclass(frozen=True)
class Compiled:
    """A kernel's machine code.

    Attributes
    ----------
    name
        Of its entry.
    code
        An object file of this machine.
    form
        How the entry is called.
    needed
        Names that the code takes from the process.
    stack_bytes
        Stack that a thread needs at least.
    written
        Paths of the arguments that it may write to: an argument's number, and the index in it for each tuple.
    environments
        Names of what its functions know of Python, to which the code is connected when it is loaded.
    portable
        Whether another process can use the code: neither it nor an environment has the address of an object, and it has
        no class pickled by value.
    """

    name: str
    code: bytes
    form: Form
    needed: tuple[str, ...]
    stack_bytes: int
    written: tuple[tuple[int, ...], ...]
    environments: tuple[str, ...] = ()
    portable: bool = True


@functools.cache
def engine() -> Any:
    """Return what object code is loaded with; it lives as long as the process."""
    import llvmlite.binding as llvm

    for name, address in _simt.symbols().items():
        llvm.add_symbol(name, address)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)


def load(compiled: Compiled) -> int:
    """Return the address of a kernel's entry; its code is there until the process ends."""
    import llvmlite.binding as llvm

    with _lock:
        if compiled.name not in _loaded:
            executor = engine()
            executor.add_object_file(llvm.ObjectFileRef.from_data(compiled.code))
            executor.finalize_object()
            _loaded[compiled.name] = executor.get_function_address(compiled.name), compiled
        return _loaded[compiled.name][0]


def loaded(name: str) -> Compiled | None:
    """Return the code that this process has loaded by this name."""
    with _lock:
        return _loaded.get(name, (0, None))[1]


def loadable(compiled: Compiled) -> bool:
    """Return whether the process has all that the code takes from it: LLVM ends the process if not."""
    import llvmlite.binding as llvm

    engine()
    return all(llvm.address_of_symbol(name) is not None for name in compiled.needed)


def undefined_symbols(code: bytes) -> tuple[str, ...]:
    """Return the names that an object file of 64 bits takes from elsewhere."""
    offset = struct.unpack_from("<Q", code, 40)[0]
    size, count = struct.unpack_from("<HH", code, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, offset + i * size) for i in range(count)]
    symbols = []
    for _, kind, _, _, begin, length, link, _, _, entry in sections:
        if kind != 2:  # a table of symbols
            continue
        names = sections[link][4]
        for at in range(begin + entry, begin + length, entry):
            name, info, _, section = struct.unpack_from("<IBBH", code, at)
            if section == _UNDEFINED and info >> 4 in _GLOBAL_BINDINGS:
                symbols.append(code[names + name : code.index(b"\0", names + name)].decode())
    return tuple(sorted(symbols))


# On disk.


@functools.cache
def surroundings() -> str:
    """Return what all code depends on: processor, compiler, options of Numba's, and this package's own sources."""
    import llvmlite.binding as llvm

    parts = [str(FORMAT), machine.python_version(), llvm.get_process_triple(), llvm.get_host_cpu_name()]
    parts.append(llvm.get_host_cpu_features().flatten())
    parts += [importlib.metadata.version(name) for name in ("numba", "llvmlite", "numpy")]
    parts += [str(os.environ.get("NUMBA_CPU_NAME")), str(os.environ.get("NUMBA_CPU_FEATURES"))]
    parts += [str(os.environ.get("NUMBA_OPT")), str(os.environ.get("NUMBA_BOUNDSCHECK"))]
    for name, path in own_sources().items():
        status = path.stat()
        parts.append(f"{name} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(parts)


class Store:
    """Where one kernel's code is kept: a file for each types of arguments.

    Parameters
    ----------
    source
        File that the kernel comes from.
    qualified_name
        Of its function.
    """

    def __init__(self, source: str, qualified_name: str) -> None:
        self._folder = folder_of(source)
        self._kernel = f"rocpy-{Path(source).stem}.{qualified_name}".replace("<", "").replace(">", "")

    def file(self, types: str, fingerprint: str) -> File:
        """Return the file for arguments of these types and a function of this fingerprint, with all that it names."""
        signature = hashlib.sha256(types.encode()).hexdigest()[:16]
        what = hashlib.sha256(f"{fingerprint}\n{surroundings()}\n{types}".encode()).hexdigest()[:32]
        return File(self._folder / f"{self._kernel}-{signature}-{what}.o", f"rocpy_kernel_{what}")


@dataclass(frozen=True)
class File:
    """A kernel's code for arguments of some types, on disk: where it is, and the name of its entry."""

    path: Path
    name: str

    def read(self) -> Compiled | None:
        """Return the code, if it is there and whole; it counts as used now."""
        head, _, code = (_disk_cache.read_bytes(self.path) or b"").partition(b"\n")
        try:
            told = json.loads(head)
            written = tuple(map(tuple, told["written"]))
            with contextlib.suppress(OSError):
                now = time.time_ns()  # finer than that of a file which is written
                os.utime(self.path, ns=(now, now))
            needed, environments = tuple(told["needed"]), tuple(told["environments"])
            return Compiled(told["name"], code, Form(told["form"]), needed, told["stack_bytes"], written, environments)
        except (ValueError, KeyError, TypeError):
            return None

    def write(self, compiled: Compiled) -> None:
        """Keep code. A folder that cannot be written to keeps nothing.

        What is out of date has the name of what replaces it, as kernels have that one factory makes: what was used
        longest ago goes.
        """
        path = self.path
        stored = ("name", "form", "needed", "stack_bytes", "written", "environments")
        head = {name: getattr(compiled, name) for name in stored}
        with contextlib.suppress(OSError):
            _disk_cache.write_bytes(path, json.dumps(head).encode() + b"\n" + compiled.code)
            alike = path.parent.glob(f"{glob.escape(path.name.rpartition('-')[0])}-*.o")
            for each in sorted(alike, key=lambda file: file.stat().st_mtime_ns, reverse=True)[_MOST_ALIKE:]:
                each.unlink(missing_ok=True)


def folder_of(source: str) -> Path:
    """Return where a source file's code is kept: in NUMBA_CACHE_DIR, as Numba's, beside it, or in the user's folder."""
    path = Path(source).resolve()
    own = f"{path.parent.name}-{hashlib.sha256(bytes(path.parent)).hexdigest()[:16]}"
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen) / own
    pycache = path.parent / "__pycache__"
    if path.is_file() and os.access(pycache if pycache.is_dir() else path.parent, os.W_OK):
        return pycache
    return _disk_cache.user_folder() / own
