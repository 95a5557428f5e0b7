# SPDX-License-Identifier: MIT
"""The commands as a user runs them: output for people, one JSON document for programs, exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def rocpy(*arguments, expect=0, **environ):
    done = subprocess.run(
        [sys.executable, "-m", "rocpy", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "160", **environ},
        timeout=120,
    )
    assert done.returncode == expect, done.stdout + done.stderr
    return done


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_version():
    import rocpy as package

    assert rocpy("--version").stdout.strip() == f"rocpy {package.__version__}"


def test_no_command_shows_help():
    assert "doctor" in rocpy(expect=2).stdout


def test_unknown_command_is_wrong_usage():
    assert "no command" in rocpy("nonsense", expect=2).stderr


def test_info_for_people():
    text = rocpy("info", ROCPY_PLATFORM="host").stdout
    for word in ("platform", "host", "libraries", "hipblaslt", "ROCPY_PLATFORM", "hip-python"):
        assert word in text


def test_info_for_programs():
    document = json.loads(rocpy("info", "--json", ROCPY_PLATFORM="host", ROCPY_HOST_DEVICES="3").stdout)
    assert document["platform"]["name"] == "host"
    assert document["platform"]["is_emulated"] is True
    assert len(document["devices"]) == 3
    assert {row["name"] for row in document["libraries"]} >= {"hip", "hipblaslt"}
    assert all(Path(row["path"]).is_file() for row in document["libraries"])
    values = {row["name"]: row["value"] for row in document["environment"]}
    assert values["ROCPY_HOST_DEVICES"] == "3"


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="the machine may have a usable AMD GPU")
def test_no_platform_has_its_exit_code():
    done = rocpy("info", expect=3, ROCPY_PLATFORM="amd")
    assert "LibraryError" in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_platform_name():
    done = rocpy("info", expect=2, ROCPY_PLATFORM="cuda")
    assert "ROCPY_PLATFORM: got 'cuda'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("level", ["1", "2", "3"])
def test_doctor_levels(level):
    done = subprocess.run(
        [sys.executable, "-m", "rocpy", "doctor", "-r", level, "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "ROCPY_PLATFORM": "host"},
    )
    findings = json.loads(done.stdout)["findings"]
    problems = [row for row in findings if row["status"] == "problem"]
    assert done.returncode == (1 if problems else 0)
    assert {row["level"] for row in findings} == set(range(1, int(level) + 1))
    assert all(row["fix"] for row in problems)


def test_doctor_level_out_of_range():
    rocpy("doctor", "-r", "4", expect=2)


def test_doctor_finds_a_path_that_leads_nowhere(tmp_path):
    document = json.loads(rocpy("doctor", "-r", "1", "--json", expect=1, ROCM_PATH=str(tmp_path / "gone")).stdout)
    assert [row["check"] for row in document["findings"] if row["status"] == "problem"] == ["rocm path"]


@pytest.mark.slow
def test_selftest_writes_its_report(tmp_path):
    done = rocpy("doctor", "-r", "1", "--selftest", "--report", "report.json", ROCPY_PLATFORM="host")
    report = json.loads((tmp_path / "report.json").read_text())
    assert "self-test:" in done.stdout
    assert report["summary"]["ok"] > 50
    assert report["summary"]["failed"] == report["summary"]["error"] == 0
    assert report["info"]["platform"]["name"] == "host"
    assert len(report["cases"]) == report["summary"]["total"]
