# SPDX-License-Identifier: MIT
"""Fixtures that several test folders share."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed."""
    return np.random.default_rng(20250)


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
