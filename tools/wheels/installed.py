# SPDX-License-Identifier: MIT
"""A wheel, installed in a clean environment outside the tree and tested there."""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path

from toolchain import GLIBC

from build import ROOT, Interpreter, run

PYTEST = ("-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider")


def install(folder: Path, wheel: Path, interpreter: Interpreter, *others: str) -> Path:
    """Return the Python of a fresh environment that holds the wheel, its dependencies, pytest and other packages."""
    if interpreter.path == Path(sys.executable):
        venv.create(folder / "environment", with_pip=True)
    else:
        run(interpreter.path, "-m", "venv", folder / "environment", cwd=folder)
    python = folder / "environment" / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--constraint")
    pins = ROOT / "requirements"
    run(*pip, pins / "runtime.txt", wheel, cwd=folder)
    run(*pip, pins / "test.txt", "pytest", "pyelftools", *others, cwd=folder)
    run(python, "-m", "pip", "check", cwd=folder)
    return python


def files_given(wheel: Path, sdist: Path) -> list[str]:
    """Return pytest's options that name what was built."""
    # One word each: pytest, which does not know the options yet, takes a lone path for a folder of tests
    # and would import the checkout before the environment's packages.
    return [f"--wheel={wheel}", f"--sdist={sdist}", f"--checkout={ROOT}"]


def check_contents(wheel: Path, sdist: Path) -> None:
    """Look into a wheel of any architecture, by the tests of its contents and by auditwheel."""
    with tempfile.TemporaryDirectory(prefix="rocpy-wheel-") as name:
        folder = Path(name)
        shutil.copytree(ROOT / "tests" / "packaging", folder / "packaging")
        tests = folder / "packaging" / "test_wheel.py"
        run(sys.executable, *PYTEST, "--rootdir", folder, tests, *files_given(wheel, sdist), cwd=folder)
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
    shown = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    match = re.match(r"manylinux_(\d+)_(\d+)_", shown["sym_tag"])
    # Libraries of the stand-in ROCm tree need each other as they lie in the tree that they are laid out in.
    outside = [name for name in shown["external_libs"] if not name.startswith("libamdhip64.so.")]
    print(f"auditwheel: {shown['sym_tag']}, libraries that no system has: {outside or 'none'}", flush=True)
    if outside or not match or (int(match[1]), int(match[2])) > GLIBC:
        raise subprocess.CalledProcessError(1, f"auditwheel show {wheel.name}: not what the name says")


def run_installed(wheel: Path, sdist: Path, interpreter: Interpreter) -> None:
    """Test an installed wheel from another folder."""
    with tempfile.TemporaryDirectory(prefix="rocpy-wheel-") as name:
        folder = Path(name)
        python = install(folder, wheel, interpreter)
        elsewhere = folder / "elsewhere"
        shutil.copytree(ROOT / "tests" / "packaging", elsewhere / "packaging")
        run(python, *PYTEST, "--rootdir", elsewhere, "packaging", *files_given(wheel, sdist), cwd=elsewhere)
        script = python.with_name("rocpy")
        run(script, "info", cwd=elsewhere)
        run(script, "doctor", "-r", "3", cwd=elsewhere)
        run(script, "demo", cwd=elsewhere)


def run_documents(wheel: Path, interpreter: Interpreter, frameworks: Sequence[str]) -> None:
    """Run every Python block of README and the site's pages on an installed wheel, with torch and jax beside it."""
    with tempfile.TemporaryDirectory(prefix="rocpy-wheel-") as name:
        folder = Path(name)
        python = install(folder, wheel, interpreter, *frameworks)
        elsewhere = folder / "elsewhere"
        shutil.copytree(ROOT / "docs", elsewhere / "docs")
        for page in ("README.md", "CONTRIBUTING.md"):
            shutil.copy(ROOT / page, elsewhere)
        (elsewhere / "tests").mkdir()
        shutil.copy(ROOT / "tests" / "test_docs.py", elsewhere / "tests")
        (elsewhere / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow\n    torch\n    jax\n    triton\n")
        # Triton unpacks to a gigabyte: the page that needs it is run by `make fused`.
        words = ("tests/test_docs.py", "-rs", "-k", "test_page_runs", "-m", "not triton")
        run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, cwd=elsewhere)
