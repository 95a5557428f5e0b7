# SPDX-License-Identifier: MIT
"""`rocpy bench --only`: what a choice of groups leaves out, and which results are replaced."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rocpy.cli import bench, main

FOLDER = bench.folder()
# A benchmark with one group, "64 small".
SCRIPT = """
import json, sys
from pathlib import Path
words = sys.argv[1:]
only = words[words.index("--only") + 1] if "--only" in words else ""
row = {"benchmark": NAME, "case": "64 small", "label": "rocpy", "threads": 1, "best_us": 1, "median_us": 2, "spread": 0}
rows = [row] if only in row["case"] else []
Path(words[words.index("--json") + 1]).write_text(json.dumps({"benchmark": NAME, "notes": [], "rows": rows}))
sys.exit(0 if rows else 2)
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run `rocpy bench` with benchmarks that take no time, and return exit code and standard error."""
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in (*bench.NAMES, *bench.OTHERS):
        prefix = "" if name in bench.OTHERS else "bench_"
        (scripts / f"{prefix}{name}.py").write_text(f"NAME = {name!r}\n{SCRIPT}")
    monkeypatch.setattr(bench, "folder", lambda: scripts)
    monkeypatch.chdir(tmp_path)

    def run_words(*words):
        with pytest.raises(SystemExit) as ended:
            main(["bench", *words])
        return ended.value.code, capfd.readouterr().err

    return run_words


def results(folder):
    return {path.stem: len(json.loads(path.read_text())["rows"]) for path in folder.iterdir()}


def test_all_results_are_written(run, tmp_path):
    assert run("--yes", "--output", "results")[0] == 0
    assert results(tmp_path / "results") == dict.fromkeys((*bench.NAMES, *bench.OTHERS), 1)


@pytest.mark.parametrize("name", [[], ["overhead"]])
def test_a_group_that_does_not_exist_is_an_error_and_replaces_nothing(run, tmp_path, name):
    assert run(*name, "--yes", "--output", "results")[0] == 0
    before = results(tmp_path / "results")
    code, err = run(*name, "--only", "zzz", "--output", "results", "--html", "page.html")
    assert code == 2
    assert "no group's name contains 'zzz'" in err.splitlines()[-1]
    assert results(tmp_path / "results") == before
    assert not (tmp_path / "page.html").exists()


def test_nothing_is_left_of_a_group_that_does_not_exist(run, tmp_path):
    assert run("import", "--only", "zzz", "--output", "a/results")[0] == 2
    assert not (tmp_path / "a" / "results").exists()


def test_a_choice_of_groups_leaves_out_what_has_none(run, tmp_path):
    assert run("--only", "64", "--output", "results")[0] == 0
    assert results(tmp_path / "results") == dict.fromkeys(bench.NAMES, 1)


def test_results_of_counts_that_grew_are_written(run, tmp_path):
    script = tmp_path / "scripts" / "counts.py"
    script.write_text(script.read_text().replace("sys.exit(0 if rows else 2)", "sys.exit(1)"))
    code, err = run("counts", "--output", "results")
    assert (code, err) == (1, "benchmark counts failed with code 1\n")
    assert results(tmp_path / "results") == {"counts": 1}


def test_an_interrupted_benchmark_replaces_nothing(run, tmp_path, monkeypatch):
    def interrupted(words, stdout):
        raise KeyboardInterrupt

    assert run("import")[0] == 0
    monkeypatch.setattr(bench, "_run_group", interrupted)
    assert run("import") == (130, "interrupted\n")
    assert results(tmp_path / "benchmark-results") == {"import": 1}


def test_a_drawing_that_cannot_be_written_is_said_before_anything_runs(run, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "_require_plot", lambda plot: None)
    code, err = run("import", "--plot", "/proc/drawing.png")
    assert code == 2
    assert "cannot write /proc/drawing.png" in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "benchmark-results").exists()


def test_nothing_timed_is_nothing_to_draw(run, monkeypatch, tmp_path):
    monkeypatch.setattr(bench, "_require_plot", lambda plot: None)
    (tmp_path / "scripts" / "bench_jax.py").write_text(
        'import sys\nopen(sys.argv[2], \'w\').write(\'{"benchmark": "jax", "notes": [], "rows": []}\')\n'
    )
    code, err = run("jax", "--plot", "drawing.png")
    assert (code, "jax timed nothing" in err) == (2, True)
    assert not (tmp_path / "drawing.png").exists()


# Each benchmark with a choice that is none of its groups: a session that measures is an error.
NO_GROUP = """
import argparse, importlib, sys
sys.path.insert(0, sys.argv[1])

class Session:
    name, quick, threads, clock, isa, peak, rows, notes = "", True, 1, "cpu", "native", {}, [], []

    def compare(self, case, *_, **__):
        raise AssertionError(f"measured: {case}")

    def note(self, text):
        print(f"note: {text}")

for name in sys.argv[2:]:
    module = importlib.import_module(name)
    module.run(Session(), argparse.Namespace(only="zzz", quick=True, isa="native", seconds=0.01))
    assert Session.rows == [], name
    print(name)
"""


def test_every_benchmark_has_a_choice_of_groups():
    names = sorted(path.stem for path in FOLDER.glob("bench_*.py"))
    names.remove("bench_collectives")  # has a program of its own
    done = subprocess.run(
        [sys.executable, "-c", NO_GROUP, str(FOLDER), *names], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "note: " not in line] == names
    assert "first launch" not in done.stdout


@pytest.mark.parametrize("name", ["import", "collectives"])
def test_a_benchmark_that_measures_nothing_says_so(tmp_path, name):
    kept = tmp_path / f"{name}.json"
    kept.write_text('{"rows": [1]}')
    words = [sys.executable, FOLDER / f"bench_{name}.py", "--quick", "--only", "zzz", "--json"]
    done = subprocess.run([*words, kept], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2, done.stderr
    assert "no group's name contains 'zzz'" in done.stdout
    assert kept.read_text() == '{"rows": [1]}'
    done = subprocess.run([*words, tmp_path / "new.json"], capture_output=True, text=True, timeout=300)
    assert json.loads((tmp_path / "new.json").read_text())["rows"] == []


def test_the_command_of_a_result_repeats_it(tmp_path):
    words = [sys.executable, FOLDER / "bench_import.py", "--json", "import.json", "--quick", "--only", "rocpy"]
    assert subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=300).returncode == 0
    (row,) = json.loads((tmp_path / "import.json").read_text())["rows"]
    assert row["command"] == "python benchmarks/bench_import.py --quick --only rocpy"
