# SPDX-License-Identifier: MIT
"""Hands the tests hip-python on the host platform: in this process, or in one of their own."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def folder() -> Path:
    """The host platform's folder, laid out like a ROCm install: by the environment, else in the installed package."""
    told = os.environ.get("ROCPY_TEST_HOST_DIR")
    if told:
        return Path(told)
    core = pytest.importorskip("rocpy._core", reason="needs rocpy, or ROCPY_TEST_HOST_DIR", exc_type=ImportError)
    return Path(core.__file__).resolve().parent / "_host"


def mapped(name: str) -> set[str]:
    """Paths of the mapped files whose names begin with ``name``."""
    paths = {line.split(maxsplit=5)[-1].strip() for line in Path("/proc/self/maps").read_text().splitlines()}
    return {path for path in paths if Path(path).name.startswith(name)}


def load() -> ModuleType:
    """Import hip-python on the host platform, in this process, and check that it holds our library."""
    pytest.importorskip("rocm.bindings.hip", exc_type=ImportError)
    if not mapped("libamdhip64"):
        os.environ["ROCM_PATH"] = str(folder())
    from rocm.bindings import hip

    hip.hipGetDeviceCount()
    wanted = str((folder() / "lib" / "libamdhip64.so").resolve())
    held = {str(Path(path).resolve()) for path in mapped("libamdhip64")}
    if held != {wanted}:
        pytest.fail(f"hip-python holds {sorted(held)}, not {wanted}")
    return hip


class Recorder:
    """hip-python's module, noting the name of each function that is called."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self.called: set[str] = set()

    def linked(self, name: str, *arguments: Any) -> Any:
        """Call a function that hip-python does not have, of the library that it has loaded; what it gives back too."""
        self.called.add(name)
        function = getattr(ctypes.CDLL(str((folder() / "lib" / "libamdhip64.so").resolve())), name)
        return (self._module.hipError_t(function(*arguments)),)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._module, name)
        if not name.startswith("hip") or isinstance(attribute, type):
            return attribute

        def call(*arguments):
            self.called.add(name)
            return attribute(*arguments)

        return call


def ok(result: tuple) -> Any:
    """What a call gave besides hipSuccess: nothing, one value, or a tuple."""
    status, *values = result
    assert status == 0, status
    return values[0] if len(values) == 1 else tuple(values) or None


def error(result: tuple) -> str:
    """The name of the status that a call gave."""
    return result[0].name


def run(code: str, *arguments: str, timeout_s: float = 120, **environment: str) -> Any:
    """Run code in a process of its own, with hip-python on the host platform.

    The code finds ``hip``, ``np``, ``ok`` and ``error``, its arguments in ``sys.argv[1:]``, and gives back what it
    leaves in ``answer``, as JSON.
    """
    prelude = (
        "import json, sys\n"
        "import numpy as np\n"
        "from rocm.bindings import hip\n"
        "from host_platform import Recorder, error, ok\n"
        "answer = None\n"
    )
    conclusion = "\nprint('answer', json.dumps(answer))\n"
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("ROCM_", "ROCPY_HOST_"))}
    variables.update(ROCM_PATH=str(folder()), PYTHONPATH=str(REPOSITORY / "tests" / "support"), **environment)
    process = subprocess.run(
        [sys.executable, "-c", prelude + textwrap.dedent(code) + conclusion, *arguments],
        env=variables,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.rpartition("answer ")[2])
