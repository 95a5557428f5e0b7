# SPDX-License-Identifier: MIT
"""Algorithms whose numbers are wrong are found against float64 and never chosen, however fast they are."""

import dataclasses
import itertools

import numpy as np
import pytest
from several_algorithms import candidates

import rocpy
from rocpy.blaslt.composed.plan import ComposedProduct
from rocpy.blaslt.front import planned
from rocpy.blaslt.front.planned import planned_product
from rocpy.blaslt.selection import selftest_record as _selftest_record
from rocpy.blaslt.selection import tuning_state as _tuning_state
from rocpy.errors import RocpyWarning, UnsupportedError
from rocpy.runtime import _disk_cache
from rocpy.testing.cases import cases
from rocpy.testing.runner import dtype_of, keywords, make_operands
from rocpy.tuning import Database, _live, database
from rocpy.tuning._verification import sample_of, sampled

CASES = [case for case in cases("quick") if case.bias != "column"][::5]


@pytest.fixture(autouse=True)
def own_database(tmp_path, monkeypatch, fresh_plan_cache):
    """A database of the test's own."""
    base = Database([tmp_path / "tuning.sqlite3"])
    monkeypatch.setattr(database, "_current", base)
    _tuning_state.changed()
    return base


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_right_results_pass_and_wrong_ones_do_not(case):
    """Over all types, layouts, epilogues, batches and scales of the case list."""
    operands = make_operands(case)
    try:
        product = planned_product(operands.pop("a"), operands.pop("b"), **operands, **keywords(case))
        product.plan()
    except UnsupportedError:
        pytest.skip("the platform has no such product")
    with product:
        sample = sample_of(product)
        if sample is None:
            assert (
                not product.problem.k or 0 in product.problem.result_shape or "float4" in case.name or "6_" in case.name
            )
            return
        outputs = product.execute()
        result, beside = outputs if isinstance(outputs, tuple) else (outputs, {})
        result = np.array(result)
        assert sample.wrong(result, beside) == ""
        told = np.isfinite(sample.expected) & (np.abs(sample.expected) > 100 * sample.bound)
        entry, row, column = (int(places[0]) for places in np.nonzero(told)) if told.any() else (None,) * 3
        if entry is None:
            return  # nothing is known so well that an error of a quarter could be told
        place = (*sample.entries[entry], int(sample.rows[row]), int(sample.columns[column]))
        full = result.reshape(*product.problem.batch_shape, product.problem.m, product.problem.n)
        full[place] = full[place] * full.dtype.type(0.75) if full.dtype.kind != "i" else full[place] // 2
        assert "wrong at" in sample.wrong(result)


def test_samples_have_the_edges_and_both_parities():
    for extent, most in ((5, 8), (8, 8), (9, 8), (1000, 8), (4096, 256), (257, 256)):
        places = sampled(extent, most)
        assert len(places) <= max(most, 8)
        assert {0, extent - 1} <= set(places.tolist())
        assert len(set(places.tolist())) == len(places)
        assert {0, 1} == {place % 2 for place in places.tolist()}


class Faulty(ComposedProduct):
    """A product some of whose algorithms are wrong, whatever the operands: at odd columns, or beside a right result."""

    wrong: frozenset[int] = frozenset()

    def execute(self, *, algorithm=None, out=None, stream=None):
        result = super().execute(algorithm=algorithm, out=out, stream=stream)
        if getattr(algorithm, "rank", 0) not in self.wrong:
            return result
        if isinstance(result, tuple):
            beside = {
                name: np.array(value * value.dtype.type(1.5) + value.dtype.type(1)) for name, value in result[1].items()
            }
            return result[0], beside
        result[..., 1::2] *= 1.25
        return result


@pytest.fixture
def spoil(monkeypatch):
    """Make the algorithms of these ranks wrong in all products that are planned."""
    monkeypatch.setattr(planned, "ComposedProduct", Faulty)
    return lambda ranks: monkeypatch.setattr(Faulty, "wrong", frozenset(ranks))


def operands(m=64, n=256, k=128):
    rng = np.random.default_rng(0)
    return rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)


def favour(place):
    return lambda candidate: (0.1, 0.1) if candidate == place else (1.0, 1.0)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1e-4
        return self.now


def test_the_fastest_is_not_chosen_when_it_is_wrong(spoil):
    with Faulty(*operands()) as product:
        candidates(product, 3)
        spoil({1})
        report = _live.tune(product, budget_ms=1e4, measure=favour(1), clock=Clock())
        assert report.best.rank != 1
        dropped = [trial.dropped for trial in report.trials if trial.algorithm.rank == 1]
        assert len(dropped) == 1
        assert "wrong at" in dropped[0]


def test_a_wrong_first_is_told_and_another_is_chosen_and_kept(own_database, spoil):
    a, b = operands()
    with Faulty(a, b) as product:
        candidates(product)
        spoil({0})
        with pytest.warns(RocpyWarning, match="gives wrong results"):
            report = _live.tune(product, budget_ms=1e4, measure=lambda _: (1.0, 1.0), clock=Clock())
        assert report.best.rank != 0
        assert report.decided
        assert any("wrong at" in trial.dropped for trial in report.trials)
    with rocpy.Matmul(a, b) as product:
        product.plan()
        assert product.choice[1] == "tuned"
        assert product.algorithm.rank == report.best.rank


