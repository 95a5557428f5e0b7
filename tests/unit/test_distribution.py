# SPDX-License-Identifier: MIT
"""The distribution may have another name than the package: pyproject.toml's `name` is the only thing to change."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest

from rocpy._messages import distribution, suggestions

ROOT = Path(__file__).resolve().parent.parent.parent
# Texts of a command whose brackets hold an extra, as `pip install 'name[extra]'`.
COMMAND = re.compile(r"pip install ['\"`]*rocpy\b|[\"'`]rocpy\[")


@pytest.fixture
def renamed(tmp_path):
    """Return the variables of a process that sees the package as installed by a distribution of another name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = tmp_path / "another_name-9.8.7.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: another-name\nVersion: 9.8.7\n")
    scripts = "".join(f"{name} = {target}\n" for name, target in project["scripts"].items())
    (folder / "entry_points.txt").write_text(f"[console_scripts]\n{scripts}")
    return {**os.environ, "PYTHONPATH": str(tmp_path), "ROCPY_PLATFORM": "host"}


def python(environment, *words):
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_version_and_info_of_another_name(renamed):
    assert python(renamed, "-m", "rocpy", "--version") == "rocpy 9.8.7\n"
    packages = json.loads(python(renamed, "-m", "rocpy", "info", "--json"))["packages"]
    assert packages["rocpy"] == "9.8.7"
    assert python(renamed, "-c", "import rocpy; print(rocpy.__version__)") == "9.8.7\n"


def test_messages_install_what_the_package_came_from(renamed):
    program = """
import sys
sys.modules["torch"] = None
try:
    import rocpy.torch
except ImportError as error:
    print(error)
"""
    assert "pip install 'another-name[torch]'" in python(renamed, "-c", program)


def test_another_package_with_the_command_is_not_ours(renamed, tmp_path):
    (tmp_path / "another_name-9.8.7.dist-info" / "entry_points.txt").write_text(
        "[console_scripts]\nrocpy = another.module:main\n"
    )
    assert python(renamed, "-c", "import rocpy; print(rocpy.__version__)") != "9.8.7\n"


def test_without_metadata_there_are_name_and_version(monkeypatch):
    monkeypatch.setattr(distribution, "_installed", lambda: None)
    assert distribution.version() == "0+unknown"
    assert distribution.install_command("plot") == "pip install 'rocpy[plot]'"


def test_no_source_file_names_the_distribution():
    files = [
        *(path for path in (ROOT / "rocpy").rglob("*.py*") if path.suffix in (".py", ".pyi", ".pyx")),
        *(ROOT / "rocpy_torch_backend").rglob("*.py"),
        *(ROOT / "benchmarks").glob("*.py"),
    ]
    assert files
    found = [str(path.relative_to(ROOT)) for path in files if COMMAND.search(path.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize("package", ["jax", "torch"])
def test_the_oldest_framework_is_that_of_the_metadata(package):
    least = re.search(r'^LEAST = "(.*?)"', (ROOT / "rocpy" / package / "_required.py").read_text(), re.MULTILINE)[1]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras[package] == [f"{package}>={least}"]


@pytest.mark.parametrize(
    ("version", "least", "too_old"),
    [
        ("0.9.0.1", "0.9.1", True),
        ("0.9.1", "0.9.1", False),
        ("0.10.2.dev20261101+abc", "0.9.1", False),
        ("2.9.1+cpu", "2.10", True),
        ("2.10.0a0+git12", "2.10", False),
    ],
)
def test_a_framework_that_is_too_old(monkeypatch, version, least, too_old):
    monkeypatch.setitem(sys.modules, "framework", types.SimpleNamespace(__version__=version))
    if not too_old:
        suggestions.require("framework", least)
        return
    with pytest.raises(ImportError, match=rf"is version {re.escape(version)}, and {least} or newer is needed: pip"):
        suggestions.require("framework", least)
