# SPDX-License-Identifier: MIT
"""Grouped products take what was measured for the products that their groups are, and are measured themselves."""

from __future__ import annotations

import numpy as np
import pytest
from several_algorithms import candidates

import rocpy
from rocpy import tuning
from rocpy.blaslt.front.planned import planned_product
from rocpy.blaslt.selection import tuning_state as _tuning_state
from rocpy.tuning import _live, database
from rocpy.tuning.database import Database


class Clock:
    """Moves by a tenth of a millisecond whenever it is read."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1e-4
        return self.now


@pytest.fixture(autouse=True)
def own_database(tmp_path, monkeypatch, fresh_plan_cache):
    """A database of the test's own, and the process's mode as it was."""
    base = Database([tmp_path / "tuning.sqlite3"])
    monkeypatch.setattr(database, "_current", base)
    before = _tuning_state.process_mode()
    monkeypatch.setattr(_live, "_clock", Clock())  # a budget is a number of trials then, however busy the machine is
    _tuning_state.changed()
    yield base
    _tuning_state.set_process_mode(before)


def tuned(a, b, place):
    """Store that one place of the heuristic's list is twice as fast as the others."""
    with planned_product(a, b) as product:
        candidates(product, place + 1)
        return _live.tune(
            product, measure=lambda candidate: (0.5, 0.5) if candidate == place else (1.0, 1.0), clock=lambda: 0.0
        )


def groups(rng, form="m"):
    shapes = {"m": ((160, 96), (3, 96, 128)), "n": ((3, 64, 96), (96, 160)), "k": ((64, 160), (160, 128))}[form]
    return tuple(rng.standard_normal(shape, np.float32) for shape in shapes)


def test_a_group_takes_the_choice_of_the_product_that_it_is(rng):
    a, b = groups(rng)
    offsets = [0, 64, 64, 160]
    before = rocpy.grouped_matmul(a, b, offsets=offsets)
    report = tuned(a[:64], b[0], 2)
    how = rocpy.explain(a, b, offsets=offsets)
    assert [one.source for _, _, one in how.runs] == ["tuned", "heuristic"]
    assert how.runs[0][2].algorithm.name == report.best.name
    assert "tuned, 0.5 ms" in str(how)
    found = rocpy.grouped_matmul(a, b, offsets=offsets)
    assert np.array_equal(found[:64], rocpy.matmul(a[:64], b[0]))
    assert np.array_equal(found[64:], before[64:])
    with rocpy.options(reproducible=True):
        assert {one.source for _, _, one in rocpy.explain(a, b, offsets=offsets).runs} == {"reproducible"}


def test_a_batch_of_equal_groups_takes_that_of_the_batch(rng):
    a, b = groups(rng)
    report = tuned(a[:128].reshape(2, 64, 96), b[:2], 1)
    how = rocpy.explain(a, b, offsets=[0, 64, 128, 160])
    assert [(count, one.source) for _, count, one in how.runs] == [(2, "tuned"), (1, "heuristic")]
    assert how.runs[0][2].algorithm.id == report.best.id


# A group's columns in a copy of the whole on the device are no dense array, as a copy of the group alone is.
SAME_LAYOUT = pytest.mark.skipif(not rocpy.platform.current().host_memory, reason="copies of parts lie otherwise")


@SAME_LAYOUT
@pytest.mark.parametrize("form", "nk")
def test_the_other_forms_do_so_too(form, rng):
    a, b = groups(rng, form)
    if form == "n":
        report = tuned(a[0], b[:, :64], 1)
    else:
        report = tuned(a[:, :64], b[:64], 1)
    first = rocpy.explain(a, b, offsets=[0, 64, 64, 160]).runs[0][2]
    assert (first.source, first.algorithm.id) == ("tuned", report.best.id)


def test_lists_take_it_as_single_products_do(rng):
    a, b = groups(rng)
    rocpy.grouped_matmul([a, a[:64]], b[0])
    tuned(a[:64], b[0], 2)
    found = rocpy.grouped_matmul([a, a[:64]], b[0])
    assert np.array_equal(found[1], rocpy.matmul(a[:64], b[0]))
    assert [one.source for _, _, one in rocpy.explain([a, a[:64]], b[0]).runs] == ["heuristic", "tuned"]


@pytest.mark.parametrize(
    "form", ["m", pytest.param("n", marks=SAME_LAYOUT), pytest.param("k", marks=SAME_LAYOUT), "lists"]
)
def test_groups_are_measured_where_nothing_is_known(form, rng, own_database):
    a, b = groups(rng, "m" if form == "lists" else form)
    offsets = [0, 64, 128, 160]
    call = {
        "lists": lambda: rocpy.grouped_matmul([a[:64], a[64:]], b[0]),
    }.get(form, lambda: rocpy.grouped_matmul(a, b, offsets=offsets))
    plain = call()
    before = _live.set_budget_ms(40.0)
    try:
        _tuning_state.set_process_mode(_tuning_state.MEASURE)
        measured = call()
        count = len(own_database.records())
        assert count >= 2
        call()
        assert len(own_database.records()) == count
    finally:
        _live.set_budget_ms(before)
    for x, y in zip(plain, measured, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4)
    how = rocpy.explain([a[:64], a[64:]], b[0]) if form == "lists" else rocpy.explain(a, b, offsets=offsets)
    assert {one.source for _, _, one in how.runs} == {"tuned"}


def test_a_recorder_sees_the_groups_and_nothing_else(rng):
    a, b = groups(rng)
    with tuning.record() as seen:
        rocpy.grouped_matmul(a, b, offsets=[0, 64, 64, 160])
    assert sorted(problem.m for problem in seen) == [64, 96]
