# SPDX-License-Identifier: MIT
"""`rocpy bench --compare`, `--html`, and the counts of one call."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rocpy.cli import bench, main
from rocpy.cli.measured.drawing import figure_of, heading
from rocpy.cli.measured.pages import page_of

CONTEXT = {
    "benchmark": "matmul",
    "threads": 1,
    "dtype": "float32",
    "versions": {"numpy": "2"},
    "platform": "host",
    "device": "CPU",
    "isa": "avx2",
    "commit": "0",
    "command": "python",
}


def timed(case, label, best, *, spread=0.01, **more):
    return {**CONTEXT, "case": case, "label": label, "best_us": best, "median_us": 1.1 * best, "spread": spread, **more}


def counted(label, instructions, calls=5, allocations=0):
    counts = {"instructions": instructions, "library calls": calls, "allocations": allocations}
    return {**CONTEXT, "benchmark": "counts", "case": "4x4x4", "label": label, **counts}


def write(path, rows):
    path.write_text(json.dumps({"benchmark": rows[0]["benchmark"] if rows else "", "rows": rows}))
    return path


def run(*words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code


def compare(tmp_path, old, new, *words):
    names = [write(tmp_path / name, rows) for name, rows in (("old.json", old), ("new.json", new))]
    return run("bench", "--compare", *names, *words)


def verdicts(capsys):
    return [change["verdict"] for change in json.loads(capsys.readouterr().out)["changes"]]


def test_heading_of_a_drawing_names_machine_and_instruction_set():
    row = timed("4x4x4", "rocpy", 1.0)
    assert heading(row, "A CPU, AVX2") == "A CPU, AVX2\nhost | CPU | instruction set avx2\nnumpy 2 | commit 0"
    assert heading(row | {"isa": None}) == "host | CPU\nnumpy 2 | commit 0"


@pytest.mark.parametrize(
    ("new", "spread", "verdict", "code"),
    [(10.0, 0.01, "", 0), (10.3, 0.01, "", 0), (11.0, 0.01, "slower", 1), (11.0, 0.1, "", 0), (8.0, 0.01, "faster", 0)],
)
def test_times_are_judged_beyond_the_spread_of_both(tmp_path, capsys, new, spread, verdict, code):
    old = [timed("64", "rocpy", 10.0, spread=spread), timed("64", "numpy", 10.0)]
    # A rival's time is shown, not judged.
    assert (
        compare(tmp_path, old, [timed("64", "rocpy", new, spread=spread), timed("64", "numpy", 99.0)], "--json") == code
    )
    assert verdicts(capsys) == [verdict, ""]


def test_on_another_machine_the_speed_relative_to_the_peer_is_judged(tmp_path, capsys):
    old = [timed("64", "rocpy", 10.0, against="numpy", speed_best=1.0), timed("96", "rocpy", 10.0)]
    slow = {"device": "another CPU", "against": "numpy"}
    new = [timed("64", "rocpy", 50.0, speed_best=1.0, **slow), timed("96", "rocpy", 50.0, **slow)]
    assert compare(tmp_path, old, new) == 0
    assert "different machines" in capsys.readouterr().out
    assert compare(tmp_path, old, [timed("64", "rocpy", 5.0, speed_best=0.5, **slow)], "--json") == 1
    assert verdicts(capsys) == ["slower"]


@pytest.mark.parametrize(
    ("new", "verdict"),
    [
        (counted("rocpy", 7900), ""),
        (counted("rocpy", 8300), "grown"),
        (counted("rocpy", 7700, calls=6), "grown"),
        (counted("rocpy", 7000, allocations=1), "grown"),
        (counted("rocpy", 7000), "shrunk"),
    ],
)
def test_counts_have_no_noise_to_hide_in(tmp_path, capsys, new, verdict):
    assert compare(tmp_path, [counted("rocpy", 7800)], [new], "--json") == (verdict == "grown")
    assert verdicts(capsys) == [verdict]


def test_folders_are_compared_and_what_one_lacks_is_said(tmp_path, capsys):
    for name, rows in (
        ("old", [timed("1", "rocpy", 1.0), timed("2", "rocpy", 1.0)]),
        ("new", [timed("1", "rocpy", 1.0)]),
    ):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "matmul.json", rows)
        write(tmp_path / name / "empty.json", [])
    assert run("bench", "--compare", tmp_path / "old", tmp_path / "new") == 0
    assert "1 in the old one, 0 in the new one" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "holds no results"),
        ('{"rows": 3}', "holds no results"),
        ('{"rows": [{"benchmark": "matmul"}]}', "holds no results"),
        ('{"rows": [[]]}', "holds no results"),
        (json.dumps({"rows": [timed("other", "rocpy", 1.0)]}), "no row in common"),
        (None, "cannot read"),
    ],
)
def test_what_is_no_result_is_usage(tmp_path, capsys, text, words):
    good = write(tmp_path / "good.json", [timed("64", "rocpy", 1.0)])
    if text is not None:
        (tmp_path / "bad.json").write_text(text)
    assert run("bench", "--compare", good, tmp_path / "bad.json") == 2
    message = capsys.readouterr().err
    assert words in message
    assert "bad.json" in message


def test_wrong_combinations_are_usage(tmp_path, capsys):
    assert compare(tmp_path, [timed("1", "rocpy", 1.0)], [timed("1", "rocpy", 1.0)], "--only", "x") == 2
    assert run("bench", "overhead", "--html", "page.txt") == 2
    assert ".html" in capsys.readouterr().err


class Outside(HTMLParser):
    """Collects what a page loads from elsewhere, and its cells."""

    def __init__(self):
        super().__init__()
        self.loaded, self.cells, self.tag = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tag = tag
        self.loaded += [value for name, value in attrs if name in {"src", "href"} and not value.startswith("#")]

    def handle_data(self, data):
        if self.tag == "td":
            self.cells.append(data)


def test_a_page_holds_every_row_and_needs_no_other_file(tmp_path):
    rows = [
        timed("64 <b>", "rocpy", 12.5, gflops_best=3.0, against="numpy", speed_best=2.0),
        timed("64 <b>", "numpy", 25),
    ]
    counts = {"benchmark": "counts", "rows": [counted("rocpy matmul", 7800)]}
    goals = {"benchmark": "goals", "rows": [{"item": "overhead", "limit": 1.0, "verdict": "ok"}]}
    text = page_of([{"benchmark": "matmul", "rows": rows}, counts, goals])
    page = Outside()
    page.feed(text)
    assert page.loaded == []
    assert {"12.5", "25", "2.00 of numpy", "7800", "overhead"} <= set(page.cells)
    assert "<b>" not in text
    assert compare(tmp_path, rows, rows, "--html", str(tmp_path / "sub" / "page.html")) == 0
    page.feed((tmp_path / "sub" / "page.html").read_text())
    assert page.loaded == []


traced = pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions are counted on x86-64 only")


def count(tmp_path, *words):
    words = [sys.executable, str(bench.folder() / "counts.py"), "--json", str(tmp_path / "counts.json"), *words]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    rows = json.loads((tmp_path / "counts.json").read_text())["rows"]
    return done, {row["label"]: row for row in rows}


@traced
@pytest.mark.slow
def test_one_call_is_counted_and_a_count_that_grew_fails(tmp_path):
    history = tmp_path / "history.json"
    done, rows = count(tmp_path, "--history", str(history), "--update")
    assert done.returncode == 0, done.stderr
    plain = rows["rocpy matmul"]
    assert plain["calls"]["hipblasLtMatmul"] == 1
    assert plain["library calls"] == sum(plain["calls"].values())
    assert rows["numpy a @ b"]["library calls"] == 0
    assert rows["numpy a @ b"]["allocations"] >= 1
    assert rows["rocpy execute"]["instructions"] < plain["instructions"]
    kept = json.loads(history.read_text())
    next(row for row in kept[-1]["rows"] if row["label"] == "rocpy execute")["library calls"] -= 1
    history.write_text(json.dumps(kept))
    done, _ = count(tmp_path, "--history", str(history))
    assert done.returncode == 1
    assert "grown since the last record: rocpy execute" in done.stdout
    # Another Python takes another number of instructions, and calls the library as often.
    kept[-1]["versions"]["python"] = "3.0"
    for row in kept[-1]["rows"]:
        row["instructions"] = row["allocations"] = 0
        row["library calls"] += row["label"] == "rocpy execute"
    history.write_text(json.dumps(kept))
    done, _ = count(tmp_path, "--history", str(history))
    assert done.returncode == 0
    assert "no record with these versions" in done.stdout


@traced
def test_what_cannot_be_counted_is_an_error_and_leaves_no_process(run_python):
    run_python(f"""
        import os, sys
        sys.path.insert(0, {str(bench.folder())!r})
        import counts
        here = os.getpid()

        def fails():
            if os.getpid() != here:
                raise ValueError("in the traced process")

        try:
            list(counts.steps(fails))
        except ChildProcessError:
            pass
        else:
            raise AssertionError("no error")
        assert sum(1 for _ in counts.steps(lambda: None)) > 100
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            sys.exit()
        raise AssertionError("a process is left")
    """)


@pytest.fixture
def counts(monkeypatch):
    """The benchmark's module."""
    monkeypatch.syspath_prepend(bench.folder())
    import counts

    yield counts
    for name in ("counts", "machine"):
        sys.modules.pop(name, None)


