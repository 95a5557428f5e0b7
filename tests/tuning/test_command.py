# SPDX-License-Identifier: MIT
"""`rocpy tune` as a user runs it: problems from a file and from a program, lists, exchange, exit codes."""

import json
import os
import subprocess
import sys

import pytest
from made_up_records import problem, record

from rocpy.blaslt import OperandInfo, Problem
from rocpy.blaslt.selection import tuning_state
from rocpy.cli import main
from rocpy.tuning import Database, Shapes, database, export_json


@pytest.fixture
def tune(tmp_path, monkeypatch):
    """Run `rocpy tune` with a database of the test's own."""
    monkeypatch.chdir(tmp_path)

    def run(*words, expect=0, **environment):
        done = subprocess.run(
            [sys.executable, "-m", "rocpy", "tune", *map(str, words)],
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "COLUMNS": "200",
                "ROCPY_PLATFORM": "host",
                "ROCPY_TUNING_DB": str(tmp_path / "tuning.sqlite3"),
                **environment,
            },
            timeout=120,
            check=False,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


def shapes(*problems):
    return Shapes(problems or [problem(m, dtype="float32") for m in (8, 16)])


def test_run_list_show_export_clear_import(tune, tmp_path):
    shapes().save(tmp_path / "shapes.json")
    document = json.loads(tune("run", "shapes.json", "--budget-ms", 5000, "--json").stdout)
    assert [report["problem"]["m"] for report in document["reports"]] == [8, 16]
    assert [report["source"] for report in document["reports"]] == ["measured"] * 2
    again = json.loads(tune("run", "shapes.json", "--json").stdout)
    assert [report["source"] for report in again["reports"]] == ["tuned"] * 2
    assert "(8 x 32) @ (32 x 16)" in tune("list").stdout
    rows = json.loads(tune("list", "--json").stdout)
    assert len(rows) == 2
    shown = json.loads(tune("show", 1, "--json").stdout)
    assert shown["scope"]["platform"] == "host"
    assert shown["key"]["dtype"] == "float32"
    assert "compute_units" in tune("show", 0).stdout
    tune("export", "records.json")
    assert "--yes" in tune("clear", "--help").stdout
    assert json.loads(tune("clear", "--yes", "--json").stdout) == {"deleted": 2}
    assert json.loads(tune("list", "--json").stdout) == []
    assert json.loads(tune("import", "records.json", "--json").stdout) == {"records.json": 2}
    assert json.loads(tune("list", "--json").stdout) == rows
    assert json.loads(tune("import", "records.json", "--json").stdout) == {"records.json": 0}


def test_clear_asks_and_counts(tune, tmp_path):
    Database([tmp_path / "tuning.sqlite3"]).store(record(1))
    done = tune("clear", "--all", expect=1)  # without an answer
    assert "Delete 1 record from" in done.stderr
    done = tune("clear", "--all", "--json", expect=2)
    assert (done.stdout, "--yes" in done.stderr) == ("", True)
    assert tune("clear", "--all", "--yes").stdout == "deleted 1 record\n"


def test_a_database_that_cannot_be_written_is_said_first(tune, tmp_path):
    shapes().save(tmp_path / "shapes.json")
    (tmp_path / "records.json").write_text(export_json([record(1)]), encoding="utf-8")
    for words in (("run", "shapes.json"), ("import", "records.json")):
        done = tune(*words, "--database", "/proc/records", expect=2)
        assert len(done.stderr.splitlines()) == 1
    document = json.loads(tune("import", "records.json", "--database", "new/records", "--json").stdout)
    assert document == {"records.json": 1}
    assert len(Database([tmp_path / "new" / "records"]).records()) == 1


def test_run_a_program(tune, tmp_path):
    (tmp_path / "program.py").write_text(
        "import sys, numpy as np, rocpy\n"
        "print('said by the program', sys.argv[1:])\n"
        "rocpy.matmul(np.ones((5, 6), np.float32), np.ones((6, 7), np.float32), epilogue='relu')\n",
        encoding="utf-8",
    )
    done = tune("run", "program.py", "word", "--budget-ms", 5000, "--save-shapes", "met.json", "--json")
    document = json.loads(done.stdout)
    assert "said by the program ['word']" in done.stderr
    assert [(row["problem"]["m"], row["problem"]["epilogue"]) for row in document["reports"]] == [(5, "relu")]
    assert [row.n for row in Shapes.load(tmp_path / "met.json")] == [7]


