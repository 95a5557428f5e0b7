# SPDX-License-Identifier: MIT
"""What tells one kernel's code from another's: a hash of a function and of all that it names."""

from __future__ import annotations

import dis
import hashlib
import types as python_types
from pathlib import Path
from typing import Any

import numpy as np

from rocpy.cooperative.kernel.kernel import Kernel

_READS_OF_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})


def own_sources() -> dict[str, Path]:
    """Return the package's source files by their names in it: compiled code depends on each."""
    package = Path(__file__).parents[1]
    return {path.relative_to(package).as_posix(): path for path in sorted(package.rglob("*.py"))}


def names_of(code: Any) -> set[str]:
    """Return the global names that a function's code uses, and functions inside it do; not those of attributes."""
    names = {each.argval for each in dis.get_instructions(code) if each.opname in _READS_OF_GLOBALS}
    for constant in code.co_consts:
        if isinstance(constant, python_types.CodeType):
            names |= names_of(constant)
    return names


def fingerprint_of(function: Any) -> str:  # noqa: C901 - one case for each kind of value
    """Return a hash of a function's code and of the functions and constants it names, however deep."""
    digest = hashlib.sha256()
    seen: set[int] = set()

    def add(value: Any) -> None:
        if isinstance(value, Kernel):
            value = value.function
        if isinstance(value, (int, float, complex, str, bytes, bool, type(None), np.generic, np.dtype)):
            digest.update(repr(value).encode())
        elif isinstance(value, (tuple, list)):
            for each in value:
                add(each)
        elif isinstance(value, np.ndarray):
            digest.update(f"{value.dtype!r} {value.shape}".encode())
            digest.update(value.tobytes())
        elif isinstance(value, python_types.FunctionType):
            if id(value) in seen:
                return
            seen.add(id(value))
            digest.update(value.__qualname__.encode())
            add_code(value.__code__)
            if (value.__module__ or "").startswith(("numpy", "numba")):
                return
            add(value.__defaults__)
            for name in sorted(names_of(value.__code__)):
                if name in value.__globals__:
                    digest.update(name.encode())
                    add(value.__globals__[name])
            for cell in value.__closure__ or ():
                add(cell.cell_contents)
        elif hasattr(value, "__name__"):  # types and modules
            digest.update(value.__name__.encode())

    def add_code(code: Any) -> None:
        digest.update(code.co_code)
        digest.update(f"{code.co_filename}:{code.co_firstlineno} {code.co_names}".encode("utf-8", "surrogateescape"))
        digest.update(code.co_linetable)  # compiled code knows its lines
        for constant in code.co_consts:
            if isinstance(constant, python_types.CodeType):
                add_code(constant)
            else:
                digest.update(repr(constant).encode())

    add(function)
    return digest.hexdigest()
