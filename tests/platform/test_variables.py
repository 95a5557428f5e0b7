# SPDX-License-Identifier: MIT
"""Every ROCPY_* variable by one rule: what is no value of it is one typed error when a platform is chosen."""

from __future__ import annotations

import copy
import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocpy import InvalidProblemError, platform
from rocpy import cooperative as coop
from rocpy._variables import fault_of_variable

ROWS = {variable.name: variable for variable in platform.variables()}
# Any text is a value of these.
FREE = ("ROCPY_TUNING_DB", "ROCPY_HOST_REPORT", "ROCPY_HOST_STRESS", "ROCPY_RCCL_SECRET")
# In one process: whether a platform is chosen with each of some values of a variable, each in a child of its own.
PROGRAM = """
import json, os, sys
import rocpy
from rocpy import platform

for name, value in json.loads(os.environ.pop("CASES")):
    pid = os.fork()
    if pid == 0:
        os.environ[name] = value
        try:
            import numpy as np
            assert (rocpy.matmul(np.ones((2, 3)), np.ones((3, 2))) == 3).all()
            print(json.dumps([name, "", ""]), flush=True)
        except Exception as error:
            print(json.dumps([name, type(error).__name__, str(error)]), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
"""


def outcomes(run_python, cases):
    clean = dict.fromkeys(ROWS)
    done = run_python(PROGRAM, CASES=json.dumps(cases), timeout_s=120, **{**clean, "ROCPY_TUNING_DB": os.devnull})
    assert done.stderr == "" or "Traceback" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(("name", "value"), [("ROCPY_SIMT_DEBUG", "yes"), ("ROCPY_NUM_THREADS", "zero")])
def test_a_kernel_is_not_declared_with_what_is_no_value(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidProblemError, match=f"^{name}: got '{value}', expected"):
        coop.jit(lambda out: None)
    coop.jit(lambda out: None, debug=False, threads=2)


def test_each_variable_is_of_a_kind():
    for name, variable in ROWS.items():
        assert fault_of_variable(name, variable.default) == ""
        assert fault_of_variable(name, "") == ""
        assert (fault_of_variable(name, "nonsense") == "") == (name in FREE), name


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(set(ROWS) - set(FREE))), value=st.text())
def test_any_text_is_a_value_or_a_fault(name, value):
    fault = fault_of_variable(name, value)
    if fault:
        assert fault.startswith(f"{name}: got ")
        assert "expected" in fault
        assert len(fault) < 800
    else:
        assert value == "" or value.isascii()


def test_nonsense_is_one_typed_error_and_values_are_none(run_python):
    # The test above has all that is none.
    nonsense = ["yes", "-1", "\u0661", "a" * 5000]
    cases = [[name, value] for name in ROWS for value in nonsense]
    found = outcomes(run_python, cases)
    assert len(found) == len(cases)
    for (name, value), (_, error, text) in zip(cases, found, strict=True):
        if name in FREE:
            assert error == "", (name, value, text)
        else:
            assert error == "InvalidProblemError", (name, value, error)
            assert text.startswith(f"{name}: got "), text


def test_values_are_taken(run_python):
    cases = [["ROCPY_DEBUG", "1"], ["ROCPY_PLAN_CACHE", "0"], ["ROCPY_AUTOTUNE", "0"], ["ROCPY_NUM_THREADS", "1"],
             ["ROCPY_HOST_DEVICES", "64"], ["ROCPY_HOST_ISA", "baseline"], ["ROCPY_HOST_ABI", "7.2"],
             ["ROCPY_HOST_STAGING", "1"], ["ROCPY_PLATFORM", "host"], ["ROCPY_SIMT_DEBUG", "0"]]  # fmt: skip
    assert [found[1:] for found in outcomes(run_python, cases)] == [["", ""]] * len(cases)


def test_a_variable_that_is_read_later_is_checked_then(monkeypatch):
    monkeypatch.setenv("ROCPY_DEBUG", "perhaps")
    with pytest.raises(InvalidProblemError, match="ROCPY_DEBUG: got 'perhaps', expected 0 or 1"):
        platform.environment("ROCPY_DEBUG")
    assert {variable.name: variable.value for variable in platform.variables()}["ROCPY_DEBUG"] == "perhaps"


@pytest.mark.parametrize("name", ["ROCPY_NUM_THREADS", "ROCPY_AUTOTUNE"])
def test_use_does_not_pass_by_the_rule(name, run_python):
    code = "import rocpy; rocpy.platform.use('host'); rocpy.platform.current()"
    done = run_python(code, check=False, **{name: "much"})
    assert f"InvalidProblemError: {name}: got 'much'" in done.stderr


def test_properties_of_the_platform_are_the_callers_own():
    current = platform.current()
    facts = current.info
    current.info.clear()
    facts.clear()
    assert current.info
    assert current.is_emulated == bool(current.info["emulated"])
    assert {current: 1}[platform.current()] == 1
    assert copy.deepcopy(current) == current