def test_a_program_that_fails_is_a_problem(tune, tmp_path):
    (tmp_path / "program.py").write_text("raise SystemExit(4)\n", encoding="utf-8")
    assert "exited with 4" in tune("run", "program.py", expect=4).stderr


@pytest.mark.parametrize(
    "words",
    [
        ("run", "missing.json"),
        ("run", "notes.txt"),
        ("run", "wrong.json"),
        ("show", "0"),
        ("import", "missing.json"),
        ("import", "wrong.json"),
        ("export",),
        ("dance",),
        (),
    ],
)
def test_wrong_usage(tune, tmp_path, words):
    (tmp_path / "notes.txt").touch()
    (tmp_path / "wrong.json").write_text('{"a": 1}', encoding="utf-8")
    tune(*words, expect=2)


def test_what_cannot_be_measured_is_told_and_the_rest_is_measured(tune, tmp_path):
    upwards = OperandInfo((8, 32), (-32, 1), "float32")
    unmeasured = Problem.make(upwards, OperandInfo.dense((32, 16), "float32"))
    nothing = problem(8, k=0, dtype="float32")
    shapes(problem(8, dtype="float32"), unmeasured, nothing).save(tmp_path / "shapes.json")
    document = json.loads(tune("run", "shapes.json", "--budget-ms", 5000, "--json", expect=1).stdout)
    assert len(document["reports"]) == 1
    (failure,) = document["failures"]
    assert "strides (-32, 1)" in failure["error"]


def test_records_of_other_environments_and_other_formats(tune, tmp_path):
    Database([tmp_path / "tuning.sqlite3"]).store(record(1), record(2))
    assert json.loads(tune("list", "--json").stdout) == []
    assert len(json.loads(tune("list", "--all", "--json").stdout)) == 2
    text = tune("export", "-", "--all", "--format", "tunableop").stdout
    assert text.splitlines()[0] == "Validator,HIPBLASLT_VERSION,100401-abc123"
    assert "Git Version: abc123" in tune("export", "-", "--all", "--format", "hipblaslt").stdout
    (tmp_path / "other.json").write_text(export_json([record(3)]), encoding="utf-8")
    other = tmp_path / "other.sqlite3"
    Database([other]).store(record(4))
    assert json.loads(tune("import", "other.json", other, "--json").stdout) == {"other.json": 1, str(other): 1}
    assert len(Database([tmp_path / "tuning.sqlite3"]).records()) == 4


@pytest.fixture
def tune_here(tmp_path, monkeypatch, capsys):
    """Run `rocpy tune` in this process, with a database of the test's own, and return exit code and output."""
    monkeypatch.setattr(database, "_current", Database([tmp_path / "tuning.sqlite3"]))
    tuning_state.changed()

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(["tune", *map(str, words)])
        return ended.value.code, *capsys.readouterr()

    yield run
    tuning_state.changed()


@pytest.mark.parametrize("form", ["tunableop", "hipblaslt"])
def test_an_export_of_no_records_says_that_nothing_was_written(tune_here, tmp_path, form):
    code, _, error = tune_here("export", tmp_path / "records", "--format", form)
    assert code == 1
    assert "there is no record of this environment; --all exports" in error
    assert not (tmp_path / "records").exists()


def test_a_record_is_shown_to_people_with_its_date_and_rounded_times(tune_here, tmp_path):
    Database([tmp_path / "tuning.sqlite3"]).store(
        record(1, date=1796037251.03, measured_us=12.345678901234567, baseline_us=20.0)
    )
    code, text, _ = tune_here("show", "0", "--all")
    assert code == 0
    for part in ("2026-11-30 11:14:11 UTC", "12.35", "20"):
        assert part in text
    assert "12.345" not in text
    shown = json.loads(tune_here("show", "0", "--all", "--json")[1])
    assert (shown["date"], shown["measured_us"]) == (1796037251.03, 12.345678901234567)


def test_what_the_hosts_records_cannot_be_written_as(tune, tmp_path):
    shapes(problem(8, dtype="float32")).save(tmp_path / "shapes.json")
    tune("run", "shapes.json", "--budget-ms", 5000)
    done = tune("export", "-", "--format", "tunableop", expect=1)
    assert "1 of 1 records" in done.stderr
    assert done.stdout == ""
