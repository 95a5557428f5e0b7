# SPDX-License-Identifier: MIT
"""The rows of ``csrc/abi/environment.def``, and which values a ``ROCPY_*`` variable can have."""

from __future__ import annotations

import functools
import os

from rocpy import _core, _json

__all__ = ["fault_of_kernel_set", "fault_of_variable", "rows"]


@functools.cache
def rows() -> dict[str, tuple[str, str, str]]:
    """Return default, values and meaning of every variable, by name."""
    return {name: (default, values, meaning) for name, default, _, values, meaning in _core.environment_table()}


def fault_of_variable(name: str, value: str) -> str:
    """Return why a ``ROCPY_*`` variable cannot have a value, with what it can have; ``""`` where it can.

    An empty variable is as one that is unset. `name` is one of :func:`rows`.
    """
    default, values, _ = rows()[name]
    lowest, is_range, highest = values.partition("..")
    if name == "ROCPY_TUNING_DB":
        return _fault_of_paths(name, value)
    if not value or values == "*":
        return ""
    if is_range:
        if value.isascii() and value.isdigit() and len(value) < 10 and int(lowest) <= int(value) <= int(highest):
            return ""
        return f"{name}: got {value[:100]!r}, expected an integer from {lowest} to {highest}"
    words = values.split("|")
    if value in words:
        return ""
    words = words if default else [*words, "empty"]
    return f"{name}: got {value[:100]!r}, expected {', '.join(words[:-1])} or {words[-1]}"


def _fault_of_paths(name: str, value: str) -> str:
    from pathlib import Path

    try:
        for part in value.split(os.pathsep):
            Path(part).expanduser()
    except RuntimeError as error:  # the home folder of a user that there is not
        return f"{name}: {value[:100]!r}: {error}; name files or folders, or unset it"
    return ""


def fault_of_kernel_set(wanted: str) -> str:
    """Return why the loaded host platform does not use a kernel set; ``""`` where it does, or none is named.

    Without the set the platform itself would use the fastest that the CPU has.
    """
    used = _json.loads(_core.platform_info() or "{}").get("isa")
    if not wanted or wanted == used:
        return ""
    return (
        f"ROCPY_HOST_ISA: got {wanted!r}, a kernel set that this CPU lacks, or that was named after the host platform "
        f"was loaded with {used}; unset it, or start a new process with another one"
    )
