# SPDX-License-Identifier: MIT
"""`rocpy tune run` measures what a program computed, with its workspace limits, conjugates, scales and paths."""

import os
import sys
from concurrent import futures

import ml_dtypes
import numpy as np
import pytest

import rocpy
from rocpy.blaslt.selection import tuning_state as _tuning_state
from rocpy.cli import main
from rocpy.errors import InvalidProblemError
from rocpy.tuning import Database, Shapes, database
from rocpy.tuning._operands import product_of

FLOATS, NARROW = np.ones((16, 32), np.float32), np.ones((16, 32), ml_dtypes.float8_e4m3fn)
SCALES = np.ones((16, 1), np.float32)


@pytest.fixture
def run(tmp_path, monkeypatch, fresh_plan_cache):
    """Run `rocpy tune run` in this process, with a database of the test's own, and return its exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(database, "_current", Database([tmp_path / "tuning.sqlite3"]))
    _tuning_state.changed()

    def command(program, *words):
        (tmp_path / "program.py").write_text(program, encoding="utf-8")
        with pytest.raises(SystemExit) as left:
            main(["tune", "run", "program.py", "--budget-ms", "100", *words])
        return left.value.code

    yield command
    _tuning_state.changed()


LIMITED = """
import numpy as np, rocpy
a = np.ones((48, 48), np.float32)
rocpy.matmul(a, a)
with rocpy.options(max_workspace_bytes=1 << 20):
    rocpy.matmul(a, a)
    rocpy.matmul(a[:8], a)
"""


@pytest.mark.parametrize("twice", [False, True])
def test_products_are_measured_with_their_workspace_limit(run, tmp_path, twice):
    assert run(LIMITED, "--save-shapes", "shapes.json") == 0
    if twice:  # by the file alone
        database.use(Database([]))
        with pytest.raises(SystemExit):
            main(["tune", "run", "shapes.json", "--budget-ms", "100"])
    a, tuned = np.ones((48, 48), np.float32), {}
    for rows, limit in ((48, 128 << 20), (48, 1 << 20), (8, 128 << 20), (8, 1 << 20)):
        tuned[rows, limit] = rocpy.explain(a[:rows], a, options={"max_workspace_bytes": limit}).source == "tuned"
    assert tuned == {(48, 128 << 20): True, (48, 1 << 20): True, (8, 128 << 20): False, (8, 1 << 20): True}


def test_a_document_of_problems_has_their_workspace_limits():
    with rocpy.tuning.record() as shapes:
        for limit in (128 << 20, 0, 1 << 20):
            rocpy.matmul(FLOATS, FLOATS.T, options={"max_workspace_bytes": limit})
        rocpy.matmul(FLOATS[:3], FLOATS.T)
    (limited, _) = shapes
    assert shapes.workspace_limits == {limited: [128 << 20, 0, 1 << 20]}
    again = Shapes.from_json(shapes.to_json())
    assert (again, again.workspace_limits) == (shapes, shapes.workspace_limits)
    assert [options.max_workspace_bytes for _, options in again.with_options()] == [128 << 20, 0, 1 << 20, 128 << 20]
    for limits in ("[-1]", "3", '["x"]', "[true]"):
        with pytest.raises(InvalidProblemError):
            Shapes.from_json('{"problems": [' + limited.to_json()[:-1] + f', "max_workspace_bytes": {limits}' + "}]}")


@pytest.mark.parametrize("nothing", [
    "rocpy.matmul(a[:, :0], a[:0])",
    "rocpy.matmul(a[:0], a)",
    "rocpy.grouped_matmul(a, np.ones((3, 32, 8), 'f4'), offsets=np.array([0, 4, 4, 32]))",
])  # fmt: skip
def test_products_of_nothing_are_no_failure(run, nothing):
    assert run(f"import numpy as np, rocpy\na = np.ones((32, 32), 'f4')\n{nothing}\n") == 0


@pytest.mark.parametrize(("failure", "code", "error"), [
    ("raise SystemExit('no data')", 1, "no data\n"),
    ("raise SystemExit(3)", 3, ""),
    ("1 / 0", 1, "ZeroDivisionError: "),
    ("rocpy.matmul(np.ones((2, 3)), np.ones((2, 3)))", 1, "InvalidProblemError: "),
    ("raise OSError(28, 'No space left on device')", 1, "OSError: "),
    ("raise BrokenPipeError", 1, "BrokenPipeError"),
    ("1 +* 2", 1, "SyntaxError: "),
])  # fmt: skip
def test_a_program_fails_as_python_runs_it(run, capsys, tmp_path, failure, code, error):
    assert run(f"import numpy as np, rocpy\n{failure}\n", "--save-shapes", "shapes.json") == code
    text = capsys.readouterr().err
    assert error in text
    assert ("line 2" in text) == ("Error" in error)
    assert "cli" not in text  # only the program's own frames
    assert "runpy" not in text
    assert f"rocpy tune run: program.py exited with {code}; nothing was measured" in text
    assert not (tmp_path / "shapes.json").exists()


WAITED_FOR = {
    "thread": "threading.Thread(target=lambda: go.wait() and product()).start()",
    "executor": "pool = futures.ThreadPoolExecutor(2)\npool.submit(lambda: go.wait() and product())",
}


@pytest.mark.parametrize("kind", WAITED_FOR)
@pytest.mark.parametrize("end", ["", "raise SystemExit(0)"])
def test_a_programs_threads_are_waited_for_as_python_does(run, kind, end):
    program = f"""
