# SPDX-License-Identifier: MIT
"""What a self-test found of this machine's library decides what is composed; the file may hold anything."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from made_up_library import fake_library, problem

import rocpy
from rocpy.blaslt.selection import library as _library
from rocpy.blaslt.selection import selftest_record as _selftest_record
from rocpy.blaslt.selection import tuning_state as _tuning_state
from rocpy.blaslt.selection.selftest_record import Verdict
from rocpy.errors import RocpyWarning
from rocpy.testing import Case, run_selftest
from rocpy.testing import runner as runner_module


@pytest.fixture(autouse=True)
def record(tmp_path, monkeypatch):
    """A record of the test's own."""
    path = tmp_path / "selftest.json"
    monkeypatch.setattr(_selftest_record, "record_path", lambda: path)
    _selftest_record.forget_loaded()
    _tuning_state.changed()
    yield path
    _selftest_record.forget_loaded()
    _tuning_state.changed()


def relu(a, b):
    return rocpy.explain(a, b, epilogue="relu")


def test_what_was_wrong_is_composed_and_told(record, rng):
    a, b = rng.standard_normal((8, 16), np.float32), rng.standard_normal((16, 4), np.float32)
    assert relu(a, b).algorithm.lowering == "native"
    here = _library.library(0)
    name = _library.class_of(relu(a, b).problem, here)
    _selftest_record.keep(here.scope, {name: Verdict(False, 3, "the self-test found 1 of 3 wrong")})
    _tuning_state.changed()
    found = relu(a, b)
    assert found.algorithm.lowering == "unfused"
    assert "the self-test found 1 of 3 wrong" in str(found)
    np.testing.assert_allclose(rocpy.matmul(a, b, epilogue="relu"), np.maximum(a @ b, 0), rtol=1e-5, atol=1e-5)
    assert rocpy.explain(a, b).algorithm.lowering == "native"
    with _library.trial():
        assert relu(a, b).algorithm.lowering == "native"
    _selftest_record.keep(here.scope, {name: Verdict(True, 3)})
    _tuning_state.changed()
    assert relu(a, b).algorithm.lowering == "native"


def test_a_selftest_in_one_thread_alters_nothing_in_others(record, rng):
    a, b = rng.standard_normal((8, 16), np.float32), rng.standard_normal((16, 4), np.float32)
    here = _library.library(0)
    name = _library.class_of(relu(a, b).problem, here)
    _selftest_record.keep(here.scope, {name: Verdict(False, 3, "the self-test found 1 of 3 wrong")})
    _tuning_state.changed()

    def lowerings():
        with rocpy.Matmul(a, b, epilogue="relu") as planned:
            return relu(a, b).algorithm.lowering, planned.plan()[0].lowering

    def refused():
        try:
            return rocpy.matmul(a, b, epilogue="relu", options={"fallback": "error"}) is None
        except rocpy.UnsupportedError:
            return True

    with ThreadPoolExecutor(1) as other:
        with _library.trial():
            assert lowerings() == ("native", "native")
            assert not refused()
            assert other.submit(lowerings).result() == ("unfused", "unfused")
            assert other.submit(refused).result()
        assert lowerings() == ("unfused", "unfused")
        assert refused()


def test_what_was_right_lifts_a_doubt_and_never_a_cards_dialect(record, monkeypatch):
    fake_library(monkeypatch, 100100, "gfx942")
    doubted = problem("relu_aux_bias", "float16")
    assert "tensileUseBias" in _library.refusal(doubted)
    here = _library.library(0)
    _selftest_record.keep(here.scope, {_library.class_of(doubted, here): Verdict(True, 5)})
    assert _library.refusal(doubted) == ""
    assert _library.refusal(problem("relu_aux_bias", "bfloat16"))
    other = problem(dtype="float8_e4m3fn", result="float32")
    _selftest_record.keep(here.scope, {_library.class_of(other, here): Verdict(True, 5)})
    assert "dialect" in _library.refusal(other) or "this card" in _library.refusal(other)
    with _library.trial():
        assert _library.refusal(other)


