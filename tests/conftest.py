# SPDX-License-Identifier: MIT
"""Fixtures that several test folders share."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed."""
    return np.random.default_rng(20250)


@pytest.fixture
def soak_s(request: pytest.FixtureRequest) -> float:
    """How long a soak lasts, in seconds."""
    return float(request.config.getoption("--soak-s"))


@pytest.fixture
def torch():
    """The torch module; the test is marked torch, so it is skipped where there is none."""
    import torch

    return torch


@pytest.fixture
def fresh_plan_cache() -> Iterator[None]:
    """An empty plan cache before and after."""
    import rocpy

    rocpy.plan_cache.clear()
    yield
    rocpy.plan_cache.clear()


def _table_slot(name: str) -> int:
    """The place of a row in the table of functions."""
    folder = Path(__file__).resolve().parent.parent / "csrc" / "abi"
    files = re.findall(r'#include "(\w+\.def)"', (folder / "functions.def").read_text(encoding="utf-8"))
    pattern = re.compile(r"^ROCPY_FUNCTION\(\w+, [^,]+, (\w+),", re.MULTILINE)
    return [row for file in files for row in pattern.findall((folder / file).read_text(encoding="utf-8"))].index(name)


@pytest.fixture
def without_programs() -> Iterator[None]:
    """A platform that runs no tile programs, as AMD's: its function answers as the trampoline of a missing one."""
    import rocpy
    from rocpy import _core

    rocpy.platform.current()
    library = ctypes.CDLL(str(Path(_core.__file__).parent / "_lib" / "librocpy_core.so"))
    slot = _table_slot("rocpyExtMatmulDescSetProgram")
    table = (ctypes.c_void_p * (slot + 1)).in_dll(library, "_ZN5rocpy5tableE")
    absent = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: 7)
    kept, table[slot] = table[slot], ctypes.cast(absent, ctypes.c_void_p).value
    rocpy.plan_cache.clear()
    yield
    table[slot] = kept
    rocpy.plan_cache.clear()


RunPython = Callable[..., subprocess.CompletedProcess]


@pytest.fixture
def run_python(tmp_path) -> RunPython:
    """Run a Python program in a process of its own, with a deadline and without this process's pytest state.

    Called as ``run_python(code, timeout_s=60, check=True, **environment)``; an environment value of None removes the
    variable.
    """

    def run(code: str, *, timeout_s: float = 60.0, check: bool = True, **environment: str | None):
        variables = dict(os.environ)
        for key, value in environment.items():
            variables.pop(key, None)
            if value is not None:
                variables[key] = value
        program = tmp_path / "program.py"
        program.write_text(textwrap.dedent(code), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", str(program)],
            env=variables,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            pytest.fail(f"exit status {done.returncode}\n--- stdout\n{done.stdout}\n--- stderr\n{done.stderr}")
        return done

    return run
