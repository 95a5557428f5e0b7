# SPDX-License-Identifier: MIT
"""Commands whose output cannot be written, is closed, or is interrupted: one line, and an exit code of its own."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rocpy.cli._output import prepare_streams

COMMANDS = [
    "--version",
    "--help",
    "info",
    "info --json",
    "completion bash",
    "tune list",
    "tune export -",
    "rccl --help",
]


def shell(line, *, text=True):
    """Run a line of a shell in which ``rocpy`` is the command."""
    return subprocess.run(
        ["sh", "-c", line.replace("rocpy ", f"{shlex.quote(sys.executable)} -m rocpy ", 1)],
        capture_output=True,
        text=text,
        env={**os.environ, "ROCPY_PLATFORM": "host"},
        timeout=120,
    )


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROCPY_TUNING_DB", str(tmp_path / "db"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("words", COMMANDS)
def test_a_full_disk_is_one_line(words):
    done = shell(f"rocpy {words} > /dev/full")
    assert (done.returncode, done.stderr) == (4, "rocpy: cannot write the output: No space left on device\n")


def test_output_to_what_is_open_for_reading_only():
    done = shell("rocpy --version 1< /dev/null")
    assert (done.returncode, done.stderr) == (4, "rocpy: cannot write the output: Bad file descriptor\n")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("rocpy info >&-", 0),
        ("rocpy --help >&-", 0),
        ("rocpy rccl --help >&-", 0),  # status would tell of the other tests' jobs, too
        ("rocpy bogus 2>&-", 2),
        ("rocpy bogus 2>/dev/full", 2),
        ("rocpy bogus >/dev/full 2>/dev/full", 2),
        ("rocpy info >/dev/full 2>/dev/full", 4),
        ("rocpy run -- sh -c 'exit 7' >&-", 7),
        ("rocpy run -- true >&- 2>&-", 0),
    ],
)
def test_closed_and_unwritable_streams_leave_the_exit_code(line, code):
    done = shell(line)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
def test_standard_streams_that_the_process_lacks_or_has_closed(monkeypatch, name, tmp_path):
    with (tmp_path / "file").open("w") as closed:
        pass
    for absent in (None, closed):
        monkeypatch.setattr(sys, name, absent)
        prepare_streams()
        with getattr(sys, name) as stream:
            assert stream.readable() == (name == "stdin")
            assert stream.writable() == (name != "stdin")
            assert (absent is None) == (stream.name == os.devnull)


@pytest.mark.parametrize("words", ["info", "info --json", "doctor -r 3", "rocm-tree tree", "run -- true", "bogüs"])
def test_text_that_the_locale_cannot_encode(tmp_path, words):
    folder = tmp_path / "röcm"
    folder.mkdir()
    ascii_locale = "export LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 XDG_CACHE_HOME=$PWD"
    done = shell(f"cd {folder} && {ascii_locale} && rocpy {words}", text=False)
    assert done.returncode == (2 if words == "bogüs" else 0), done.stderr
    assert b"Traceback" not in done.stderr
    assert os.fsencode(folder.name) in done.stdout or not words.startswith(("doctor", "rocm-tree"))


def test_an_interrupt_while_the_commands_are_imported_is_one_line():
    program = """
import os, signal, sys
from rocpy._import_hook import when_imported
when_imported("argparse", lambda: os.kill(os.getpid(), signal.SIGINT))
from rocpy.cli import main
assert "argparse" not in sys.modules
main(["--version"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize(("status", "code"), [("ok", 4), ("failed", 1)])
def test_a_report_that_cannot_be_written(tmp_path, status, code):
    program = f"""
import rocpy.testing
from rocpy.cli import main
summary = {{"total": 1, "worst_ratio": 0.0, "elapsed_s": 0.0}}
rocpy.testing.run_selftest = lambda *_, **__: {{"summary": summary, "cases": [{{"status": "{status}", "name": "x"}}]}}
main(["doctor", "-r", "1", "--selftest", "--report", "/dev/full"])
"""
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=environ)
    assert done.returncode == code
    (file,) = tmp_path.iterdir()
    assert done.stderr == f"cannot write /dev/full (No space left on device); the report is in {file}\n"
