# SPDX-License-Identifier: MIT
"""Stress mode over rocpy's own calls: a program with its waits is always right, and without one wrong at times."""

import json
from pathlib import Path

import pytest
import waiting_programs

import rocpy

PROGRAMS = Path(waiting_programs.__file__).read_text(encoding="utf-8")
SEEDS = range(1, 21)


@pytest.mark.slow
def test_missing_waits_are_found_within_twenty_seeds_and_no_others(run_python):
    if not rocpy.platform.current().is_emulated:
        pytest.skip("stress mode is the host platform's")
    caught = dict.fromkeys((run.__name__ for run in waiting_programs.PROGRAMS), 0)
    for seed in SEEDS:
        done = run_python(PROGRAMS, ROCPY_HOST_STRESS=str(seed), ROCPY_HOST_DEVICES="2", ROCPY_HOST_STAGING=None)
        wrong = json.loads(done.stdout)
        assert wrong["waits"] == [], f"seed {seed}"
        for name in wrong["forgets"]:
            caught[name] += 1
    print(caught)
    assert all(caught.values()), caught
