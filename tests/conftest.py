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
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

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


@pytest.fixture(scope="session")
def selftest_record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tests keep what a self-test found."""
    return tmp_path_factory.mktemp("selftest") / "selftest.json"


@pytest.fixture(autouse=True)
def own_selftest_record(selftest_record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of the self-test of each test's own: what a test makes wrong is not composed from then on."""
    record = sys.modules.get("rocpy.blaslt.selection.selftest_record")
    if record is not None:
        selftest_record.unlink(missing_ok=True)
        monkeypatch.setattr(record, "record_path", lambda: selftest_record)
        monkeypatch.setattr(record, "_loaded", None)


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
    files = re.findall(r'#include "(\w+\.def)"', (folder / "libraries.def").read_text(encoding="utf-8"))
    pattern = re.compile(r"^ROCPY_FUNCTION\(\w+, [^,]+, (\w+),", re.MULTILINE)
    return [row for file in files for row in pattern.findall((folder / file).read_text(encoding="utf-8"))].index(name)


@pytest.fixture
def without_programs() -> Iterator[None]:
    """A platform that runs no tile programs, as AMD's: its function answers as the trampoline of a missing one."""
    import rocpy

    absent = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: 7)
    with _replaced("rocpyExtMatmulDescSetProgram", absent):
        rocpy.plan_cache.clear()
        yield
    rocpy.plan_cache.clear()


def _function(name: str) -> ctypes.c_void_p:
    """The slot of a platform's function in the table that rocpy calls it by."""
    import rocpy
    from rocpy import _core

    rocpy.platform.current()
    library = ctypes.CDLL(str(Path(_core.__file__).parent / "_lib" / "librocpy_core.so"))
    slot = _table_slot(name)
    table = (ctypes.c_void_p * (slot + 1)).in_dll(library, "_ZN5rocpy5tableE")
    return ctypes.c_void_p.from_buffer(table, slot * ctypes.sizeof(ctypes.c_void_p))


@contextmanager
def _replaced(name: str, function: Any) -> Iterator[None]:
    """Let rocpy call another function in the place of a platform's."""
    slot = _function(name)
    kept, slot.value = slot.value, ctypes.cast(function, ctypes.c_void_p).value
    try:
        yield
    finally:
        slot.value = kept


class PlatformFunctions:
    """The functions that rocpy calls of the platform's libraries, for tests that put others in their place."""

    def slot(self, name: str) -> ctypes.c_void_p:
        """Return the slot of a function, whose value is its address."""
        return _function(name)

    @contextmanager
    def replaced(self, functions: dict[str, Any]) -> Iterator[None]:
        """Let rocpy call these functions, by the name of the platform's."""
        with ExitStack() as stack:
            for name, function in functions.items():
                stack.enter_context(_replaced(name, function))
            yield


@pytest.fixture
def platform_functions() -> PlatformFunctions:
    """The slots of the platform's functions."""
    return PlatformFunctions()


class Refusals:
    """Which launches of products the library refuses, and how many it refused."""

    def __init__(self) -> None:
        self.count = 0
        self.status: Callable[[int, int, int], int] = lambda epilogue, rows, columns: 0

    def of(self, epilogue: int, status: int = 6, below: int = 1 << 30) -> None:
        """Refuse products with an epilogue and fewer rows than that, as the library counts them."""
        self.status = lambda found, rows, columns: status if found == epilogue and rows < below else 0


@pytest.fixture
def refusals(fresh_plan_cache: None) -> Iterator[Refusals]:
    """A hipblasLtMatmul that refuses what a test tells it to, although the heuristic has offered algorithms for it."""
    import rocpy
    from rocpy.blaslt.selection import library as _library
    from rocpy.blaslt.selection import tuning_state as _tuning_state

    made, extents = Refusals(), {}
    address, size = ctypes.c_void_p, ctypes.c_size_t
    read = ctypes.CFUNCTYPE(ctypes.c_int, address, ctypes.c_int, address, size, address)
    create = ctypes.CFUNCTYPE(ctypes.c_int, address, ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64)
    launch = ctypes.CFUNCTYPE(ctypes.c_int, *[address] * 14, size, address)
    read_desc = read(_function("hipblasLtMatmulDescGetAttribute").value)
    create_layout = create(_function("hipblasLtMatrixLayoutCreate").value)
    launch_product = launch(_function("hipblasLtMatmul").value)

    def note_extents(layout: int, dtype: int, rows: int, columns: int, step: int) -> int:
        status = create_layout(layout, dtype, rows, columns, step)
        extents[ctypes.cast(layout, ctypes.POINTER(address))[0]] = rows, columns
        return status

    def refuse_or_launch(*arguments: Any) -> int:
        epilogue = ctypes.c_uint32()
        read_desc(arguments[1], 2, ctypes.byref(epilogue), ctypes.sizeof(epilogue), None)
        status = made.status(epilogue.value, *extents[arguments[11]])
        made.count += status != 0
        return status or launch_product(*arguments)

    with (
        _replaced("hipblasLtMatrixLayoutCreate", create(note_extents)),
        _replaced("hipblasLtMatmul", launch(refuse_or_launch)),
    ):
        yield made
    rocpy.plan_cache.clear()
    _library._unlaunchable.clear()
    _tuning_state.changed()


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