import threading, concurrent.futures as futures, numpy as np, rocpy
def product():
    rocpy.matmul(np.ones((9, 9)), np.ones((9, 9)))
go = threading.Event()
{WAITED_FOR[kind]}
threading.Thread(target=go.wait, daemon=True).start()
threading.Thread(target=go.set).start()
{end}
"""
    assert run(program, "--save-shapes", "shapes.json") == 0
    assert [problem.m for problem in Shapes.load("shapes.json")] == [9]
    with futures.ThreadPoolExecutor(1) as pool:  # this process goes on
        assert pool.submit(int).result() == 0


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_program_may_close_a_standard_stream(run, monkeypatch, name, tmp_path):
    file = (tmp_path / "printed").open("w")
    monkeypatch.setattr(sys, name, file)
    assert run(f"import sys\nsys.{name}.close()\n") == 0
    getattr(sys, name).close()


def test_a_program_may_change_the_folder(run, tmp_path):
    (tmp_path / "sub").mkdir()
    program = "import os, numpy as np, rocpy\nos.chdir('sub')\nrocpy.matmul(np.ones((9, 9)), np.ones((9, 9)))\n"
    assert run(program, "--database", "mine", "--save-shapes", "shapes.json") == 0
    os.chdir(tmp_path)
    assert [problem.m for problem in Shapes.load("shapes.json")] == [9]
    assert len(Database("mine").records()) == 1
    assert not list((tmp_path / "sub").iterdir())


@rocpy.epilogue
def shifted(y, by, times=2.0):
    return y * times + by, y


PRODUCTS = {
    "bfloat16": lambda: rocpy.matmul(FLOATS.astype(ml_dtypes.bfloat16), FLOATS.T.astype(ml_dtypes.bfloat16)),
    "float8": lambda: rocpy.matmul(NARROW, NARROW.T, scale_a=1.0, scale_b=1.0, dtype="float32"),
    "vectors": lambda: rocpy.matmul(NARROW, NARROW.T, scale_a=SCALES, scale_b=SCALES.T, dtype="float32"),
    "custom epilogue": lambda: rocpy.matmul(
        FLOATS, FLOATS.T, epilogue=shifted, epilogue_inputs={"by": np.ones((16, 1), np.float32), "times": 3.0}
    ),
    "broadcast": lambda: rocpy.matmul(np.broadcast_to(FLOATS, (3, 16, 32)), np.ones((3, 32, 4), np.float32)),
}


@pytest.mark.parametrize("kind", PRODUCTS)
def test_operands_are_generated_for_any_problem(kind, fresh_plan_cache):
    with rocpy.tuning.record() as shapes:
        PRODUCTS[kind]()
    for problem, options in shapes.with_options():
        with product_of(problem, options) as product:
            assert product.problem == problem


@pytest.mark.torch
def test_conjugates_are_generated_as_conjugates(torch, fresh_plan_cache):
    with rocpy.tuning.record() as shapes:
        x = torch.ones(8, 8, dtype=torch.complex64)
        rocpy.matmul(x.mH, x)
    for problem, options in shapes.with_options():
        assert problem.conj_a
        with product_of(problem, options) as product:
            assert product.problem == problem
