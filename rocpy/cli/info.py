# SPDX-License-Identifier: MIT
"""`rocpy info`: which platform, which libraries, and why."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Any

from rocpy.cli._application import Arguments, set_run
from rocpy.cli._output import print_json, print_table, say, say_folded
from rocpy.cli._parser import Parser, add_json

PACKAGES = ("numpy", "ml_dtypes", "torch", "hip-python", "rocm-bindings-hip", "rocm-bindings-libraries")


def configure(parser: Parser) -> None:
    """Add the command's options."""
    add_json(parser)
    set_run(parser, info)


def info(arguments: Arguments) -> int:
    """Show platform, devices, libraries and environment."""
    described = describe()
    if arguments.as_json:
        print_json(described)
    else:
        _show(described)
    return 0


def _show(described: dict[str, Any]) -> None:
    platform = described["platform"]
    emulated = " (on the CPU)" if platform["is_emulated"] else ""
    say_folded(f"platform {platform['name']}{emulated}, from {platform['origin']}")
    say_folded(f"chosen because {platform['reason']}")
    say(f"hip-python: {platform['hip_python']}")
    say()
    devices = [
        (row["index"], row["name"], row["arch"], f"{row['memory_bytes'] / 2**30:.1f} GiB")
        for row in described["devices"]
    ]
    print_table("devices", ("", "name", "arch", "memory"), _folded(devices))
    say()
    libraries = [(row["name"], row["version"], row["path"], _count(row["missing"])) for row in described["libraries"]]
    print_table("libraries", ("name", "version", "path", "missing functions"), libraries)
    for row in described["libraries"]:
        if row["missing"]:
            say_folded(f"{row['name']} lacks: {', '.join(row['missing'])}")
    absent = [name for name, present in described["extension_functions"].items() if not present]
    known = len(described["extension_functions"])
    without = f"; lacks: {', '.join(absent)}" if absent else ""
    say_folded(f"hipblaslt_ext: {known - len(absent)} of {known} functions found by symbol{without}")
    if platform["info"]:
        say()
        print_table("platform properties", ("", ""), sorted(platform["info"].items()))
    say()
    variables = [
        (row["name"], row["value"] or "(empty)", "" if row["value"] == row["default"] else "set")
        for row in described["environment"]
    ]
    print_table("environment", ("variable", "value", ""), variables)
    say()
    print_table("packages", ("name", "version"), described["packages"].items())


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
            "info": current.info,
        },
        "devices": [asdict(device) for device in current.devices],
        "libraries": [asdict(library) for library in current.libraries.values()],
        "extension_functions": rocpy.platform.extension_functions(),
        "environment": [asdict(variable) for variable in rocpy.platform.variables()],
        "packages": {"python": sys.version.split()[0], "rocpy": rocpy.__version__, **_versions()},
    }


def _versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


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
