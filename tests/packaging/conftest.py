# SPDX-License-Identifier: MIT
"""Fixtures of the packaging tests: the built files, given on the command line, and a way to run Python elsewhere."""

import subprocess
import sys
from pathlib import Path

import pytest


def pytest_addoption(parser):
    """Add the options of tools/wheels; the tests that need a file are left out where it is not given."""
    for name in ("--wheel", "--sdist", "--checkout"):
        parser.addoption(name, type=Path, default=None)


def pytest_ignore_collect(collection_path, config):
    """Leave out the tests of a file that was not built."""
    for name in ("wheel", "sdist"):
        if collection_path.name == f"test_{name}.py" and config.getoption(f"--{name}", default=None) is None:
            return True
    return None


@pytest.fixture(scope="session")
def wheel(pytestconfig):
    return pytestconfig.getoption("--wheel")


@pytest.fixture(scope="session")
def sdist(pytestconfig):
    return pytestconfig.getoption("--sdist")


@pytest.fixture(scope="session")
def checkout(pytestconfig):
    return pytestconfig.getoption("--checkout")


@pytest.fixture
def python(tmp_path):
    """Run a program in a fresh interpreter, from an empty folder, and return what it printed."""

    def run(program, **environ):
        import os

        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **environ},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