SAME = {"python": "3.11", "numpy": "2.4", "torch": "2.13"}
MACHINE = {"processor": platform.machine(), "isa": "avx2", "libc": " ".join(platform.libc_ver())}
MORE = {"instructions": 9000, "library calls": 9, "allocations": 9}


@pytest.mark.parametrize(
    ("before", "judged"),
    [
        ({**SAME, **MACHINE}, ["library calls", "allocations", "instructions"]),
        ({**SAME, **MACHINE, "isa": "avx512_vnni"}, ["library calls", "allocations"]),
        ({**SAME, **MACHINE, "processor": "another", "libc": "another"}, ["library calls", "allocations"]),
        ({**SAME, **MACHINE, "numpy": "1.26"}, ["library calls"]),
        ({**SAME, **MACHINE, "python": "3.14"}, ["library calls"]),
    ],
)
def test_counts_are_judged_where_nothing_else_changes_them(counts, before, judged):
    versions = {name: f"{version}.1" for name, version in SAME.items()}
    row = {**counted("rocpy matmul", 7800), "versions": versions}
    other = {"versions": {**before, "numpy": "0"}, "rows": [{**counted("rocpy matmul", 0, 0), **MORE}]}
    # A newer record of other packages is no better where this one lets more be compared.
    history = [{"versions": before, "rows": [row]}]
    history = [*history, other] if len(judged) > 1 else [other, *history]
    assert counts.grown([row], history) == ([], [], tuple(judged))
    for name, count in MORE.items():
        failures, _, _ = counts.grown([{**row, name: count}], history)
        assert [line.partition(",")[0] for line in failures] == ([f"rocpy matmul: {name}"] if name in judged else [])


