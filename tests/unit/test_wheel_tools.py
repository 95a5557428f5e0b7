# SPDX-License-Identifier: MIT
"""The tool that builds wheels: which Pythons it finds, what it refuses before it builds, and what it reports."""

import json
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def pythons(monkeypatch, tmp_path):
    """Return the module that finds Pythons, with no version manager at home."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "wheels"))
    import pythons

    return pythons


@pytest.fixture
def tool(monkeypatch):
    """Return the names of the tool's main module."""
    monkeypatch.syspath_prepend(str(ROOT / "tools" / "wheels"))
    for name in ("build", "installed", "foreign", "toolchain", "pythons"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    names = runpy.run_path(str(ROOT / "tools" / "wheels" / "__main__.py"), run_name="wheels")
    yield names["main"].__globals__
    for name in ("build", "installed", "foreign", "toolchain", "pythons"):
        sys.modules.pop(name, None)


def made_up_python(path, name, missing=(), code=0):
    """Write a program that answers as the Python of this name, or exits with a code."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{json.dumps([name, list(missing)])}'\nexit {code}\n")
    path.chmod(0o755)
    return path


def test_a_python_on_the_path_is_found(pythons, tmp_path):
    real = made_up_python(tmp_path / "bin" / "python3.12", "3.12")
    assert pythons.find_python("3.12") == real


def test_a_shim_that_fails_leads_to_what_its_manager_installed(pythons, tmp_path, monkeypatch):
    manager = tmp_path / "manager"
    made_up_python(manager / "shims" / "python3.12", "", code=127)
    real = made_up_python(manager / "versions" / "3.12.1" / "bin" / "python3.12", "3.12")
    monkeypatch.setenv("PATH", str(manager / "shims"))
    assert pythons.find_python("3.12") == real


def test_a_second_python_on_the_path_counts(pythons, tmp_path, monkeypatch):
    made_up_python(tmp_path / "shims" / "python3.13", "", code=127)
    real = made_up_python(tmp_path / "other" / "python3.13", "3.13")
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:{tmp_path / 'other'}")
    assert pythons.find_python("3.13") == real


@pytest.mark.parametrize(
    ("name", "missing", "code", "reason"),
    [
        ("3.14", ("Python.h",), 0, "lacks Python.h"),
        ("3.14", ("the module ensurepip", "the module venv"), 0, "lacks the module ensurepip and the module venv"),
        ("3.14t", (), 0, "is Python 3.14t"),
        ("3.14", (), 127, "exits with 127"),
    ],
)
def test_a_python_that_does_not_serve_is_named_with_the_reason(pythons, tmp_path, name, missing, code, reason):
    path = made_up_python(tmp_path / "bin" / "python3.14", name, missing, code)
    with pytest.raises(pythons.MissingPythonError, match=f"no Python 3.14 on this machine; {path} {reason}$"):
        pythons.find_python("3.14")


def test_no_python_at_all(pythons):
    with pytest.raises(pythons.MissingPythonError, match="no Python 3.13 on this machine$"):
        pythons.find_python("3.13")


def test_this_python_answers(pythons):
    name = f"{sys.version_info[0]}.{sys.version_info[1]}"
    # A Python without the files for development lacks them, and is the one that was asked.
    assert pythons.fault_of(Path(sys.executable), name) in ("", f"{sys.executable} lacks Python.h")
    assert "is Python" in pythons.fault_of(Path(sys.executable), "2.7")


def test_the_pythons_are_those_of_the_releases(tool):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]
    assert settings["build"] == [f"cp{name.replace('.', '')}-*" for name in tool["PYTHONS"]]


def test_missing_tools_are_all_named_before_anything_is_built(tool, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tool["platform"], "machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "argv", ["wheels", "--all-architectures", "--output", str(tmp_path / "dist")])
    assert tool["main"]() == 1
    shown = capsys.readouterr().err
    assert "apt-get install g++)" in shown
    assert "apt-get install g++-aarch64-linux-gnu" in shown
    assert "apt-get install qemu-user-static" in shown
    assert "nothing was built" in shown
    assert not (tmp_path / "dist").exists()


def test_what_was_built_is_listed_after_a_failure(tool, monkeypatch, tmp_path, capsys):
    def build(name):
        (tmp_path / name).write_bytes(b"0" * 10_000)
        return tmp_path / name

    def fail(*_):
        raise subprocess.CalledProcessError(1, "pytest")

    monkeypatch.setitem(tool, "missing_tools", lambda architectures: [])
    monkeypatch.setitem(tool, "build_sdist", lambda folder: build("rocpy.tar.gz"))
    monkeypatch.setitem(tool, "build_wheel", lambda sdist, interpreter, toolchain, *_: build(f"{toolchain}.whl"))
    monkeypatch.setitem(tool, "make_toolchain", lambda arch, folder: arch)
    monkeypatch.setitem(tool, "check_contents", lambda *_: None)
    monkeypatch.setitem(tool, "run_installed", lambda *_: None)
    monkeypatch.setitem(tool, "run_foreign", fail)
    monkeypatch.setitem(
        tool, "interpreters", lambda every: iter(["no Python 3.14 on this machine", tool["this_interpreter"]()])
    )
    monkeypatch.setattr(tool["platform"], "machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "argv", ["wheels", "--all-architectures", "--output", str(tmp_path)])
    assert tool["main"]() == 1
    shown = capsys.readouterr()
    assert [" ".join(line.split()) for line in shown.out.splitlines()] == [
        "0.01 MB rocpy.tar.gz",
        "not built, untested: no Python 3.14 on this machine (cibuildwheel builds and tests it)",
        "0.01 MB x86_64.whl tested",
        "0.01 MB aarch64.whl FAILED its tests",
    ]
    assert "failed with 1: pytest" in shown.err
