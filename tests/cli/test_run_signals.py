# SPDX-License-Identifier: MIT
"""Signals that reach a command: a program is waited for, and nothing temporary is left behind."""

import os
import shlex
import signal
import subprocess
import sys

import pytest

ROCPY = [sys.executable, "-m", "rocpy"]


@pytest.fixture
def start(tmp_path):
    """Start a command in a session of its own and return it once its program has said that it is ready."""
    started = []

    def start(*words, before=(), **settings):
        environ = {**os.environ, "ROCPY_PLATFORM": "host", "TMPDIR": str(tmp_path)}
        process = subprocess.Popen(
            [*before, *ROCPY, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ,
            start_new_session=True,
            **settings,
        )
        started.append(process)
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


# What saves its work takes longer than a wait of a shell or of Python for a program that was interrupted.
PROGRAM = "trap 'sleep 0.4; echo saved; exit 7' {}; echo ready; while :; do sleep 0.02; done"


def test_ctrl_c_waits_for_the_program(start, tmp_path):
    process = start("run", "--", "sh", "-c", PROGRAM.format("INT"))
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60) == ("saved\n", "")
    assert process.returncode == 7
    assert not list(tmp_path.iterdir())


COUNT = """
import os, signal, time
for number in (signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, lambda *_: os.write(1, b"x"))
os.write(1, b"ready\\n")
time.sleep(0.3)
"""


# Makes its input the session's terminal, then becomes what it is given.
TAKE = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("key", [b"\x03", b"\x1c"], ids=["INT", "QUIT"])
def test_a_key_of_the_terminal_reaches_the_program_once(start, key):
    keyboard, terminal = os.openpty()
    with os.fdopen(keyboard, "wb", buffering=0) as keys, os.fdopen(terminal) as stdin:
        process = start("run", "--", sys.executable, "-Sc", COUNT, stdin=stdin, before=[sys.executable, "-Sc", TAKE])
        keys.write(key)
        assert process.communicate(timeout=60) == ("x", "")


@pytest.mark.parametrize("name", ["TERM", "HUP", "USR1", "INT", "QUIT"])
def test_a_signal_is_passed_on_to_the_program(start, tmp_path, name):
    process = start("run", "--", "sh", "-c", PROGRAM.format(name))
    process.send_signal(signal.Signals["SIG" + name])
    assert process.communicate(timeout=60) == ("saved\n", "")
    assert process.returncode == 7
    assert not list(tmp_path.iterdir())


def test_a_program_that_the_signal_ends(start, tmp_path):
    process = start("run", "--", "sh", "-c", "echo ready; exec sleep 60")
    process.terminate()
    assert process.communicate(timeout=60) == ("", "rocpy run: sh was ended by SIGTERM\n")
    assert process.returncode == 143
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_command_that_a_signal_ends_leaves_no_empty_file(tmp_path, monkeypatch, number):
    monkeypatch.chdir(tmp_path)
    program = f"""
import os, rocpy.testing
from rocpy.cli import main
rocpy.testing.run_selftest = lambda *_, **__: os.kill(os.getpid(), {int(number)})
main(["doctor", "-r", "1", "--selftest", "--report", "new.json"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 128 + number
    assert done.stderr == ("interrupted\n" if number == signal.SIGINT else "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", ["doctor -r 1", "tune list", "info", "completion bash", "report missing --help"])
def test_a_reader_that_closes_the_pipe(words):
    line = f"{{ {shlex.join(ROCPY)} {words}; echo $? >&2; }} | true"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=120)
    assert done.stderr == "141\n"
