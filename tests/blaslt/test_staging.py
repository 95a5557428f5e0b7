# SPDX-License-Identifier: MIT
"""A device with memory of its own: part of this folder again, where arrays in CPU memory are copied there and back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rocpy

HERE = Path(__file__).resolve().parent
PARTS = (
    "test_complex.py",
    "test_explain.py",
    "test_grouped.py",
    "test_mx.py",
    "test_out_dtype.py",
    "test_plans.py",
    "test_scales.py",
    "test_shapes.py",
    "test_shapes_bias.py",
    "test_supported.py",
)


@pytest.mark.skipif(not rocpy.platform.current().host_memory, reason="operands are copied in this run already")
def test_part_of_the_folder_with_operands_that_must_be_copied():
    if not rocpy.platform.current().is_emulated:
        pytest.skip("only the host platform can be told to treat CPU memory as foreign")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-m", "not slow"]
        + [str(HERE / part) for part in PARTS],
        cwd=HERE.parent.parent,
        env={**os.environ, "ROCPY_HOST_STAGING": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