@pytest.mark.parametrize(
    ("instructions", "failures", "remarks"),
    [
        (7900, [], []),
        (8400, [], ["rocpy matmul: instructions, 7,800 -> 8,400"]),
        (9000, ["rocpy matmul: instructions, 7,800 -> 9,000"], []),
        (7000, [], []),
    ],
)
def test_a_few_more_instructions_are_only_remarked(counts, instructions, failures, remarks):
    row = {**counted("rocpy matmul", 7800), "versions": {}}
    history = [{"versions": counts.versions(row), "rows": [row]}]
    assert counts.grown([{**row, "instructions": instructions}], history)[:2] == (failures, remarks)


def test_without_a_history_nothing_is_judged(counts):
    assert counts.grown([{**counted("rocpy matmul", 7800), "versions": {}}], []) == ([], [], ())


def test_the_history_is_of_counts():
    records = json.loads((Path(bench.folder()) / "results" / "history" / "counts.json").read_text())
    assert all({"date", "commit", "versions", "rows"} <= set(record) for record in records)


def test_drawings_show_dots_on_a_log_axis_one_colour_for_rocpy_and_the_winner():
    colors = pytest.importorskip("matplotlib.colors", reason="the extra `plot` is not installed")
    groups = [{"numpy": 10.0, "rocpy": 30.0, "torch": 20.0}, {"rocpy": 1.0, "rocpy Weight": 0.5, "numpy": 400.0}]
    rows = [timed(f"case {number}", *one) for number, group in enumerate(groups) for one in group.items()]
    figure = figure_of([{"rows": rows}])
    assert figure.get_suptitle() == "host | CPU | instruction set avx2\nnumpy 2 | commit 0"
    assert [axis.get_xscale() for axis in figure.axes] == ["log", "log"]
    for axis, group in zip(figure.axes, groups, strict=True):
        assert len(axis.patches) == 0  # the length of a bar would say nothing on this axis
        ticks = {line for line in axis.lines if line.get_marker() == "|"}
        dots = [line for line in axis.lines if line.get_marker() == "o"]
        assert [line.get_xdata()[0] for line in dots] == pytest.approx([1.1 * best for best in group.values()])
        assert len(ticks) == len(dots)
        shown = {label: colors.to_hex(line.get_color()) for line, label in zip(dots, group, strict=True)}
        assert {color for label, color in shown.items() if "rocpy" in label} == {colors.to_hex("tab:red")}
        assert colors.to_hex("tab:red") not in {color for label, color in shown.items() if "rocpy" not in label}
        winners = [label.get_text() for label in axis.get_yticklabels() if label.get_text().endswith(" *")]
        assert winners == [f"{min(group, key=group.get)} *"]
