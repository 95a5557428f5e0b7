# SPDX-License-Identifier: MIT
"""What tells one kernel's code from another's: a hash of a function and of all that it names."""

from __future__ import annotations

import dis
import enum
import functools
import hashlib
import pickle
import types as python_types
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rocpy.cooperative.kernel.kernel import Kernel

_READS_OF_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_PLAIN = (int, float, complex, str, bytes, type(None), np.generic, np.dtype)
# What is of these packages is named only: their versions, or their sources, are a part of what results depend on.
_LIBRARIES = ("builtins", "numpy", "numba", "rocpy.cooperative")
_WITH_KERNELS = "rocpy.cooperative.arrays"  # the one module of rocpy that makes functions of what users pass


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


def fingerprint_of(function: Any) -> str:
    """Return a hash of a function's code and of the functions and constants it names, however deep.

    A function that names what cannot be hashed has another hash each time.
    """
    writer = _Writer()
    writer.add(function)
    return writer.digest.hexdigest()


def _attributes_of(code: Any) -> frozenset[str]:
    """Return all names in a function's code, those of attributes included; and of getattr the words."""
    nested = [each for each in code.co_consts if isinstance(each, python_types.CodeType)]
    words = [each for each in code.co_consts if isinstance(each, str)] if "getattr" in code.co_names else []
    return frozenset(code.co_names).union(words, *map(_attributes_of, nested))


def _is_of_library(value: Any) -> bool:
    name = value.__name__ if isinstance(value, python_types.ModuleType) else getattr(value, "__module__", None)
    if not isinstance(name, str) or name == _WITH_KERNELS:
        return False
    return any(name == each or name.startswith(f"{each}.") for each in _LIBRARIES)


class _Writer:
    """Writes values so that no two of them are the same bytes: each part begins with its kind and its length."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self._numbers: dict[Any, int] = {}  # of what was written, by identity and the attributes that count
        self._alive: list[Any] = []  # so that no two have the same identity

    def add(self, value: Any, attributes: frozenset[str] = frozenset()) -> None:
        """Write a value; of modules and classes the attributes of some names."""
        if isinstance(value, Kernel):
            value = value.function
        value = getattr(value, "_dispatcher", value) if hasattr(value, "nin") else value  # numba.vectorize
        if isinstance(getattr(value, "py_func", None), python_types.FunctionType):  # that Numba has compiled
            self._part("options", repr(getattr(value, "targetoptions", None)))
            value = value.py_func
        if isinstance(value, enum.Enum):
            self._part("enum", f"{type(value).__module__}.{type(value).__qualname__}.{value.name}")
            self.add(value._value_)
        elif isinstance(value, _PLAIN):
            self._part(type(value).__name__, repr(value))
        elif isinstance(value, (tuple, list, dict)):
            self._container(value, attributes)
        elif isinstance(value, np.ndarray):
            self._part("array", f"{value.dtype!r} {value.shape}")
            self._part("elements", value.tobytes())
        elif isinstance(value, python_types.CodeType):
            self._code(value)
        elif isinstance(value, python_types.FunctionType):
            self._once(value, frozenset(), self._function)
        elif isinstance(value, (python_types.ModuleType, type)):
            self._once(value, attributes, lambda value: self._named(value, attributes))
        else:
            self._other(value)

    def _part(self, kind: str, value: str | bytes) -> None:
        data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
        self.digest.update(f"{kind} {len(data)}:".encode())
        self.digest.update(data)

    def _container(self, value: Any, attributes: frozenset[str]) -> None:
        fields = getattr(value, "_fields", "")  # of a named tuple
        self._part(type(value).__name__, f"{len(value)} {fields}")
        for each in value.items() if isinstance(value, dict) else value:
            self.add(each, attributes)

    def _once(self, value: Any, attributes: frozenset[str], write: Callable[[Any], None]) -> None:
        key = id(value), attributes
        if key in self._numbers:
            self._part("again", str(self._numbers[key]))
            return
        self._numbers[key] = len(self._numbers)
        self._alive.append(value)
        write(value)

    def _function(self, function: Any) -> None:
        self._part("function", f"{function.__module__}.{function.__qualname__}")
        self._code(function.__code__)
        if _is_of_library(function):
            return
        attributes = _attributes_of(function.__code__)
        names = sorted(names_of(function.__code__))
        if "getattr" in names:
            values = [function.__globals__.get(name) for name in names]
            attributes |= {each for each in values if isinstance(each, str)}
        self.add(function.__defaults__, attributes)
        self.add(function.__kwdefaults__, attributes)
        for name in names:
            if name in function.__globals__:
                self._part("global", name)
                self.add(function.__globals__[name], attributes)
        for cell in function.__closure__ or ():
            try:
                self.add(cell.cell_contents, attributes)
            except ValueError:
                self._part("unbound", "")

    def _named(self, value: Any, attributes: frozenset[str]) -> None:
        """Write a module or a class: its name, and what of it the code may read."""
        own = (
            value.__name__ if isinstance(value, python_types.ModuleType) else f"{value.__module__}.{value.__qualname__}"
        )
        self._part(type(value).__name__, own)
        if _is_of_library(value):
            return
        if isinstance(value, enum.EnumMeta):
            self.add(dict(value.__members__), attributes)
        for name, member in self._members(value, attributes):
            self._part("attribute", name)
            self.add(member, attributes)

    @staticmethod
    def _members(value: Any, attributes: frozenset[str]) -> Iterator[tuple[str, Any]]:
        spaces = [value] if isinstance(value, python_types.ModuleType) else value.__mro__
        for name in sorted(attributes):
            defined = [vars(each)[name] for each in spaces if name in vars(each)]
            if not defined:
                continue
            member = getattr(defined[0], "__func__", defined[0])
            if not isinstance(member, _COMPUTED):  # attributes of instances, which kernels have none of
                yield name, member

    def _code(self, code: Any) -> None:
        self._part("code", code.co_code)
        names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
        counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
        self._part("names", f"{code.co_filename}:{code.co_firstlineno} {names} {counts}")
        self._part("lines", code.co_linetable)  # compiled code knows its lines
        self._part("handlers", code.co_exceptiontable)
        self.add(code.co_consts)

    def _other(self, value: Any) -> None:
        """Write what is of a library by its name, anything else as pickle does, or as what is never the same."""
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        # Python's objects and the functions that Numba compiles have what users make of them.
        of_users = kind.startswith(("builtins.", "numba.")) and not kind.startswith("numba.core.types.")
        if isinstance(value, _BUILTIN) or (_is_of_library(type(value)) and not of_users):
            self._part(kind, str(getattr(value, "__qualname__", getattr(value, "__name__", repr(value)))))
            return
        try:
            self._part(kind, pickle.dumps(value))
        except Exception:  # noqa: BLE001 - whatever its own method raises
            self._part(kind, uuid.uuid4().hex)


_COMPUTED = (
    *(property, functools.cached_property, python_types.DynamicClassAttribute),
    *(python_types.MemberDescriptorType, python_types.GetSetDescriptorType),
)
_BUILTIN = (python_types.BuiltinFunctionType, python_types.MethodDescriptorType, python_types.WrapperDescriptorType)
