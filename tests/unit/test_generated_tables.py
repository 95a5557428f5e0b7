# SPDX-License-Identifier: MIT
"""The tools that write tables into README and docs: what they make of rows, and what they refuse."""

import json

import environment_table
import markers
import pytest
import readme_table


def row(label, median_us, case="4x4x4 float32, numpy operands", threads=1):
    return {
        "case": case,
        "label": label,
        "median_us": median_us,
        "threads": threads,
        "device": "a CPU",
        "platform": "host",
        "commit": "abc",
        "versions": {"numpy": "2"},
    }


def write(folder, name, rows, quick=False):
    (folder / f"{name}.json").write_text(json.dumps({"benchmark": name, "quick": quick, "rows": rows}))


def test_readme_table_compares_with_the_fastest_other(tmp_path):
    write(
        tmp_path,
        "overhead",
        [row("rocpy matmul", 2.0), row("numpy a @ b", 3.0), row("nvmath matmul", 400.0), row("rocpy execute", 1.0)],
    )
    text = readme_table.table(tmp_path)
    assert "| one call, 4x4x4 float32, numpy arrays | **1.50** (2.00 µs; numpy a @ b 3.00 µs) |" in text
    assert "commits abc." in text


def test_readme_table_takes_no_other_name_of_rocpy_for_a_rival(tmp_path):
    rows = [
        row(label, value, "all-reduce of 4 KiB, 2 ranks") for label, value in (("rocpy", 2.0), ("torch, rocpy", 1.0))
    ]
    write(tmp_path, "collectives", [*rows, row("MPI", 3.0, "all-reduce of 4 KiB, 2 ranks")])
    text = readme_table.table(tmp_path)
    assert "| all-reduce of 4 KiB of float32, 2 processes | **1.50** (2.00 µs; MPI 3.00 µs) |" in text


def test_readme_table_leaves_out_quick_runs_and_other_threads(tmp_path):
    write(tmp_path, "overhead", [row("rocpy matmul", 2.0), row("numpy a @ b", 3.0)], quick=True)
    write(
        tmp_path,
        "matmul",
        [row("rocpy", 2.0, "1024x1024x1024 float32", 2), row("torch", 3.0, "1024x1024x1024 float32", 2)],
    )
    assert "No results yet" in readme_table.table(tmp_path)


def test_readme_table_says_when_rocpy_is_slower(tmp_path):
    case = "2048x2048x2048 float32"
    write(tmp_path, "matmul", [row("rocpy matmul", 20000.0, case), row("torch", 15000.0, case)])
    assert "| **0.75** (20.0 ms; torch 15.0 ms) |" in readme_table.table(tmp_path)


def test_readme_table_has_a_column_for_each_machine_and_instruction_set_measured(tmp_path):
    case = "2048x2048x2048 float32"
    kernels = {"kernels": {"rocpy": "avx2", "numpy": "OpenBLAS Haswell"}}
    write(tmp_path, "overhead", [row("rocpy matmul", 2.0), row("numpy a @ b", 3.0)])
    write(tmp_path, "matmul", [row("rocpy", 20000.0, case), row("numpy", 30000.0, case)])
    assert "AVX2 |" not in readme_table.table(tmp_path)
    (tmp_path / "xeon-avx2").mkdir()
    write(tmp_path / "xeon-avx2", "matmul", [row("rocpy", 2.0, case) | kernels, row("numpy", 2.5, case) | kernels])
    text = readme_table.table(tmp_path)
    assert "| | AMD EPYC, AVX-512 | Intel Xeon, AVX2 |" in text
    assert "| one call, 4x4x4 float32, numpy arrays | **1.50** (2.00 µs; numpy a @ b 3.00 µs) |  |" in text
    assert "| **1.50** (20.0 ms; numpy 30.0 ms) | **1.25** (2.00 µs; numpy 2.50 µs) |" in text
    assert " AVX2: a CPU, platform host; kernels: rocpy avx2, numpy OpenBLAS Haswell; numpy 2; commits abc." in text


def test_every_folder_of_results_has_a_title():
    # README and the page of performance show what has one.
    results = readme_table.RESULTS
    folders = {path.parent.relative_to(results).as_posix().removeprefix(".") for path in results.rglob("*.json")}
    assert folders - {"history"} == set(readme_table.COLUMNS.values())


def test_environment_rows_are_read_whole():
    source = (
        'ROCPY_VARIABLE(ROCPY_X, "a", core, "a|b", "One; two, (three).")\n'
        'ROCPY_VARIABLE(ROCPY_Y, "", python, "*", "Four.")\n'
    )
    assert environment_table.rows(source) == [
        ("ROCPY_X", "a", "core", "One; two, (three)."),
        ("ROCPY_Y", "", "python", "Four."),
    ]
    assert "| `ROCPY_Y` |  | Four. |" in environment_table.table(source)


def test_a_page_without_markers_is_refused():
    with pytest.raises(ValueError, match="needs one"):
        markers.replace("no markers", "rows", "text")


def test_only_the_part_between_the_markers_changes():
    page = "before\n<!-- begin: rows -->\n{}\n<!-- end: rows -->\nafter\n"
    assert markers.replace(page.format("old"), "rows", "new") == page.format("new")


def test_a_stale_page_is_noticed_and_written(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text("old\n")
    assert markers.update(page, lambda _: "new\n", ["--check"]) == 1
    assert page.read_text() == "old\n"
    assert "make tables" in capsys.readouterr().err
    assert markers.update(page, lambda _: "new\n", []) == 0
    assert markers.update(page, lambda text: text, ["--check"]) == 0
    assert page.read_text() == "new\n"
