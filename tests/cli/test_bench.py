# SPDX-License-Identifier: MIT
"""`rocpy bench --only`: what a choice of groups leaves out, and which results are replaced."""

from __future__ import annotations

import json
import os
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
if "--list" in words:
    print("64 small")
    sys.exit(0)
row = {"benchmark": NAME, "case": "64 small", "label": "rocpy", "threads": 1, "best_us": 1, "median_us": 2, "spread": 0}
rows = [row] if only in row["case"] else []
Path(words[words.index("--json") + 1]).write_text(json.dumps({"benchmark": NAME, "notes": [], "rows": rows}))
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
        seen = capfd.readouterr()
        run_words.out = seen.out
        return ended.value.code, seen.err

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


def test_groups_are_listed(run, tmp_path):
    assert run("matmul", "--list") == (0, "")
    assert "64 small" in run.out
    assert run("--list", "--only", "sma", "--json") == (0, "")
    assert json.loads(run.out) == {name: ["64 small"] for name in bench.NAMES}
    assert not (tmp_path / "benchmark-results").exists()


@pytest.mark.parametrize("name", ["reach", "all"])
def test_a_group_that_does_not_exist_is_one_line(run, name):
    code, err = run(name, "--only", "zzz", "--list")
    assert (code, len(err.splitlines())) == (2, 1)
    assert run(name, "--only", "zzz") == (code, err)
    assert f"`rocpy bench {name} --list` shows the names" in err
    assert f"`rocpy bench {name} --quick --list` shows the names" in run(name, "--only", "zzz", "--quick")[1]


def test_a_number_of_threads_that_no_machine_has_is_one_line(run):
    code, err = run("threads", "--threads", "5000")
    assert (code, "5000 is not a whole number from 1 to 4096" in err) == (2, True)


def test_nothing_is_left_of_a_group_that_does_not_exist(run, tmp_path):
    assert run("import", "--only", "zzz", "--output", "a/results")[0] == 2
    assert not (tmp_path / "a" / "results").exists()


def test_a_choice_of_groups_leaves_out_what_has_none(run, tmp_path):
    assert run("--only", "64", "--output", "results")[0] == 0
    assert results(tmp_path / "results") == dict.fromkeys(bench.NAMES, 1)


def test_results_of_counts_that_grew_are_written(run, tmp_path):
    script = tmp_path / "scripts" / "counts.py"
    script.write_text(script.read_text() + "sys.exit(1)\n")
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


# Nothing is measured, not even the machine, before a choice of groups is known to be one.
CHOOSE = """
import runpy, subprocess, sys
from pathlib import Path

import machine

def measured(*_, **__):
    raise AssertionError("measured")

machine.fma_peak = machine.read_bandwidth = machine.context = subprocess.run = subprocess.Popen = measured
folder, *words = sys.argv[1:]
for path in sorted(Path(folder).glob("bench_*.py")):
    sys.argv = [str(path), *words]
    print(path.stem)
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as ended:
        print(ended.code)
"""


def choose(*words):
    """Run each benchmark with the words, and return what it printed and its exit code by its name."""
    done = subprocess.run(
        [sys.executable, "-c", CHOOSE, FOLDER, *words],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(FOLDER)},
    )
    assert done.returncode == 0, done.stderr
    seen = {}
    for line in done.stdout.splitlines():
        if line.startswith("bench_"):
            lines = seen.setdefault(line, [])
        else:
            lines.append(line)
    assert seen.keys() == {path.stem for path in FOLDER.glob("bench_*.py")}
    return seen, done.stderr.splitlines()


@pytest.mark.parametrize("quick", [[], ["--quick"]], ids=["whole", "quick"])
def test_every_benchmark_lists_its_groups(quick):
    seen, _ = choose("--list", *quick)
    for name, (*groups, code) in seen.items():
        assert (code, len(set(groups))) == ("0", len(groups)), name
        assert groups, name
        assert all(groups), name


def test_every_benchmark_refuses_a_choice_of_no_group_at_once(tmp_path):
    kept = tmp_path / "kept.json"
    kept.write_text('{"rows": [1]}')
    seen, errors = choose("--only", "zzz", "--json", str(kept))
    assert list(seen.values()) == [["2"]] * len(seen)
    assert errors == ["no group's name contains 'zzz'; --list shows the names"] * len(seen)
    assert kept.read_text() == '{"rows": [1]}'


def test_the_command_of_a_result_repeats_it(tmp_path):
    words = [sys.executable, FOLDER / "bench_import.py", "--json", "import.json", "--quick", "--only", "rocpy"]
    assert subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=300).returncode == 0
    (row,) = json.loads((tmp_path / "import.json").read_text())["rows"]
    assert row["command"] == "python benchmarks/bench_import.py --quick --only rocpy"
