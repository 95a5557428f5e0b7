# SPDX-License-Identifier: MIT
"""One tuning database in many threads that measure, look up, import, export, read again and clear."""

from __future__ import annotations

import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import made_up_records
import numpy as np
import pytest

import rocpy
from rocpy.blaslt.front.planned import planned_product
from rocpy.blaslt.selection import tuning_state as _tuning_state
from rocpy.tuning import Database, _live, current, database, export_json, import_json


@pytest.fixture(autouse=True)
def shared(tmp_path, monkeypatch, fresh_plan_cache):
    """The database of the process, in a file of the test's own, and threads that change places often."""
    made = Database([tmp_path / "tuning.sqlite3"])
    monkeypatch.setattr(database, "_current", made)
    _tuning_state.changed()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield made
    sys.setswitchinterval(interval)
    _tuning_state.changed()


def in_threads(*works):
    """Run functions in threads that start together; raises the first failure."""
    start = threading.Barrier(len(works))

    def run(work):
        start.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(run, works))


def record(key, date, scope="here"):
    return made_up_records.record(key=key, scope=scope, date=float(date))


def test_what_a_thread_stored_it_finds_again(shared):
    """Whatever others store, list, merge and read again meanwhile."""

    def store(number):
        def work():
            for date in range(1, 25):
                mine = record(f"of {number}", date)
                shared.store(mine, record(f"{number}, {date}", date))
                assert shared.find("here", f"of {number}") == mine

        return work

    def look():
        for _ in range(60):
            found = shared.records()
            assert len({(one.scope, one.key) for one in found}) == len(found)
            shared.refresh()

    def exchange():
        for _ in range(20):
            other = Database([])
            other.store(*import_json(export_json(shared.records())))
            other.store(record("of another", 1, scope="there"))
            shared.merge(other)

    in_threads(*map(store, range(4)), look, look, exchange)
    again = Database([shared.path])
    places = {(one.scope, one.key) for one in again.records()}
    assert places == {(one.scope, one.key) for one in shared.records()}
    assert places == {("there", "of another")} | {
        ("here", key)
        for number in range(4)
        for key in [f"of {number}", *(f"{number}, {date}" for date in range(1, 25))]
    }


def test_file_and_memory_agree_after_threads_that_clear(shared):
    def store():
        for number in range(25):
            shared.store(record(str(number), number + 1))

    def clear():
        for number in range(25):
            shared.clear("here" if number % 2 else None)
            shared.records()

    in_threads(store, store, clear, clear)
    kept = {one.key for one in shared.records()}
    assert kept == {one.key for one in Database([shared.path]).records()}
    shared.clear()
    assert shared.is_empty()
    assert Database([shared.path]).is_empty()


def test_products_are_measured_while_records_come_and_go(shared, rng):
    shapes = [(3, 40, 24), (17, 32, 48), (64, 64, 16)]
    operands = [
        (rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32))
        for m, n, k in shapes
    ]
    before = _live.set_budget_ms(2.0)
    done = threading.Event()

    def measure(place):
        def work():
            a, b = operands[place]
            for _ in range(3):
                np.testing.assert_allclose(rocpy.matmul(a, b, autotune=True), a @ b, rtol=1e-4, atol=1e-4)
                with rocpy.Matmul(a, b, epilogue="relu") as mm:
                    mm.autotune(budget_ms=2.0)
                    np.testing.assert_allclose(mm.execute(), np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)

        return work

    def look():
        while not done.is_set():
            for a, b in operands:
                with rocpy.Matmul(a, b) as mm:
                    mm.plan()
                    assert mm.choice[1] in ("tuned", "heuristic")
                    np.testing.assert_allclose(mm.execute(), a @ b, rtol=1e-4, atol=1e-4)

    def change():
        while not done.is_set():
            text = export_json(current().records())
            current().clear()
            current().store(*import_json(text))
            current().refresh()
            _tuning_state.changed()

    try:
        with ThreadPoolExecutor(2) as pool:
            running = [pool.submit(look), pool.submit(change)]
            try:
                in_threads(*map(measure, range(len(shapes))))
            finally:
                done.set()
            for one in running:
                one.result()
    finally:
        _live.set_budget_ms(before)
    assert {one.key for one in shared.records()} == {one.key for one in Database([shared.path]).records()}


def test_a_record_that_another_thread_clears_when_it_is_about_to_be_used(shared, rng, monkeypatch):
    a, b = rng.standard_normal((9, 40), dtype=np.float32), rng.standard_normal((40, 24), dtype=np.float32)
    asked, steps = _live.is_capturing, itertools.count()

    def clearing(stream):
        if next(steps) == 1:  # the product is planned with the stored choice
            shared.clear()
        return asked(stream)

    with planned_product(a, b) as mm:
        _live.tune(mm, measure=lambda place: (1.0 + place, 1.0 + place))
    assert not shared.is_empty()
    with rocpy.tuning.enable(budget_ms=50):
        monkeypatch.setattr(_live, "is_capturing", clearing)
        np.testing.assert_allclose(rocpy.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)
    assert next(steps) == 2


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_switches_of_several_threads_end_in_any_order(order):
    """The mode is that of the last that has not ended, and after all of them what it was before."""
    modes = [_tuning_state.MEASURE, _tuning_state.OFF, _tuning_state.MEASURE, _tuning_state.OFF]
    before = _tuning_state.process_mode(), _live.set_budget_ms(33.0)
    try:
        tuning = rocpy.tuning
        switches = [tuning.enable(budget_ms=11), tuning.disable(), tuning.enable(budget_ms=13), tuning.disable()]
        left = set(range(4))
        for place in order:
            switches[place].__exit__(None, None, None)
            left.remove(place)
            assert _tuning_state.process_mode() == (modes[max(left)] if left else before[0])
            assert _live.set_budget_ms(33.0) == (13 if 2 in left else 11 if 0 in left else 33)
            _live.set_budget_ms(13 if 2 in left else 11 if 0 in left else 33)
    finally:
        _tuning_state.set_process_mode(before[0])
        _live.set_budget_ms(before[1])
