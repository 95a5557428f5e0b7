# SPDX-License-Identifier: MIT
"""A call enters the files that docs/developing/walk.md lists, from the top to the bottom."""

from __future__ import annotations

import gc
import logging
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import rocpy

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(rocpy.__file__).parent
PAGE = ROOT / "docs" / "developing" / "walk.md"
FILE = re.compile(r"^\| `((?:rocpy|csrc)/[^`]+)` \|", re.MULTILINE)
CIMPORT = re.compile(r"^from (rocpy[\w.]*) cimport|^from (rocpy[\w.]*) import (\w+)", re.MULTILINE)


def listed():
    return FILE.findall(PAGE.read_text(encoding="utf-8"))


def calls_between_files(run):
    """Return the Python files of the package that a call enters, and the pairs of them that call each other."""
    entered, pairs = set(), set()

    def see(frame, event, _):
        file = file_of(frame)
        if event != "call" or not file:
            return
        entered.add(file)
        caller = frame.f_back
        while caller is not None and not file_of(caller):
            caller = caller.f_back
        if caller is not None and file_of(caller) != file:
            pairs.add((file_of(caller), file))

    # What an earlier test left in a circle, a generator that is not at its end among it, must not be ended meanwhile.
    gc.collect()
    gc.disable()
    before = sys.getprofile()
    sys.setprofile(see)
    try:
        run()
    finally:
        sys.setprofile(before)
        gc.enable()
    return entered, pairs


def file_of(frame):
    path = Path(frame.f_code.co_filename)
    return "rocpy/" + path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else ""


def upward(pairs, files):
    """Return the pairs whose second file does not stand below the first."""
    return sorted((upper, lower) for upper, lower in pairs if files.index(lower) <= files.index(upper))


@pytest.fixture
def product():
    if not rocpy.platform.current().host_memory:
        pytest.skip("arrays in CPU memory are copied to the device first")
    a, b = np.ones((4, 6), np.float32), np.ones((6, 5), np.float32)
    rocpy.matmul(a, b)  # opens the library and makes the tuner, which imports
    return lambda: rocpy.matmul(a, b)


@pytest.mark.parametrize("level", [logging.WARNING, logging.DEBUG])
def test_a_call_that_is_planned_enters_the_listed_files_downwards(product, caplog, level):
    caplog.set_level(level, "rocpy")
    rocpy.plan_cache.clear()
    entered, pairs = calls_between_files(product)
    files = listed()
    assert entered, "the call was not planned"
    assert entered <= set(files), f"not in the table: {sorted(entered - set(files))}"
    assert not upward(pairs, files)


def test_a_call_whose_plan_is_kept_enters_no_python_file(product, run_python):
    # In a process of its own: where options() or override() were ever used, each call asks them.
    run_python("""
        import sys
        import numpy as np
        import rocpy
        a, b = np.ones((4, 6), np.float32), np.ones((6, 5), np.float32)
        rocpy.matmul(a, b)
        rocpy.matmul(a, b)
        entered = []
        sys.setprofile(lambda frame, event, _: event == "call" and entered.append(frame.f_code.co_filename))
        rocpy.matmul(a, b)
        sys.setprofile(None)
        assert entered == [], entered
    """)


def test_compiled_modules_name_only_what_stands_below():
    files, pairs = listed(), set()
    for file in files:
        if file.endswith(".pyx"):
            for cimported, package, name in CIMPORT.findall((ROOT / file).read_text(encoding="utf-8")):
                modules = [cimported] if cimported else [package, f"{package}.{name}"]
                names = [f"{module.replace('.', '/')}{end}" for module in modules for end in (".py", ".pyx")]
                pairs |= {(file, other) for other in names if other in files}
    assert pairs
    assert not upward(pairs, files)


def test_listed_files_exist_once():
    files = listed()
    assert len(files) == len(set(files)) > 10
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_a_call_upwards_is_found():
    assert upward({("a", "b"), ("b", "a")}, ["a", "b"]) == [("b", "a")]
