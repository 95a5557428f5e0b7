# SPDX-License-Identifier: MIT
"""The questions that only hardware can answer can be asked: of the host platform, whose answers are known."""

import subprocess
import sys
from pathlib import Path

import pytest

import rocpy

TOOL = Path(__file__).resolve().parent.parent / "tools" / "ask_hardware.py"


def test_the_host_platform_answers():
    if rocpy.platform.current().name != "host":
        pytest.skip("another platform's answers are what the tool is for")
    done = subprocess.run([sys.executable, TOOL], capture_output=True, text=True, check=True)
    platform, alpha, workspace = done.stdout.splitlines()
    assert platform.startswith("platform: host")
    assert alpha == "alpha in pointer mode DEVICE: a vector along m"
    assert workspace.startswith("launch with too small a workspace: status ")
    assert not workspace.startswith("launch with too small a workspace: status 0 ")
