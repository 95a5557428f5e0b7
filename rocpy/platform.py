# SPDX-License-Identifier: MIT
"""The platform that rocpy runs on: how it is chosen, which one and why; and the values of ``ROCPY_*`` variables."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from rocpy import _core, _json
from rocpy._locks import hold_over_forks
from rocpy._messages.suggestions import did_you_mean
from rocpy._signatures import public_names
from rocpy._variables import fault_of_kernel_set, fault_of_variable, rows
from rocpy.errors import InvalidProblemError, LibraryError, warn

# What looks for libraries is imported when a platform is chosen: `import rocpy` opens none.
if TYPE_CHECKING:
    from rocpy import _search

__all__ = [
    "DeviceInfo",
    "LibraryInfo",
    "Platform",
    "Variable",
    "available",
    "current",
    "environment",
    "extension_functions",
    "missing",
    "use",
    "variables",
]

__dir__ = public_names(globals())

Choice: TypeAlias = Literal["auto", "amd", "host"]
CHOICES = get_args(Choice)
# An AMD device of this machine shows as one of these: the kernel driver's node on Linux, the paravirtual GPU under WSL.
DEVICE_NODES = ("/dev/kfd", "/dev/dxg")

_lock = threading.RLock()
# A fork waits for a choice that another thread is making: the child would wait for ever for a lock whose holder it
# lacks.
hold_over_forks(_lock)
_requested: str | None = None
_current: Platform | None = None


@dataclass(frozen=True)
class Variable:
    """An environment variable that rocpy reads.

    Attributes
    ----------
    name
        Its name.
    default
        Value that is used if it is unset or empty.
    value
        Its current value.
    meaning
        What it does, in a sentence.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.platform.variables()[0].name
    'ROCPY_PLATFORM'
    """

    name: str
    default: str
    value: str
    meaning: str


def rocpy_variables() -> dict[str, str]:
    """Return the variables of the environment that begin with ``ROCPY_``, those that rocpy does not know too."""
    return {name: value for name, value in os.environ.items() if name.startswith("ROCPY_")}


def _check_variables() -> None:
    """Refuse a value that a variable cannot have: before the platform reads it, which would take the default."""
    for name in rows():
        environment(name)


def environment_with(variables: dict[str, str]) -> dict[str, str]:
    """Return the environment of this process with other variables, for a program that it starts."""
    return {**os.environ, **variables}


def environment(name: str) -> str:
    """Return the value of a ``ROCPY_*`` variable.

    Parameters
    ----------
    name
        One of the names in ``csrc/abi/environment.def``.

    Returns
    -------
    str
        Its value, or its default when it is unset or empty.

    Raises
    ------
    InvalidProblemError
        If rocpy has no such variable, or its value is invalid.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.platform.environment("ROCPY_PLAN_CACHE")
    '1024'
    """
    if name not in rows():
        raise InvalidProblemError(f"{name} is not a rocpy variable; the variables are {', '.join(rows())}")
    value = os.environ.get(name) or rows()[name][0]
    if fault := fault_of_variable(name, value):
        raise InvalidProblemError(fault)
    return value


def variables() -> list[Variable]:
    """Return every environment variable that rocpy reads, with its current value.

    Returns
    -------
    list of Variable
        In the order of ``csrc/abi/environment.def``; the value of a secret is not shown.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.platform.variables()[0].name
    'ROCPY_PLATFORM'
    """
    return [Variable(name, default, _shown(name, default), meaning) for name, (default, _, meaning) in rows().items()]


def _shown(name: str, default: str) -> str:
    value = os.environ.get(name) or default
    return "(set)" if value and name.endswith("_SECRET") else value


@dataclass(frozen=True)
class LibraryInfo:
    """A library of the chosen platform.

    Attributes
    ----------
    name
        Its name in rocpy: ``"hip"``, ``"hipblaslt"``, ``"rccl"``, ``"hiprtc"``.
    path
        The file that is mapped.
    version
        As the library reports it, or from the name of its file; empty if unknown.
    missing
        C functions that it lacks; calling one raises UnsupportedError.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.platform.current().libraries["hip"].name
    'hip'
    """

    name: str
    path: str
    version: str
    missing: tuple[str, ...]


@dataclass(frozen=True)
class DeviceInfo:
    """A device of the chosen platform.

    Attributes
    ----------
    index
        Its number.
    name
        Its name, for display.
    arch
        Its architecture: ``"gfx942:sramecc+:xnack-"``, ``"host-avx512"``.
    memory_bytes
        Size of its memory.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.platform.current().devices[0].index
    0
    """

    index: int
    name: str
    arch: str
    memory_bytes: int


@dataclass(frozen=True)
class Platform:
    """What this process runs on.

    Attributes
    ----------
    name
        ``"amd"`` or ``"host"``.
    origin
        Where its libraries come from, for display.
    reason
        Why it was chosen, for display.
    hip_python
        How hip-python was pointed at the same files, for display.
    facts
        The items of ``info``.

    Examples
    --------
    >>> import rocpy
    >>> sorted(rocpy.platform.current().libraries)[:2]
    ['hip', 'hipblaslt']
    """

    name: str
    origin: str
    reason: str
    hip_python: str
    facts: tuple[tuple[str, Any], ...]

    def __repr__(self) -> str:
        return f"<Platform {self.name}, from {self.origin}>"

    @property
    def info(self) -> dict[str, Any]:
        """Its properties; empty on AMD's libraries."""
        return dict(self.facts)

    @property
    def is_emulated(self) -> bool:
        """Whether the CPU is used instead of a GPU."""
        return ("emulated", True) in self.facts

    @cached_property  # every call with a Buffer asks
    def host_memory(self) -> bool:
        """Whether arrays in CPU memory can be operands directly; otherwise they are copied to the device."""
        return ("host_memory", "shared") in self.facts

    @property
    def libraries(self) -> dict[str, LibraryInfo]:
        """The libraries, by name; RCCL and hipRTC only if they are present.

        The first access creates a handle for libraries that report their version only through one.
        """
        _core.probe_versions()
        return _libraries()

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        """The devices, in order."""
        return tuple(DeviceInfo(index, *facts) for index, facts in enumerate(_core.devices()))


