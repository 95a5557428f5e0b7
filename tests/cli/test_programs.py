# SPDX-License-Identifier: MIT
"""Programs that commands run, and shells that read what commands print: as they would without rocpy."""

import json
import os
import subprocess
import sys

import pytest


def rocpy(*arguments, expect=0, **environ):
    done = subprocess.run(
        [sys.executable, "-m", "rocpy", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "160", "ROCPY_PLATFORM": "host", **environ},
        timeout=120,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("number", "name"), [(9, "SIGKILL"), (15, "SIGTERM"), (34, "SIGRTMIN"), (37, "signal 37"), (64, "SIGRTMAX")]
)
def test_a_program_that_a_signal_ends(number, name):
    done = rocpy("run", "--", "sh", "-c", f"kill -{number} $$", expect=128 + number)
    assert done.stderr.strip().endswith(f"was ended by {name}")


@pytest.mark.parametrize("first", ["#!/bin/sh\n", ""])
def test_a_program_with_an_equals_sign_is_no_variable(tmp_path, first):
    program = tmp_path / "x=y.sh"
    program.write_text(f"{first}echo $ROCPY_PLATFORM $@\n")
    program.chmod(0o755)
    assert rocpy("run", "--", "./x=y.sh", "echo", "two").stdout == "host echo two\n"


def test_a_program_that_cannot_be_started_is_one_line(tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    done = rocpy("run", "--", "./program", expect=2)
    assert done.stderr == "rocpy run: cannot run ./program (No such file or directory)\n"


@pytest.mark.parametrize("folder", ["plain", "my dir", "it's", 'a "quoted" $HOME `id` \\ & name', "*?[x]", "ünï"])
def test_a_shell_can_source_the_variables_of_a_tree(tmp_path, folder):
    tree = tmp_path / folder
    printed = rocpy("rocm-tree", tree).stdout
    (tmp_path / "variables").write_text("\n".join(line for line in printed.splitlines() if line.startswith("export ")))
    wanted = json.loads(rocpy("rocm-tree", tree, "--json").stdout)["variables"]
    program = ". ./variables && exec env -0"
    seen = subprocess.run(["sh", "-c", program], capture_output=True, text=True, check=True).stdout
    variables = dict(line.split("=", 1) for line in seen.split("\0") if line)
    assert {name: variables[name] for name in wanted} == wanted


@pytest.mark.parametrize("separator", [":", ";"])
def test_a_folder_that_the_loader_would_split_is_refused(tmp_path, separator):
    folder = tmp_path / f"x{separator}y"
    folder.mkdir()
    refused = rocpy("rocm-tree", f"./{folder.name}/tree", expect=2).stderr
    assert f"'{separator}'" in refused
    assert str(folder) in refused
    refused = rocpy("run", "--", "true", expect=2, TMPDIR=str(folder)).stderr
    assert f"'{separator}'" in refused
    assert "TMPDIR" in refused
    assert list(folder.iterdir()) == []


def test_a_tree_below_a_deleted_folder_is_refused(tmp_path):
    folder = tmp_path / "deleted"
    folder.mkdir()
    line = f'rmdir "{folder}"; exec "{sys.executable}" -m rocpy rocm-tree tree'
    done = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "rocpy rocm-tree: cannot lay out a tree in tree: No such file or directory\n"


PROGRAM = """
import sys
import helper
import numpy as np, rocpy
print("first folder", sys.path[0], "value", helper.VALUE)
rocpy.matmul(np.ones((4, 4), np.float32), np.ones((4, 4), np.float32))
"""


@pytest.mark.parametrize("link", [False, True])
def test_a_tuned_program_finds_the_modules_beside_it(tmp_path, link):
    folder = tmp_path / "sub"
    folder.mkdir()
    (folder / "helper.py").write_text("VALUE = 41\n")
    (folder / "train.py").write_text(PROGRAM)
    program = "sub/train.py"
    if link:
        (tmp_path / "train.py").symlink_to(folder / "train.py")
        program = "train.py"
    database = {"ROCPY_TUNING_DB": str(tmp_path / "db")}
    alone = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True).stdout
    done = rocpy("tune", "run", program, "--budget-ms", 5, "--json", **database)
    assert alone in done.stderr
    assert len(json.loads(done.stdout)["reports"]) == 1