def test_another_library_or_card_has_a_record_of_its_own(record):
    scopes = {_selftest_record.scope_of(version, arch) for version in (1, 2) for arch in ("gfx942", "gfx950")}
    assert len(scopes) == 4
    one, other = sorted(scopes)[:2]
    _selftest_record.keep(one, {"x": Verdict(False, 1, "no")})
    assert _selftest_record.verdict(one, "x") == Verdict(False, 1, "no")
    assert _selftest_record.verdict(other, "x") is None
    for place in range(_selftest_record.MOST_SCOPES + 3):
        _selftest_record.keep(str(place), {"x": Verdict(True, 1)})
    assert len(json.loads(record.read_text())["scopes"]) == _selftest_record.MOST_SCOPES
    assert _selftest_record.verdict(one, "x") is None


def test_a_rocpy_of_another_schema_leaves_a_record_as_it_was(monkeypatch, tmp_path):
    monkeypatch.undo()  # the fixture's one file
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, second = Verdict(True, 3), Verdict(False, 7, "wrong")
    own = _selftest_record.SCHEMA
    for schema, verdict in ((own + 1, second), (own, first)):
        monkeypatch.setattr(_selftest_record, "SCHEMA", schema)
        assert tmp_path in _selftest_record.record_path().parents
        _selftest_record.keep("scope", {"relu": verdict})
    for schema, verdict in ((own + 1, second), (own, first)):
        monkeypatch.setattr(_selftest_record, "SCHEMA", schema)
        _selftest_record.forget_loaded()
        assert _selftest_record.verdict("scope", "relu") == verdict
    monkeypatch.undo()
    _selftest_record.forget_loaded()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"schema": 99, "scopes": {}}', '{"schema": 1}', '{"schema": 1, "scopes": {"s": {"x": 3}}}',
     '{"schema": 1, "scopes": {"s": {"x": [1, 2, 3]}}}', '{"schema": 1, "scopes": []}', "[" * 100000, "\x00"],
)  # fmt: skip
def test_a_file_without_sense_is_ignored_with_a_warning(record, text):
    record.write_text(text)
    _selftest_record.forget_loaded()
    with pytest.warns(RocpyWarning, match="is ignored"):
        assert _selftest_record.verdict("s", "x") is None
    with pytest.warns(RocpyWarning, match="is ignored"):
        _selftest_record.keep("s", {"x": Verdict(True, 1)})
    assert _selftest_record.verdict("s", "x") == Verdict(True, 1)


@pytest.mark.parametrize("cache", ["file", "/proc/nope"])
def test_a_record_that_cannot_be_written_counts_in_the_process(monkeypatch, tmp_path, cache):
    monkeypatch.undo()  # the fixture's one file
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / cache))
    _selftest_record.forget_loaded()
    with pytest.warns(RocpyWarning, match="record was not written"):
        outcome = run_selftest(selection=[Case(2, 3, 4)], record=True, with_algorithms=False)
    assert outcome["record"] == ""
    assert outcome["summary"]["ok"] == 1
    scope = _library.library(0).scope
    assert [one.passed for one in _selftest_record._rows(scope).values()] == [True]
    with pytest.warns(RocpyWarning, match="record was not written"):
        _selftest_record.note(scope, {"x": Verdict(True, 1)}, refuted=list(_selftest_record._rows(scope)))
    assert list(_selftest_record._rows(scope)) == ["x"]
    _selftest_record.forget_loaded()


def test_a_selftest_keeps_what_it_finds(record, monkeypatch):
    """A library that has one epilogue wrong: its class is composed from then on, and the self-test ends well."""
    right = rocpy.matmul

    def wrong(a, b, **arguments):
        result = right(a, b, **arguments)
        if arguments.get("epilogue") == "relu" and rocpy.blaslt.model.options.current_options().fallback == "error":
            result = result + np.float32(1)
        return result

    original = runner_module.run_case
    monkeypatch.setattr("rocpy.testing.selftest.run_case", lambda case, **more: original(case, wrong, **more))
    cases = (Case(8, 4, 16, epilogue="relu"), Case(5, 4, 16), Case(8, 4, 16, epilogue="gelu"))
    outcome = run_selftest(selection=cases, record=True)
    assert outcome["summary"]["ok"] == 3
    assert outcome["summary"]["wrong_natively"] == 1
    assert [row["name"] for row in outcome["cases"] if "native" in row] == [cases[0].name]
    assert outcome["record"] == str(record)
    a, b = np.ones((8, 16), np.float32), np.ones((16, 4), np.float32)
    assert relu(a, b).algorithm.lowering == "unfused"
    assert rocpy.explain(a, b, epilogue="gelu").algorithm.lowering == "native"
