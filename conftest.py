# SPDX-License-Identifier: MIT
"""What holds for every tier of the tests: those of absent frameworks, a time budget, a tuning database of their own."""

import gc
import hashlib
import importlib.util
import os
import platform
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

# Optional frameworks; a test that needs one has the marker of its name.
FRAMEWORKS = ("torch", "jax", "triton")


def pytest_addoption(parser):
    """Add the options that the Makefile passes."""
    group = parser.getgroup("rocpy")
    for name in FRAMEWORKS:
        group.addoption(
            f"--without-{name}", action="store_true", help=f"skip the tests that need {name} even where it is installed"
        )
    group.addoption("--time-budget-s", type=float, default=None, help="start no further test after this many seconds")
    group.addoption(
        "--skip-refused",
        action="store_true",
        help="skip a test whose product this library or card does not have (UnsupportedError), and count the reasons",
    )
    group.addoption("--soak-s", type=float, default=6.0, help="how long the soaks of shared objects last, in seconds")


def pytest_configure(config):
    """Note when the run began, and give the tests a tuning database and a cache of their own."""
    config.stash[STARTED] = time.monotonic()
    if config.getoption("--time-budget-s") is not None:
        config.option.loadscopereorder = False  # xdist's own: the file of most tests first, in every run
    folder = tempfile.mkdtemp(prefix="rocpy-tests-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ["ROCPY_TUNING_DB"] = f"{folder}/tuning.sqlite3"
    os.environ["XDG_CACHE_HOME"] = own_cache(Path(folder))
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", inductor_cache())


def own_cache(folder):
    """Make a cache folder with nothing of the user's but what was compiled: a self-test's record changes what runs."""
    user, own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"), folder / "cache"
    compiled = [user / "rocpy" / name for name in ("cooperative", "kernels")]
    for path in (own / "rocpy", *compiled):
        path.mkdir(parents=True, exist_ok=True)
    for path in [*compiled, *(path for path in user.iterdir() if path.name != "rocpy")]:
        (own / path.relative_to(user)).symlink_to(path)
    return str(own)


def inductor_cache():
    """Name a folder for torch's compiled kernels: those made for vectors of one length corrupt memory at another."""
    try:
        flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    except (OSError, StopIteration):  # no such file, or another processor's
        flags = platform.machine()
    key = hashlib.sha256(f"{flags} {os.environ.get('ATEN_CPU_CAPABILITY')}".encode()).hexdigest()[:12]
    return f"{tempfile.gettempdir()}/rocpy-inductor-{os.getuid()}-{key}"


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
    """Skip the tests that a framework's name marks, or is a fixture of, where it is absent or not wanted.

    Where a budget leaves tests out, the files come in another order in each run, so that it is not always the same.
    """
    if config.getoption("--time-budget-s") is not None:
        draw = random.Random(os.environ.get("PYTEST_XDIST_TESTRUNUID"))  # the same in each process of a run
        order = {path: draw.random() for path in dict.fromkeys(item.path for item in items)}
        items.sort(key=lambda item: order[item.path])
    for name in FRAMEWORKS:
        if config.getoption(f"--without-{name}"):
            reason = f"{name}: not wanted in this run ({name.upper()}= is empty)"
        elif importlib.util.find_spec(name) is None:
            reason = f"{name}: not installed"
        else:
            continue
        waiting = [item for item in items if item.get_closest_marker(name) or name in getattr(item, "fixturenames", ())]
        for item in waiting:
            item.add_marker(pytest.mark.skip(reason=reason))
        config.stash.setdefault(WAITING, []).append((len(waiting), reason))


def pytest_collection_finish():
    """Take what was imported and collected out of the collector's rounds: many tests ask for a full one."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """After each file, the same with what its tests imported, compiled and left: torch is millions of objects."""
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_runtest_setup(item):
    """Skip what would start after the budget is spent, so that a slow machine reports less instead of being killed."""
    budget = item.config.getoption("--time-budget-s")
    if budget is not None and time.monotonic() - item.config.stash[STARTED] > budget:
        pytest.skip(f"time budget of {budget:.0f} s is spent")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Skip a test that asks for what there is not, in a run that says so: of an older release, or of another card."""
    try:
        return (yield)
    except Exception as error:
        if not item.config.getoption("--skip-refused"):
            raise
        from rocpy.errors import UnsupportedError

        causes = [error, error.__cause__]
        refusal = next((cause for cause in causes if isinstance(cause, UnsupportedError)), None)
        if refusal is None:
            raise
        reason = str(refusal).splitlines()[0]
        item.config.stash.setdefault(REFUSED, Counter())[re.sub(r"'[^']*'|\d+x\d+\S*|\(\d[^)]*\)", "...", reason)] += 1
        pytest.skip(f"refused: {reason}")


def pytest_terminal_summary(terminalreporter, config):
    """Say how many tests waited for a framework, and how many were refused for which reason."""
    for reason, count in config.stash.get(REFUSED, Counter()).most_common():
        terminalreporter.write_line(f"{count} tests refused: {reason}")
    for count, reason in config.stash.get(WAITING, []):
        if count:
            terminalreporter.write_line(f"{count} tests skipped; {reason}")


REFUSED = pytest.StashKey[Counter]()
STARTED = pytest.StashKey[float]()
WAITING = pytest.StashKey[list[tuple[int, str]]]()
