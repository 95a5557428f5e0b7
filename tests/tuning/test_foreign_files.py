# SPDX-License-Identifier: MIT
"""Files that are no tuning databases are neither moved nor written, whoever names them; `rocpy tune` exits with 2."""

import contextlib
import os
import sqlite3

import pytest
from made_up_records import record

from rocpy.cli import main
from rocpy.errors import InvalidOperandError, InvalidProblemError, RocpyWarning
from rocpy.tuning import Database, Shapes, database, export_json


def others_database(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE mail (subject TEXT)")
        connection.commit()


def damaged_database_of_others(path):
    others_database(path)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(8000))


FILES = {
    "notes": lambda path: path.write_text("my notes\n", encoding="utf-8"),
    "a line": lambda path: path.write_text("\n", encoding="utf-8"),
    "JSON": lambda path: path.write_text(export_json([record(1)]), encoding="utf-8"),
    "bytes": lambda path: path.write_bytes(os.urandom(20000)),
    "another program's database": others_database,
    "another program's database, damaged": damaged_database_of_others,
}


@pytest.fixture(params=FILES)
def file(request, tmp_path):
    """A user's file; afterwards it is as it was, and alone in its folder."""
    path = tmp_path / "mine" / "file.txt"
    path.parent.mkdir()
    FILES[request.param](path)
    before = path.read_bytes()
    yield path
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    """Run `rocpy tune`, which refuses the words that it is given; what it said of them."""
    monkeypatch.setenv("ROCPY_TUNING_DB", str(tmp_path / "tuning.sqlite3"))
    monkeypatch.setattr(database, "_current", None)

    def run(*words):
        with pytest.raises(SystemExit, match="^2$"):
            main(["tune", *map(str, words)])
        return capsys.readouterr().err

    return run


@pytest.mark.parametrize("words", ["import {}", "list --database {}", "import records.json --database {}"])
def test_the_command_refuses_it(tmp_path, monkeypatch, file, words, refused):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "records.json").write_text(export_json([record(2)]), encoding="utf-8")
    said = refused(*words.format(file).split())
    assert str(file) in said
    assert "tuning records" in said


@pytest.mark.parametrize("words", ["show 0", "export -", "clear --yes", "run shapes.json"])
def test_every_command_that_takes_a_database_refuses_others(tmp_path, words, refused):
    path = tmp_path / "notes.txt"
    FILES["notes"](path)
    (tmp_path / "shapes.json").write_text("[]", encoding="utf-8")
    words = [str(tmp_path / word) if word.endswith(".json") else word for word in words.split()]
    refused(*words, "--database", path)
    assert path.read_text(encoding="utf-8") == "my notes\n"


def test_a_database_object_ignores_it_with_a_warning(file):
    base = Database([file])
    with pytest.warns(RocpyWarning, match="is ignored: .*file.txt is"):
        assert base.records() == []
    with pytest.warns(RocpyWarning, match="cannot be written .*ROCPY_TUNING_DB"):
        base.store(record(1))
    assert base.records() == [record(1)]


def test_a_damaged_file_that_is_imported_stays_where_it_is(tmp_path, refused):
    path = tmp_path / "other.sqlite3"
    Database([path]).store(*(record(i) for i in range(20)))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek(100)
        file.write(os.urandom(8000))
    before = path.read_bytes()
    assert "other.sqlite3" in refused("import", path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("words", ["import {}", "run {}"])
@pytest.mark.parametrize("content", [b"\xff\xfe", b"\x80{}", b"{", b"", "{}".encode("utf-16")])
def test_documents_that_are_none(tmp_path, words, content, refused):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    said = refused(*words.format(path).split())
    assert len(said.splitlines()) == 1, said
    assert "bad.json" in said


def test_a_file_of_problems_that_is_no_text(tmp_path):
    path = tmp_path / "bad.json"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidProblemError, match="bad.json"):
        Shapes.load(path)


@pytest.mark.parametrize("paths", [3, [3], [None], [b"name"], ["a\0b"], [object()], [["a"]]])
def test_paths_that_are_none(paths):
    with pytest.raises(InvalidOperandError, match="paths: "):
        Database(paths)


@pytest.mark.parametrize("form", [str, lambda path: path, lambda path: [path], lambda path: [str(path)]])
def test_one_path_or_several(tmp_path, form):
    path = tmp_path / "t.sqlite3"
    assert Database(form(path)).path == path


@pytest.mark.parametrize("use", ["rocpy.matmul(ones, ones)", "rocpy.tuning.current()"])
def test_a_home_folder_of_nobody_in_the_environment(run_python, use):
    code = f"""
    import numpy as np, pytest, rocpy
    ones = np.ones((2, 2))
    for _ in range(2):
        with pytest.raises(rocpy.InvalidProblemError, match="ROCPY_TUNING_DB: .*nobody-of-this-name"):
            {use}
    """
    run_python(code, ROCPY_TUNING_DB="~nobody-of-this-name/db")
