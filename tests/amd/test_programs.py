# SPDX-License-Identifier: MIT
"""The programs that show faults of AMD's library compile, and find none of them in the host platform's."""

import shutil
import subprocess
from pathlib import Path

import host_platform
import pytest

PROGRAMS = sorted(Path(__file__).parent.glob("*.c"))


@pytest.mark.parametrize("source", PROGRAMS, ids=[path.stem for path in PROGRAMS])
def test_a_program(source, tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    program, folder = tmp_path / source.stem, host_platform.folder() / "lib"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-L{folder}", f"-Wl,-rpath,{folder}"]
    subprocess.run([compiler, source, *flags, "-lhipblaslt", "-lamdhip64", "-lm", "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("0 ")
