# SPDX-License-Identifier: MIT
"""Finds the compiled form of a kernel for its arguments: in this process, on disk, or by compiling it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import numpy as np

from rocpy._fp_environment import default_arithmetic
from rocpy._locks import hold_over_forks
from rocpy.cooperative.cpu import _simt, machine_code
from rocpy.cooperative.kernel.faults import raise_fault
from rocpy.cooperative.kernel.fingerprint import fingerprint_of
from rocpy.cooperative.kernel.mode import mode_of
from rocpy.cooperative.kernel.requirements import importing_numba
from rocpy.errors import KernelTypeError

_MOST_ENTRIES = 1024
_lock = threading.RLock()
hold_over_forks(_lock)
Config = _simt.Config


def _compiler() -> Any:
    with importing_numba():
        from rocpy.cooperative.cpu import compile as compiler
    return compiler


class Launcher:
    """A kernel's compiled forms, by the types of their arguments."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._entries: dict[bytes, tuple[Any, ...]] = {}  # address, form, stack_bytes, written, what must live as long
        self._compiled: dict[str, tuple[Any, ...]] = {}  # the same by types as text, which holds no addresses
        self._store: machine_code.Store | None = None
        self.cache_hits = 0  # how often code came from disk
        if kernel.cache:
            function = kernel.function
            source = function.__code__.co_filename
            if source.startswith("<"):
                raise KernelTypeError(
                    f"kernel {kernel.name}: cache=True needs a function that comes from a file, not from {source}"
                )
            self._store = machine_code.Store(source, function.__qualname__)

    def __call__(self, config: Any, values: tuple[Any, ...]) -> None:
        """Run a grid, to its end; raise what went wrong in it."""
        error = _simt.run(self._entries, config, values)
        while error is None:
            self._add(values)
            error = _simt.run(self._entries, config, values)
        if error:
            self._raise(_simt.take_error(error))

    def written(self, values: tuple[Any, ...]) -> tuple[tuple[int, ...], ...]:
        """Return the paths of the arguments that the kernel may write to; none before it was compiled for them."""
        key = _simt.key_of(values)
        entry = None if key is None else self._entries.get(key)
        if entry is None:  # other threads may have made room for theirs
            entry = self._compiled.get(_text_of(values))
        return entry[3] if entry else ()

    def _raise(self, error: dict[str, Any]) -> None:
        raised, location = _compiler().user_exception(error) if error["fault"] == "exception" else (None, None)
        raise_fault(self._kernel, error, raised, location)

    def _add(self, values: tuple[Any, ...]) -> None:
        key = _simt.key_of(values)
        with _lock:
            if key is None:
                raise _compiler().refusal(self._kernel, values)
            text = _text_of(values)
            entry = self._compiled.get(text)
            if entry is None:
                entry = self._compiled[text] = self._find(text, values)
            if len(self._entries) >= _MOST_ENTRIES:
                self._entries.clear()
            self._entries[key] = (*entry, list(_dtypes(values)))  # the key holds their addresses

    @default_arithmetic  # the compiler rounds literals and folds constants
    def _find(self, types: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
        kernel = self._kernel
        if not self._store:
            program = _compiler().compiled(kernel, values, f"rocpy_kernel_{uuid.uuid4().hex}")
        else:  # what the kernel names may have changed since it was compiled for other types
            file = self._store.file(types, f"{fingerprint_of(kernel.function)} {mode_of(kernel)}")
            program = file.read()
            if program is not None and _loadable(program):
                self.cache_hits += 1
            else:
                # A name is loaded once: a kernel of the same contents has its code, unless it has classes of its own.
                program = machine_code.loaded(file.name) or _compiler().compiled(kernel, values, file.name)
                if program.portable:
                    file.write(program)
        address = machine_code.load(program)
        if program.environments:
            _compiler().connect(program)
        return address, program.form, program.stack_bytes, program.written


def _loadable(program: machine_code.Compiled) -> bool:
    if machine_code.loadable(program):
        return True
    _compiler().prepare_runtime()
    return machine_code.loadable(program)


def _text_of(values: tuple[Any, ...]) -> str:
    return ", ".join(map(type_text, values))


def type_text(value: Any) -> str:
    """Return the type of an argument as text: equal for arguments that one compiled form serves."""
    if isinstance(value, np.ndarray):
        flags = value.flags
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        kind = f"{'' if flags.writeable else 'read-only '}{'' if flags.aligned else 'unaligned '}"
        return f"{kind}array({value.dtype!r}, {value.ndim}, {layout})"
    if isinstance(value, tuple):
        return f"({', '.join(map(type_text, value))},)"
    if isinstance(value, np.generic):
        return repr(value.dtype)
    if type(value) is int:
        return "int" if value < 2**63 else "unsigned"
    return type(value).__name__


def _dtypes(values: tuple[Any, ...]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple):
            yield from _dtypes(value)
        elif isinstance(value, (np.ndarray, np.generic)):
            yield value.dtype
