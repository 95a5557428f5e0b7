# SPDX-License-Identifier: MIT
"""The Pythons of this machine: those on PATH, and those that a version manager installed but does not select."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

PROBE = """
import importlib.util, json, sys, sysconfig
from pathlib import Path
name = "{}.{}".format(*sys.version_info) + "t" * bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
missing = ["the module " + module for module in ("ensurepip", "venv") if importlib.util.find_spec(module) is None]
missing += ["Python.h"] * (not (Path(sysconfig.get_path("include")) / "Python.h").exists())
print(json.dumps([name, missing]))
"""


class MissingPythonError(Exception):
    """No Python of this machine serves; the text says what was found."""


def folders_of_managers() -> Iterator[Path]:
    """Yield the folders below which version managers install Pythons, one folder for each."""
    for entry in os.environ.get("PATH", "").split(os.pathsep):
        # A shim runs the version that is selected, and fails where that is another one.
        if Path(entry).name == "shims":
            yield Path(entry).parent / "versions"  # pyenv
            yield Path(entry).parent / "installs" / "python"  # asdf, mise
    if root := os.environ.get("PYENV_ROOT"):
        yield Path(root) / "versions"
    yield Path.home() / ".pyenv" / "versions"
    yield Path.home() / ".local" / "share" / "uv" / "python"
    yield Path("/opt/python")  # the containers of manylinux


def candidates(name: str) -> Iterator[Path]:
    """Yield the files that may be a Python of this name, as "3.12": each once, those on PATH first."""
    command = f"python{name}"
    entries = [Path(entry) / command for entry in os.environ.get("PATH", "").split(os.pathsep) if entry]
    installed = [
        path
        for folder in dict.fromkeys(folders_of_managers())
        for path in sorted(folder.glob(f"*/bin/{command}"), reverse=True)
    ]
    yield from dict.fromkeys(path for path in (*entries, *installed) if path.is_file() and os.access(path, os.X_OK))


def fault_of(path: Path, name: str) -> str:
    """Return why a file does not serve as the Python of this name; "" if it does."""
    try:
        done = subprocess.run([path, "-I", "-c", PROBE], check=False, capture_output=True, text=True, timeout=60)
        found, missing = json.loads(done.stdout) if done.returncode == 0 else ("", [])
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return f"{path} cannot be run: {error}"
    if done.returncode:
        return f"{path} exits with {done.returncode}"
    if found != name:
        return f"{path} is Python {found}"
    return f"{path} lacks {' and '.join(missing)}" if missing else ""


def find_python(name: str) -> Path:
    """Return a Python of this name that runs, and has what an environment and a build need.

    Raises
    ------
    MissingPythonError
        If there is none.
    """
    faults = []
    for path in candidates(name):
        fault = fault_of(path, name)
        if not fault:
            return path
        faults.append(fault)
    where = f"; {'; '.join(faults)}" if faults else ""
    raise MissingPythonError(f"no Python {name} on this machine{where}")
