# SPDX-License-Identifier: MIT
"""CONTRIBUTING's table of what to touch is true: made-up things are added in those files, and their tests pass."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent / "tools" / "additions" / "rehearse.py"


@pytest.mark.slow
@pytest.mark.timeout(3600)  # a new library is built, and much of rocpy with it
@pytest.mark.parametrize("kind", ["dtype", "epilogue", "library", "primitive of kernels", "further collective of RCCL"])
def test_additions_need_the_files_of_the_table(kind):
    done = subprocess.run([sys.executable, TOOL, kind], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def rehearse():
    sys.path.insert(0, str(TOOL.parent))
    try:
        import rehearse
    finally:
        sys.path.remove(str(TOOL.parent))
    return rehearse


def test_a_row_that_names_too_few_or_too_many_files_is_reported(rehearse, monkeypatch):
    kind = "primitive of kernels"
    assert rehearse.problems_of(kind) == []
    named = rehearse.named_files(kind)
    monkeypatch.setattr(rehearse, "named_files", lambda _: [*named[1:], "rocpy/dtypes.py"])
    wrong = "\n".join(rehearse.problems_of(kind))
    assert f"{named[0]}/" in wrong
    assert "rocpy/dtypes.py: in CONTRIBUTING's row" in wrong
