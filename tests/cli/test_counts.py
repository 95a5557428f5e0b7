# SPDX-License-Identifier: MIT
"""What `rocpy bench counts` reports as grown."""

import importlib.util
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
VERSIONS = {"python": "3.11.7", "numpy": "2.4.6", "torch": "2.13.0"}
BEFORE = {"label": "rocpy matmul", "instructions": 1000, "library calls": 5, "allocations": 1}


@pytest.fixture
def counts(monkeypatch):
    if not BENCHMARKS.is_dir():
        pytest.skip("the benchmarks are not beside the tests")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("counts_under_test", BENCHMARKS / "counts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.modules.pop("machine", None)


def compared(counts, **changed):
    now = {**BEFORE, **changed, "versions": VERSIONS, "isa": "avx2"}
    return counts.grown([now], [{"versions": counts.versions(now), "rows": [BEFORE]}])


@pytest.mark.parametrize(
    ("changed", "failures", "remarks"),
    [
        ({}, [], []),
        ({"instructions": 1020}, [], []),
        ({"instructions": 1080}, [], ["rocpy matmul: instructions, 1,000 -> 1,080"]),
        ({"instructions": 1200}, ["rocpy matmul: instructions, 1,000 -> 1,200"], []),
        ({"library calls": 6}, ["rocpy matmul: library calls, 5 -> 6"], []),
        ({"allocations": 2}, ["rocpy matmul: allocations, 1 -> 2"], []),
        ({"allocations": 0, "instructions": 900}, [], []),
    ],
)
def test_growth_is_reported(counts, changed, failures, remarks):
    assert compared(counts, **changed)[:2] == (failures, remarks)
