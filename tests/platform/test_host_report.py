# SPDX-License-Identifier: MIT
"""The file of ROCPY_HOST_REPORT: every call that the stand-in tree does not support, however its process ends."""

import os
import subprocess
import sys

import pytest

from rocpy.cli.rocm_tree import environment, lay_out
from rocpy.cli.run import not_supported

PLAN = "import ctypes, os; plan = lambda: ctypes.CDLL('libhipfft.so.0').hipfftPlan1d(0, 0, 0, 0)\n"


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    tree = tmp_path_factory.mktemp("tree")
    lay_out(tree, "7.2")
    return tree


def run(tree, program, report, folder):
    environ = {**os.environ, **environment(tree, "7.2"), "ROCPY_HOST_REPORT": report}
    words = [sys.executable, "-I", "-c", PLAN + program]
    done = subprocess.run(words, env=environ, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(
    ("program", "calls"),
    [
        ("for _ in range(1000): plan()", 1000),
        ("for _ in range(1000): plan()\nos._exit(0)", 1000),
        ("for _ in range(10): plan()\nif not os.fork(): os._exit(0)\nos.wait()", 10),
        ("for _ in range(10): plan()\nif not os.fork():\n  for _ in range(4): plan()\nelse: os.wait()", 14),
        ("for _ in range(10): plan()\nif not os.fork():\n  for _ in range(4): plan()\n  os._exit(0)\nos.wait()", 14),
        ("plan(); os.fork() or os.execvp('sh', ['sh', '-c', 'exit']); os.wait(); plan()", 2),
    ],
)
def test_calls_are_counted_once_however_the_process_ends(tree, tmp_path, program, calls):
    run(tree, program, "report", tmp_path)
    assert not_supported((tmp_path / "report").read_text()) == [("hipfft", "hipfftPlan1d", calls)]


def test_a_program_that_changes_its_folder_has_one_file(tree, tmp_path):
    run(
        tree,
        "plan(); os.mkdir('other'); os.chdir('other'); plan(); ctypes.CDLL('libhipfft.so.0').hipfftPlan2d",
        "report",
        tmp_path,
    )
    assert not_supported((tmp_path / "report").read_text()) == [("hipfft", "hipfftPlan1d", 2)]
    assert not list((tmp_path / "other").iterdir())


@pytest.mark.parametrize("report", ["/nonexistent/a", "."])
def test_a_file_that_cannot_be_written_is_said_once(tree, tmp_path, report):
    done = run(tree, "plan(); plan(); ctypes.CDLL('libhipfft.so.0').hipfftDestroy(0)", report, tmp_path)
    assert done.stderr.count("cannot write to") == done.stderr.count("ROCPY_HOST_REPORT") == 1


def test_what_cannot_be_written_twice_has_the_last_counts_at_the_end(tree, tmp_path):
    done = run(tree, "for _ in range(5): plan()", "/dev/stderr", tmp_path)
    assert [line.split()[-1] for line in done.stderr.splitlines()] == ["1", "5"]


def test_run_with_a_report_writes_the_users_file_too(tree, tmp_path):
    environ = {**os.environ, "ROCPY_HOST_REPORT": "report"}
    words = [
        sys.executable,
        "-m",
        "rocpy",
        "run",
        "--report",
        "--",
        sys.executable,
        "-I",
        "-c",
        PLAN + "plan(); plan()",
    ]
    done = subprocess.run(words, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stderr.split()[-3:] == ["hipfft", "hipfftPlan1d", "2"]
    assert not_supported((tmp_path / "report").read_text()) == [("hipfft", "hipfftPlan1d", 2)]
    done = subprocess.run(
        words, env={**environ, "ROCPY_HOST_REPORT": "."}, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stderr.startswith("rocpy run: cannot write to ., which ROCPY_HOST_REPORT names: ")
