# SPDX-License-Identifier: MIT
"""A call that is no single launch goes on in steps: what prepares it or finishes its result makes no call itself."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

import rocpy
from rocpy.blaslt.front.call import run
from rocpy.blaslt.model.preparation import Preparation
from rocpy.blaslt.model.product_call import ProductCall

# What prepares calls, and the planner's first question, which only a call asks.
PREPARE = ("arrays/copies.py", "arrays/staging.py", "composed/product.py", "grouped/preparations.py")
PLANNER = ("selection/choice.py", "candidates_wanted")
PACKAGE = Path(rocpy.blaslt.__file__).parent

RNG = np.random.default_rng(3)
A, B = RNG.standard_normal((6, 8)), RNG.standard_normal((8, 5))
COMPOSED = "gelu_erf"  # no release has a number for it


def composed(x):
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


@pytest.fixture(autouse=True)
def _composes(without_programs):
    """No tile program takes the place of composing."""


def stacks_of_planner(call):
    """Run a call as a fresh one; return the files on the stack each time the planner is asked."""
    found = []

    def see(frame, event, _):
        if event != "call" or file_of(frame) != PLANNER[0] or frame.f_code.co_name != PLANNER[1]:
            return
        files, caller = [], frame.f_back
        while caller is not None:
            files.append(file_of(caller))
            caller = caller.f_back
        found.append([file for file in files if file])

    rocpy.plan_cache.clear()
    before = sys.getprofile()
    sys.setprofile(see)
    try:
        result = call()
    finally:
        sys.setprofile(before)
    return result, found


def file_of(frame):
    path = Path(frame.f_code.co_filename)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else ""


def spaced(array):
    """Return the same values in an array that no library takes as it lies."""
    wide = np.zeros((2 * array.shape[0], 2 * array.shape[1]), array.dtype)
    wide[::2, ::2] = array
    return wide[::2, ::2]


CALLS = {
    "plain": (lambda: rocpy.matmul(A, B), A @ B),
    "copied operands": (lambda: rocpy.matmul(spaced(A), spaced(B)), A @ B),
    "copied result": (lambda: rocpy.matmul(A, B, out=spaced(np.zeros((6, 5)))), A @ B),
    "composed": (lambda: rocpy.matmul(A, B, epilogue=COMPOSED), composed(A @ B)),
    "groups": (lambda: rocpy.grouped_matmul(A, np.stack([B, B]), offsets=[0, 2, 6]), A @ B),
    "copied groups": (
        lambda: rocpy.grouped_matmul(spaced(A), np.stack([B, B]), offsets=[0, 2, 6], out=spaced(np.zeros((6, 5)))),
        A @ B,
    ),
    "composed of copies": (lambda: rocpy.matmul(spaced(A), B, epilogue=COMPOSED), composed(A @ B)),
}


@pytest.mark.parametrize("name", CALLS)
def test_only_the_front_makes_calls(name):
    call, expected = CALLS[name]
    result, stacks = stacks_of_planner(call)
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-14)
    assert stacks
    for stack in stacks:
        assert not set(stack) & set(PREPARE), (name, stack)


def test_the_composed_calls_are_composed():
    assert rocpy.explain(A, B, epilogue=COMPOSED).unfused


class Noted(Preparation):
    """A preparation that notes its steps, by its name, and fails at one of them."""

    def __init__(self, events, name, call, fails=""):
        self.events, self.name, self.call, self.fails = events, name, call, fails

    def note(self, step):
        self.events.append(f"{step} {self.name}")
        if step == self.fails:
            raise RuntimeError(step)

    def prepare(self):
        self.note("prepare")
        return self.call

    def finish(self, outputs):
        self.note("finish")
        return outputs

    def close(self):
        self.note("close")


def test_what_was_made_for_a_call_is_given_back_last():
    events = []
    np.testing.assert_allclose(run(Noted(events, "it", ProductCall(A, B))), A @ B)
    assert events == ["prepare it", "finish it", "close it"]


@pytest.mark.parametrize("step", ["prepare", "finish"])
def test_what_was_made_for_a_call_is_given_back_where_a_step_fails(step):
    events = []
    with pytest.raises(RuntimeError, match=step):
        run(Noted(events, "it", ProductCall(A, B), step))
    assert events == ["prepare it", *(["finish it"] if step == "finish" else []), "close it"]


def test_what_was_made_for_a_call_that_fails_is_given_back():
    events = []
    with pytest.raises(rocpy.InvalidProblemError):
        run(Noted(events, "it", ProductCall(A, A)))
    assert events == ["prepare it", "close it"]


@pytest.mark.parametrize("fails", [False, True])
def test_arrays_in_cpu_memory_leave_the_callers_device_current(fails):
    with rocpy.Stream(2) as stream, rocpy.Device(1):
        if fails:
            with pytest.raises(rocpy.InvalidProblemError):
                rocpy.matmul(A, A, epilogue=COMPOSED, stream=stream)
        else:
            result = rocpy.matmul(spaced(A), B, epilogue=COMPOSED, stream=stream)
            stream.synchronize()
            np.testing.assert_allclose(result, composed(A @ B), rtol=1e-12, atol=1e-14)
        assert rocpy.Device.current().index == 1