def _host_directory() -> str:
    # Beside the extension module, not beside this file: after an editable install the two are in different folders.
    return os.path.join(os.path.dirname(os.path.realpath(_core.__file__)), "_host", "lib")  # noqa: PTH118, PTH120


def _device_node() -> str | None:
    return next((node for node in DEVICE_NODES if os.path.exists(node)), None)  # noqa: PTH110


def _load_amd() -> tuple[_search.Tree | None, list[str]]:
    """Load the first tree that serves. Gives it, or why each was refused."""
    from rocpy import _search

    refusals: list[str] = []
    for tree in _search.rocm_trees(_host_directory()):
        outcome, reason = _core.load(tree.directories, need_device=True)
        if outcome == "loaded":
            return tree, refusals
        refusals.append(f"{tree.origin}: {reason}")
        if outcome == "no_device":
            break  # no other tree will see more devices, and a second HIP runtime must not be opened beside this one
    return None, refusals


def _load_host() -> _search.Tree:
    from rocpy import _search

    tree = _search.Tree("the package itself", (_host_directory(),))
    outcome, reason = _core.load(tree.directories)
    if outcome != "loaded":
        raise LibraryError(f"the host platform of this installation cannot be loaded: {reason}")
    if fault := fault_of_kernel_set(environment("ROCPY_HOST_ISA")):
        raise InvalidProblemError(fault)
    return tree


def _choose(choice: str) -> tuple[str, _search.Tree, str]:
    """Load a platform and give its name, its tree, and the reason."""
    wanted = f"{choice} was requested"
    if choice == "host":
        return "host", _load_host(), wanted
    if choice == "auto":
        node = _device_node()
        if node is None:
            return "host", _load_host(), f"there is no AMD GPU (no {' or '.join(DEVICE_NODES)})"
        wanted = f"there is {node}, and a device answers"
    tree, refusals = _load_amd()
    if tree is not None:
        return "amd", tree, wanted + "".join(f"; refused {refusal}" for refusal in refusals)
    if choice == "amd":
        raise LibraryError("no usable ROCm: " + "; ".join(refusals))
    return "host", _load_host(), f"there is {_device_node()}, but no usable ROCm: " + "; ".join(refusals)


def _version_text(name: str, version: int, file_version: str) -> str:
    if not version:
        return file_version
    _, major, minor = _core.libraries()[name]
    return f"{version // major}.{version // minor % (major // minor)}.{version % minor}"


def _libraries() -> dict[str, LibraryInfo]:
    return {
        name: LibraryInfo(name, path, _version_text(name, version, file_version), missing_functions)
        for name, path, file_version, version, missing_functions in _core.library_facts()
    }


