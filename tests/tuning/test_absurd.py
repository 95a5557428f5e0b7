# SPDX-License-Identifier: MIT
"""Databases and documents that hold anything: what is no record is left out with a warning, and products go on."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_up_records import record

import rocpy
from rocpy.blaslt import Algorithm, Problem
from rocpy.errors import InvalidProblemError, RocpyWarning
from rocpy.tuning import (
    Database,
    Shapes,
    _files,
    database,
    export_hipblaslt,
    export_json,
    export_tunableop,
    import_json,
)

NAMES = _files.COLUMNS.split(", ")
TEXTS = st.one_of(
    st.text(max_size=20), st.sampled_from(["", "{}", "[]", "null", "[" * 50_000, '{"platform": "amd"}', '{"a": NaN}'])
)
ABSURD = st.one_of(
    st.none(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(),
    TEXTS,
    st.binary(max_size=12),
    st.sampled_from([0, -1, 1e-320, float("inf"), 1 << 62, "7", b"\xff"]),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=10)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=10), inner, max_size=3)),
    max_leaves=10,
)


def stored(path, rows):
    """Write rows of any values as a database of records, without the constraints that ours has."""
    connection = sqlite3.connect(path)
    connection.execute("DROP TABLE IF EXISTS records")
    connection.execute(f"CREATE TABLE records ({', '.join(NAMES)})")
    connection.executemany(f"INSERT INTO records VALUES ({', '.join('?' * len(NAMES))})", rows)
    connection.execute(f"PRAGMA application_id = {_files.APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {_files.SCHEMA}")
    connection.commit()
    connection.close()


@pytest.fixture
def in_use(tmp_path):
    """A database file that products look into, and what was in use before."""
    before = database.current()
    yield tmp_path / "tuning.sqlite3"
    database.use(before)
    rocpy.plan_cache.clear()


def own_record(a, b):
    """Return the record that a product would find."""
    with rocpy.tuning.record() as shapes:
        rocpy.matmul(a, b)
    return dataclasses.replace(record(), scope=rocpy.tuning.scope(), key=rocpy.tuning.problem_key(shapes[0]))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.dictionaries(st.sampled_from(NAMES[3:]), ABSURD, min_size=1))
def test_products_go_on_beside_absurd_records(in_use, values):
    a, b = np.ones((9, 4), np.float32), np.ones((4, 5), np.float32)
    own = own_record(a, b)
    row = [values.get(name, getattr(own, name)) for name in NAMES]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        stored(in_use, [row, dataclasses.astuple(record(3))])
        database.use(Database([in_use]))
        rocpy.plan_cache.clear()
        assert (rocpy.matmul(a, b) == 4).all()
        how = str(rocpy.explain(a, b))
        records = database.current().records()
        for export in (export_json, export_tunableop, export_hipblaslt):
            for scope in {one.scope for one in records}:  # such a file holds those of one
                export([one for one in records if one.scope == scope])
        gains = [one.gain for one in records]
    assert how
    assert np.isfinite(gains).all()
    assert import_json(export_json(records)) == records
    if len(records) == 1:
        assert any("record of" in str(warning.message) for warning in seen if warning.category is RocpyWarning)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.lists(ABSURD, min_size=len(NAMES), max_size=len(NAMES)), max_size=4))
def test_databases_of_absurd_rows_are_read_exported_and_written(tmp_path, rows):
    path = tmp_path / "t.sqlite3"
    stored(path, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RocpyWarning)
        base = Database([path])
        records = base.records()
        for export in (export_tunableop, export_hipblaslt):
            export(records)
        Database([]).store(*records)
        base.store(record(7))
        assert record(7) in base.records()


@settings(max_examples=200, deadline=None)
@given(value=JSON, changed=st.sampled_from([*NAMES, "records", "schema", "format", ""]))
def test_documents_of_anything_are_read_or_refused(value, changed):
    document = json.loads(export_json([record(), record(1)]))
    if changed in NAMES:
        document["records"][1][changed] = value
    elif changed:
        document[changed] = value
    else:
        document = value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RocpyWarning)
        for read in (import_json, Shapes.from_json, Problem.from_json, Algorithm.from_json):
            try:
                read(json.dumps(document))
            except InvalidProblemError:
                continue


@settings(max_examples=150, deadline=None)
@given(
    value=JSON, place=st.sampled_from(["a", "b", "epilogue", "dtype", "clamp", "scale_a_batch", "inputs", "compute"])
)
def test_problems_of_anything_are_read_or_refused(value, place):
    problem = json.loads(record().problem)
    problem[place] = value
    try:
        Problem.from_json(json.dumps(problem))
    except (InvalidProblemError, rocpy.InvalidOperandError, rocpy.UnsupportedError):
        return


@settings(max_examples=150, deadline=None)
@given(
    value=JSON,
    field=st.sampled_from(["id", "name", "workspace_bytes", "waves", "elapsed_ms", "rank", "library", "arch"]),
)
def test_algorithms_of_anything_are_taken_or_refused(value, field):
    a = np.ones((9, 4), np.float32)
    with rocpy.Matmul(a, a.T) as planned:
        one = planned.plan()[0].to_dict()
    one[field] = value
    try:
        assert (rocpy.matmul(a, a.T, algorithm=one) == 4).all()
    except InvalidProblemError:
        return


@pytest.mark.parametrize("algorithm", [10**30, -(10**30), 1 << 63, -1])
def test_absurd_indices_of_algorithms_are_refused(algorithm):
    a = np.ones((9, 4), np.float32)
    with pytest.raises(InvalidProblemError):
        rocpy.matmul(a, a.T, algorithm=algorithm)
    with rocpy.Matmul(a, a.T) as planned, pytest.raises(InvalidProblemError):
        planned.pin(algorithm)


def test_a_database_of_a_newer_release_is_left_alone(tmp_path):
    path = tmp_path / "t.sqlite3"
    Database([path]).store(record())
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {_files.SCHEMA + 1}")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    base = Database([path])
    with pytest.warns(RocpyWarning, match="newer rocpy"):
        assert base.records() == []
    with pytest.warns(RocpyWarning, match="newer rocpy"):
        base.store(record(1))
    assert base.records() == [record(1)]
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("*damaged*"))


def test_a_document_of_a_newer_release_is_refused_whole():
    document = json.loads(export_json([record()]))
    document["schema"] += 1
    with pytest.raises(InvalidProblemError, match="reads only"):
        import_json(json.dumps(document))
