# SPDX-License-Identifier: MIT
"""`rocpy info`: which platform, which libraries, and why."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Any

from rocpy.cli._output import JsonFlag, console, print_json, table

PACKAGES = ("rocpy", "numpy", "ml_dtypes", "torch", "hip-python", "rocm-bindings-hip", "rocm-bindings-libraries")


def info(as_json: JsonFlag = False) -> None:
    """Show platform, devices, libraries and environment.

    Leaves with 0, or with 3 if no platform can be used.
    """
    described = describe()
    if as_json:
        print_json(described)
        return
    out = console()
    platform = described["platform"]
    emulated = " (the CPU stands in for a GPU)" if platform["is_emulated"] else ""
    out.print(f"[bold]platform[/] {platform['name']}{emulated}, from {platform['origin']}", highlight=False)
    out.print(f"because {platform['reason']}", markup=False)
    out.print(f"hip-python: {platform['hip_python']}", markup=False)
    out.print()
    devices = [
        (row["index"], row["name"], row["arch"], f"{row['memory_bytes'] / 2**30:.1f} GiB")
        for row in described["devices"]
    ]
    out.print(table("devices", ("", "name", "arch", "memory"), _folded(devices)))
    out.print()
    libraries = [(row["name"], row["version"], row["path"], _count(row["missing"])) for row in described["libraries"]]
    out.print(table("libraries", ("name", "version", "path", "missing functions"), libraries))
    for row in described["libraries"]:
        if row["missing"]:
            out.print(f"{row['name']} lacks: {', '.join(row['missing'])}", markup=False)
    absent = [name for name, present in described["extension_functions"].items() if not present]
    known = len(described["extension_functions"])
    without = f"; lacks: {', '.join(absent)}" if absent else ""
    out.print(f"hipblaslt_ext: {known - len(absent)} of {known} functions found by symbol{without}", markup=False)
    if platform["info"]:
        out.print()
        out.print(table("the platform about itself", ("", ""), sorted(platform["info"].items())))
    out.print()
    variables = [
        (row["name"], row["value"] or "(empty)", "" if row["value"] == row["default"] else "set")
        for row in described["environment"]
    ]
    out.print(table("environment", ("variable", "value", ""), variables))
    out.print()
    out.print(table("packages", ("name", "version"), described["packages"].items()))


def describe() -> dict[str, Any]:
    """Return everything that the command shows, ready for JSON.

    Returns
    -------
    dict
        ``platform``, ``devices``, ``libraries``, ``extension_functions``, ``environment``, ``packages``.
    """
    from dataclasses import asdict

    import rocpy

    current = rocpy.platform.current()
    return {
        "platform": {
            "name": current.name,
            "origin": current.origin,
            "reason": current.reason,
            "is_emulated": current.is_emulated,
            "hip_python": current.hip_python,
            "info": dict(current.info),
        },
        "devices": [asdict(device) for device in current.devices],
        "libraries": [asdict(library) for library in current.libraries.values()],
        "extension_functions": rocpy.platform.extension_functions(),
        "environment": [asdict(variable) for variable in rocpy.platform.variables()],
        "packages": {"python": sys.version.split()[0], **_versions()},
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _count(missing: tuple[str, ...]) -> str:
    return str(len(missing)) if missing else "none"


def _folded(devices: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return one row for devices that differ in their number alone: a host platform presents eight of one CPU."""
    rows: list[tuple[Any, ...]] = []
    for index, *facts in devices:
        if rows and list(rows[-1][1:]) == facts:
            first = str(rows[-1][0]).split("-")[0]
            rows[-1] = (f"{first}-{index}", *facts)
        else:
            rows.append((index, *facts))
    return rows