def _select() -> Platform:
    global _current
    with _lock:
        # Under the lock that a fork waits for: a child that is born in an import waits for ever for who was importing.
        from rocpy import _hip_python, _search

        if _current is not None:
            _core.publish()  # an interrupt may have come before it
            return _current
        _hip_python.undo()
        _check_variables()
        choice = _requested or environment("ROCPY_PLATFORM")
        stems = _core.library_files()
        mapped_before = {stem: _search.mapped(stem) for stem in stems.values()}
        name, tree, reason = _choose(choice)
        libraries = _libraries()
        files = {stem: libraries[library].path for library, stem in stems.items() if library in libraries}
        arrangement = _hip_python.arrange(files, tree.directories)
        if (error := _hip_python.conflict(files, mapped_before)) is not None:
            _hip_python.undo()
            raise error
        facts = tuple(_json.loads(_core.platform_info() or "{}").items())
        _current = Platform(name, tree.origin, reason, arrangement, facts)
        _core.publish()  # only now do other threads use it
    if choice == "auto" and name == "host" and _device_node() is not None:
        warn(
            f"products are computed on the CPU: {reason}; run `rocpy doctor` to find the cause, or set "
            "ROCPY_PLATFORM=host to use the CPU"
        )
    return _current


def current() -> Platform:
    """Return the platform of this process, choosing it on the first call.

    The platform is chosen by ``ROCPY_PLATFORM`` (or :func:`use`) and does not change during the life of the process.
    ``auto`` chooses AMD's libraries if an AMD device is present and answers, otherwise the CPU.

    Returns
    -------
    Platform
        What was chosen, from where, and why.

    Raises
    ------
    LibraryError
        If the requested platform cannot be loaded, or hip-python already uses the files of another one.
    InvalidProblemError
        If a ``ROCPY_*`` variable has an invalid value; the message lists the valid ones.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.platform.current().name in ("amd", "host")
    True
    """
    return _current if _current is not None else _select()


def use(name: Choice) -> None:
    """Request a platform instead of ``ROCPY_PLATFORM``, before the first call that needs one.

    Parameters
    ----------
    name
        ``"auto"``, ``"amd"`` or ``"host"``.

    Raises
    ------
    LibraryError
        If the process already runs on another platform.
    InvalidProblemError
        If `name` is not one of the choices.

    Examples
    --------
    >>> import rocpy
    >>> rocpy.platform.use("auto")
    """
    global _requested
    if name not in CHOICES:
        raise InvalidProblemError(
            f"platform: got {name!r}, expected {', '.join(CHOICES[:-1])} or {CHOICES[-1]}{did_you_mean(name, CHOICES)}"
        )
    with _lock:
        if _current is not None and name not in ("auto", _current.name):
            raise LibraryError(
                f"this process already runs on the platform {_current.name!r} ({_current.reason}); "
                f"call rocpy.platform.use({name!r}) before the first product, or set ROCPY_PLATFORM={name}"
            )
        _requested = name


def available() -> tuple[str, ...]:
    """Return the platforms that appear to be available on this machine, without opening a library.

    Returns
    -------
    tuple of str
        Names for :func:`use`. ``amd`` is among them if the machine has a device and a ROCm tree has both libraries;
        whether the device answers is known only after the platform has been chosen.

    Examples
    --------
    >>> import rocpy
    >>> "host" in rocpy.platform.available()
    True
    """
    from pathlib import Path

    from rocpy import _search

    # A platform serves without optional libraries: what needs them says so.
    optional = {library for library, (is_optional, _, _) in _core.libraries().items() if is_optional}
    stems = [stem for library, stem in _core.library_files().items() if library not in optional]

    def is_complete(directories: tuple[str, ...]) -> bool:
        return all(any(_search.holds(Path(directory), stem) for directory in directories) for stem in stems)

    host = _host_directory()
    has_amd = _device_node() is not None and any(is_complete(tree.directories) for tree in _search.rocm_trees(host))
    return ("amd",) * has_amd + ("host",) * is_complete((host,))


def missing() -> dict[str, tuple[str, ...]]:
    """Return the C functions that the chosen platform's libraries lack, by library.

    Returns
    -------
    dict of str to tuple of str
        Empty tuples if nothing is missing.

    Examples
    --------
    >>> import rocpy
    >>> sorted(rocpy.platform.missing())[:2]
    ['hip', 'hipblaslt']
    """
    return {name: library.missing for name, library in current().libraries.items()}


def extension_functions() -> dict[str, bool]:
    """Return which C++ extension functions of hipBLASLt the chosen platform's library has.

    hipBLASLt exports them in addition to its C functions, under mangled names that may change between releases. rocpy
    looks them up by symbol; without one of them, an algorithm has no name, or cannot be created from its index.

    Returns
    -------
    dict of str to bool
        Name of each function in the namespace ``hipblaslt_ext``, and whether it was found.

    Examples
    --------
    >>> import rocpy
    >>> "getKernelNameFromAlgo" in rocpy.platform.extension_functions()
    True
    """
    current()
    return {name: present for name, _, present in _core.extension_functions()}


_core.set_selector(_select)
