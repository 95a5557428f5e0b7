# SPDX-License-Identifier: MIT
"""What holds for every tier of the tests: torch tests without torch, a time budget, a tuning database of their own."""

import importlib.util
import os
import shutil
import tempfile
import time

import pytest


def pytest_addoption(parser):
    """Add the options that the Makefile passes."""
    group = parser.getgroup("rocpy")
    group.addoption(
        "--without-torch", action="store_true", help="skip the tests that need torch even where it is installed"
    )
    group.addoption("--time-budget-s", type=float, default=None, help="start no further test after this many seconds")


def pytest_configure(config):
    """Note when the run began, and give the tests a tuning database of their own."""
    config.stash[STARTED] = time.monotonic()
    folder = tempfile.mkdtemp(prefix="rocpy-tests-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ["ROCPY_TUNING_DB"] = f"{folder}/tuning.sqlite3"


def repeat_random_tests():
    """Draw the same examples in every run of the same code; ``--hypothesis-profile=random`` draws others each time."""
    if importlib.util.find_spec("hypothesis") is None:
        return
    from hypothesis import settings

    settings.register_profile("repeatable", derandomize=True)
    settings.register_profile("random", print_blob=True)
    settings.load_profile("repeatable")


# While this file is read: the settings of a test take the profile's values when its module is imported, and the option
# of hypothesis's own plugin is applied between the two.
repeat_random_tests()


def pytest_collection_modifyitems(config, items):
    """Skip the tests marked `torch` where torch is absent or not wanted."""
    if config.getoption("--without-torch"):
        reason = "torch: not wanted in this run (TORCH= is empty)"
    elif importlib.util.find_spec("torch") is None:
        reason = "torch: not installed"
    else:
        return
    waiting = [item for item in items if item.get_closest_marker("torch")]
    for item in waiting:
        item.add_marker(pytest.mark.skip(reason=reason))
    config.stash[WITHOUT_TORCH] = (len(waiting), reason)


def pytest_runtest_setup(item):
    """Skip what would start after the budget is spent, so that a slow machine reports less instead of being killed."""
    budget = item.config.getoption("--time-budget-s")
    if budget is not None and time.monotonic() - item.config.stash[STARTED] > budget:
        pytest.skip(f"time budget of {budget:.0f} s is spent")


def pytest_terminal_summary(terminalreporter, config):
    """Say how many tests waited for torch."""
    count, reason = config.stash.get(WITHOUT_TORCH, (0, ""))
    if count:
        terminalreporter.write_line(f"{count} tests skipped; {reason}")


STARTED = pytest.StashKey[float]()
WITHOUT_TORCH = pytest.StashKey[tuple[int, str]]()