def test_a_wrong_first_is_left_out_where_the_budget_ends_before_any_trial(own_database, spoil):
    with Faulty(*operands()) as product:
        candidates(product)
        spoil({0})
        ticks = itertools.count(step=10.0)
        with pytest.warns(RocpyWarning, match="gives wrong results"):
            report = _live.tune(product, budget_ms=1.0, measure=favour(0), clock=ticks.__next__)
        assert report.best.rank == product.algorithm.rank != 0
        assert not report.decided
        assert not list(own_database.records())


def test_where_all_are_wrong_nothing_is_chosen(spoil):
    with Faulty(*operands(), epilogue="relu") as product:
        spoil(one.rank for one in product.plan(max_algorithms=32))
        with pytest.warns(RocpyWarning, match="wrong"), pytest.raises(UnsupportedError, match="selftest"):
            _live.tune(product, budget_ms=1e4, measure=favour(0), clock=Clock())


def quantized(shape, seed):
    return (8 * np.random.default_rng(seed).standard_normal(shape)).astype(dtype_of("float8_e4m3fn"))


BESIDE = {
    "gelu_aux": lambda a, b: {"epilogue": "gelu_aux"},
    "relu_aux_bias": lambda a, b: {"epilogue": "relu_aux_bias", "bias": b[0]},
    "dgelu_bgrad": lambda a, b: {"epilogue": "dgelu_bgrad", "aux": (a @ b).astype(np.float32)},
    "drelu_bgrad": lambda a, b: {"epilogue": "drelu_bgrad", "aux": (a @ b).astype(np.float32)},
    "bgrada": lambda a, b: {"epilogue": "bgrada"},
    "bgradb": lambda a, b: {"epilogue": "bgradb"},
    "amax": lambda a, b: {"amax": True, "scale_a": 0.5, "scale_b": 0.25, "scale_d": 0.125, "dtype": "float8_e4m3fn"},
}


@pytest.mark.parametrize("kind", BESIDE)
def test_what_is_given_beside_the_result_is_compared_too(kind, spoil):
    a, b = operands() if kind != "amax" else (quantized((64, 128), 1), quantized((128, 256), 2))
    with Faulty(a, b, **BESIDE[kind](a, b)) as product:
        candidates(product)
        if product.unfused is not None:
            pytest.skip("composed on this release: the framework gives what is beside the result")
        spoil({1})
        report = _live.tune(product, budget_ms=1e4, measure=favour(1), clock=Clock())
        assert report.best.rank != 1
        (dropped,) = [trial.dropped for trial in report.trials if trial.algorithm.rank == 1]
        assert "wrong at" in dropped or "amax" in dropped


def identity(algorithm):
    return algorithm.id, algorithm.name


def test_a_wrong_algorithm_is_not_chosen_again_on_this_machine(
    own_database, selftest_record, tmp_path, monkeypatch, spoil
):
    """Not by the heuristic's order, nor by a record of another tuning, in this process or another; others may be."""
    a, b = operands()
    with Faulty(a, b) as product:
        first = candidates(product)[0]
        spoil({0})
        with pytest.warns(RocpyWarning, match="gives wrong results"):
            _live.tune(product, budget_ms=1e4, measure=lambda _: (1.0, 1.0), clock=Clock())
    assert first.name in selftest_record.read_text()
    fresh = Database([tmp_path / "other.sqlite3"])
    monkeypatch.setattr(database, "_current", fresh)
    _selftest_record.forget_loaded()  # as another process reads it
    _tuning_state.changed()
    with rocpy.Matmul(a, b) as product:
        product.plan()
        assert identity(product.algorithm) != identity(first)
        assert identity(first) in map(identity, product.algorithms)  # whoever names it gets it
        np.testing.assert_allclose(product.execute(), a @ b, rtol=1e-3, atol=1e-3)
    for old in own_database.records():
        fresh.store(dataclasses.replace(old, kernel=first.name, solution=first.id, date=old.date + 1))
    _tuning_state.changed()
    with rocpy.Matmul(a, b) as product:
        product.plan()
        assert identity(product.algorithm) != identity(first)
    explained = rocpy.explain(a, b)
    assert identity(explained.algorithm) != identity(first)
    with rocpy.Matmul(a.astype(np.float64), b.astype(np.float64)) as product:  # products of another class
        assert product.plan()[0].rank == 0


def test_a_class_of_products_all_of_whose_algorithms_are_wrong_is_composed(spoil):
    a, b = operands()
    with Faulty(a, b, epilogue="relu") as product:
        spoil(one.rank for one in product.plan(max_algorithms=32))
        with pytest.warns(RocpyWarning, match="wrong"), pytest.raises(UnsupportedError, match="wrong"):
            _live.tune(product, budget_ms=1e4, measure=favour(0), clock=Clock())
    explained = rocpy.explain(a, b, epilogue="relu")
    assert explained.algorithm.lowering == "unfused"
    assert "wrong" in str(explained)
    np.testing.assert_allclose(rocpy.matmul(a, b, epilogue="relu"), np.maximum(a @ b, 0), rtol=1e-3, atol=1e-3)


def test_a_record_that_cannot_be_written_holds_for_this_process(monkeypatch, spoil):
    a, b = operands()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(_disk_cache, "replace", full)
    with Faulty(a, b) as product:
        first = candidates(product)[0]
        spoil({0})
        with pytest.warns(RocpyWarning, match=r"wrong results|not written"):
            _live.tune(product, budget_ms=1e4, measure=lambda _: (1.0, 1.0), clock=Clock())
    with rocpy.Matmul(a, b) as product:
        product.plan()
        assert identity(product.algorithm) != identity(first)
