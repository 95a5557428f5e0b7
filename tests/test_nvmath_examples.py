# SPDX-License-Identifier: MIT
"""The tool that counts nvmath-python's examples: programs of its kind run, and those that fail are told."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "nvmath_examples.py"

ARRAYS = """
import cupy as cp
import nvmath
from numeric_utils import doubled

a, b = cp.random.rand(4, 3, dtype=cp.float32), cp.random.rand(3, 5, dtype=cp.float32)
result = nvmath.linalg.matmul(a, b)
cp.cuda.get_current_stream().synchronize()
assert cp.allclose(doubled(result), 2 * (a @ b))
"""
TENSORS = """
import nvmath
import torch
from nvmath.linalg.advanced.helpers.matmul import create_mxfp8_scale

a = torch.ones(128, 128, device="cuda").type(torch.float8_e4m3fn)
scale = create_mxfp8_scale(a, 1)
result = nvmath.linalg.advanced.matmul(
    a, a.T, quantization_scales={"a": scale, "b": scale}, options={"block_scaling": True, "result_type": 0}
)
torch.cuda.default_stream().synchronize()
assert (torch.zeros(1, device=0) + result.cuda() == 512).all()
"""


def count(folder):
    done = subprocess.run([sys.executable, TOOL, folder], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_examples_that_run_and_that_do_not_are_counted(tmp_path):
    inner = tmp_path / "advanced"
    inner.mkdir()
    (inner / "numeric_utils.py").write_text("def doubled(x):\n    return 2 * x\n")
    (inner / "example1_utils.py").write_text("raise RuntimeError('no example')\n")
    (inner / "example01_arrays.py").write_text(ARRAYS)
    assert count(tmp_path)[:2] == (0, ["1 of 1 run"])
    (inner / "example24_fp8_epilog_aux.py").write_text("import nvmath\nraise ValueError('as it is known')\n")
    status, lines, _ = count(tmp_path)
    assert status == 0
    assert lines[0] == "advanced/example24_fp8_epilog_aux.py: ValueError: as it is known"
    assert lines[1].startswith("    known: ")
    assert lines[2] == "1 of 2 run"
    (inner / "example03.py").write_text("import nvmath\nassert nvmath.__name__ == 'nvmath'\n")
    status, lines, _ = count(tmp_path)
    assert status == 1
    assert lines[0] == "advanced/example03.py: AssertionError"
    assert lines[-1] == "1 of 3 run"


def test_a_folder_without_examples_is_refused(tmp_path):
    status, lines, error = count(tmp_path)
    assert (status, lines) == (2, [])
    assert "there are no files example*.py" in error


@pytest.mark.torch
def test_tensors_of_a_device_that_is_not_there(tmp_path, torch):
    if torch.cuda.is_available():
        pytest.skip("the device is there")
    (tmp_path / "example02_tensors.py").write_text(TENSORS)
    assert count(tmp_path)[:2] == (0, ["1 of 1 run"])
