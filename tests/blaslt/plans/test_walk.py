# SPDX-License-Identifier: MIT
"""A call enters the files that docs/developing/walk.md lists, from the top to the bottom; no call goes in a circle."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from presented import is_composed
from profiled import profiled, python_calls

import rocpy
from rocpy.blaslt.selection import tuning_state as _tuning_state
from rocpy.tuning import _live, database

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = Path(rocpy.__file__).parent
PAGE = ROOT / "docs" / "developing" / "walk.md"
FILE = re.compile(r"^\| `((?:rocpy|csrc)/[^`]+)` \|", re.MULTILINE)
# What a decorator adds to a function is that function's.
DECORATORS = {"rocpy/_fp_environment.py", "rocpy/_messages/suggestions.py", "rocpy/torch/operators/arithmetic.py"}
# What groups in CPU memory enter where the device cannot use that, as in test_staging.py.
STAGES_GROUPS = set() if rocpy.platform.current().host_memory else {"rocpy/blaslt/grouped/preparations.py"}
CIMPORT = re.compile(r"^from (rocpy[\w.]*) cimport|^from (rocpy[\w.]*) import (\w+)", re.MULTILINE)


def listed():
    return FILE.findall(PAGE.read_text(encoding="utf-8"))


def calls_between_files(run):
    """Return the Python files of the package that a call enters, and the pairs of them that call each other."""
    entered, pairs = set(), set()

    def see(frame, event, _):
        file = file_of(frame)
        if event != "call" or not file:
            return
        entered.add(file)
        caller = frame.f_back
        while caller is not None and not file_of(caller):
            caller = caller.f_back
        if caller is not None and file_of(caller) != file:
            pairs.add((file_of(caller), file))

    with profiled(see):
        run()
    return entered, pairs


def file_of(frame):
    path = Path(frame.f_code.co_filename)
    file = "rocpy/" + path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else ""
    return "" if file in DECORATORS else file


def circles(pairs):
    """Return the pairs of files that call each other, directly or by way of others."""
    below = {}
    for upper, lower in pairs:
        below.setdefault(upper, set()).add(lower)

    def reached(file):
        found, waiting = set(), [file]
        while waiting:
            waiting += below.get(waiting.pop(), set()) - found
            found |= set(waiting)
        return found

    return sorted((upper, lower) for upper, lower in pairs if upper in reached(lower))


def show_compiled_functions(monkeypatch):
    """Let Python functions stand before the package's compiled ones, as frames of the files that define them."""
    modules = [module for name, module in sorted(sys.modules.items()) if name.split(".")[0] == "rocpy"]
    shown = {}
    for module in modules:
        if module.__name__.replace(".", "/") + ".py" in DECORATORS:
            continue
        for name, value in list(vars(module).items()):
            if type(value).__name__ != "cython_function_or_method" or not str(value.__module__).startswith("rocpy."):
                continue
            if id(value) not in shown:
                file = PACKAGE.joinpath(*value.__module__.split(".")[1:]).with_suffix(".pyx")
                source = "lambda *args, **keywords: function(*args, **keywords)"
                shown[id(value)] = eval(compile(source, str(file), "eval"), {"function": value})
            monkeypatch.setattr(module, name, shown[id(value)])


def upward(pairs, files):
    """Return the pairs whose second file does not stand below the first."""
    return sorted((upper, lower) for upper, lower in pairs if files.index(lower) <= files.index(upper))


@pytest.fixture
def product():
    if not rocpy.platform.current().host_memory:
        pytest.skip("arrays in CPU memory are copied to the device first")
    a, b = np.ones((4, 6), np.float32), np.ones((6, 5), np.float32)
    rocpy.matmul(a, b)  # opens the library and makes the tuner, which imports
    return lambda: rocpy.matmul(a, b)


@pytest.mark.parametrize("level", [logging.WARNING, logging.DEBUG])
def test_a_call_that_is_planned_enters_the_listed_files_downwards(product, caplog, level):
    caplog.set_level(level, "rocpy")
    rocpy.plan_cache.clear()
    entered, pairs = calls_between_files(product)
    files = listed()
    assert entered, "the call was not planned"
    assert entered <= set(files), f"not in the table: {sorted(entered - set(files))}"
    assert not upward(pairs, files)


def test_a_call_whose_plan_is_kept_enters_no_python_file(product, run_python):
    # In a process of its own: where options() or override() were ever used, each call asks them.
    run_python("""
        import sys
        import numpy as np
        import rocpy
        a, b = np.ones((4, 6), np.float32), np.ones((6, 5), np.float32)
        rocpy.matmul(a, b)
        rocpy.matmul(a, b)
        entered = []
        sys.setprofile(lambda frame, event, _: event == "call" and entered.append(frame.f_code.co_filename))
        rocpy.matmul(a, b)
        sys.setprofile(None)
        assert entered == [], entered
    """)


def test_settings_of_a_call_cost_no_more_than_those_around_it():
    a, b = np.ones((4, 6), np.float32), np.ones((6, 5), np.float32)
    options = rocpy.Options(copies="error")
    as_record = python_calls(lambda: rocpy.matmul(a, b, options=options))
    assert python_calls(lambda: rocpy.matmul(a, b, options={"copies": "error"})) < as_record + 15
    plain = python_calls(lambda: rocpy.matmul(a, b))
    assert python_calls(lambda: rocpy.matmul(a, b, autotune=False)) == plain


def executions(product):
    """Return how many functions of Python's executions enter, by the first algorithm, named in each way."""
    algorithms = product.plan()
    return [python_calls(lambda named=one: product.execute(algorithm=named)) for one in (None, 0, algorithms[0])]


@pytest.mark.parametrize("function", [lambda x, s: (x * s).clip(0, 3), lambda x, s: x + s], ids=["fused", "native"])
def test_an_execution_with_an_epilogue_enters_its_strategy_alone(function):
    if not rocpy.platform.current().host_memory:
        pytest.skip("arrays in CPU memory are copied to the device first")
    a, b, s = np.ones((4, 6), np.float32), np.ones((6, 5), np.float32), np.ones(5, np.float32)
    with rocpy.Matmul(a, b) as product:
        plain = executions(product)
    assert plain == plain[:1] * 3
    with rocpy.Matmul(a, b, epilogue=rocpy.epilogue(function), epilogue_inputs={"s": s}) as product:
        assert executions(product) == [count + 1 for count in plain]


@pytest.mark.parametrize("epilogue", [None, "relu_aux"])
def test_groups_of_lists_enter_no_python_file_each(epilogue):
    if not rocpy.platform.current().host_memory:
        pytest.skip("arrays in CPU memory are copied to the device first")
    if is_composed("float32", epilogue=epilogue or "default"):
        pytest.skip("this release has no such product")
    a, b = np.ones((4, 6), np.float32), np.ones((6, 5), np.float32)
    few, many = (
        python_calls(lambda count=count: rocpy.grouped_matmul([a] * count, [b] * count, epilogue=epilogue))
        for count in (4, 40)
    )
    assert many == few


def test_compiled_modules_name_only_what_stands_below():
    files, pairs = listed(), set()
    for file in files:
        if file.endswith(".pyx"):
            for cimported, package, name in CIMPORT.findall((ROOT / file).read_text(encoding="utf-8")):
                modules = [cimported] if cimported else [package, f"{package}.{name}"]
                names = [f"{module.replace('.', '/')}{end}" for module in modules for end in (".py", ".pyx")]
                pairs |= {(file, other) for other in names if other in files}
    assert pairs
    assert not upward(pairs, files)


def test_listed_files_exist_once():
    files = listed()
    assert len(files) == len(set(files)) > 10
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_a_call_upwards_is_found():
    assert upward({("a", "b"), ("b", "a")}, ["a", "b"]) == [("b", "a")]


# ---- other kinds of calls: the files that one enters have no circle ----


def elementwise(x, scale):
    return np.maximum(x * scale, 0) + np.exp(x)


def call_with_an_epilogue(a, b):
    rocpy.matmul(a, b, epilogue=rocpy.epilogue(elementwise), epilogue_inputs={"scale": 2.0})


def execute_with_an_epilogue(a, b):
    with rocpy.Matmul(a, b, epilogue=rocpy.epilogue(elementwise), epilogue_inputs={"scale": 2.0}) as product:
        product.execute()


def tune_on_first_use(a, b):
    rocpy.matmul(a, b, autotune=True)


def tune_a_product(a, b):
    with rocpy.Matmul(a, b) as product:
        product.autotune(5.0)


def tune_a_composed_product(a, b):
    with rocpy.Matmul(a, b, epilogue="silu") as product:
        product.autotune(5.0)


def tune_on_first_use_with_an_epilogue(a, b):
    epilogue = rocpy.epilogue(elementwise)
    rocpy.matmul(a, b, epilogue=epilogue, epilogue_inputs={"scale": 2.0}, autotune=True)


def tune_a_product_with_an_epilogue(a, b):
    with rocpy.Matmul(a, b, epilogue=rocpy.epilogue(elementwise), epilogue_inputs={"scale": 2.0}) as product:
        product.autotune(5.0)


def multiply_groups_in_arrays(a, b):
    rocpy.grouped_matmul(a, np.stack([b, b]), offsets=[0, 4, 8])


def multiply_groups_that_are_copied(a, b):
    rocpy.grouped_matmul(a[:, ::-1], np.stack([b, b]), offsets=[0, 4, 8], out=np.empty((16, 16), np.float32)[::2, ::2])


def files_of_a_first_call(call, a, b, tmp_path, monkeypatch):
    """Return the files and pairs of a call without a plan, with an empty database, after one that imports all."""
    before = _live.set_budget_ms(5.0)
    try:
        for number in range(2):
            monkeypatch.setattr(database, "_current", rocpy.tuning.Database([tmp_path / f"{number}.sqlite3"]))
            _tuning_state.changed()
            rocpy.plan_cache.clear()
            if number == 0:
                call(a, b)
        with monkeypatch.context() as shown:
            show_compiled_functions(shown)
            return calls_between_files(lambda: call(a, b))
    finally:
        _live.set_budget_ms(before)


@pytest.mark.parametrize(
    ("call", "enters"),
    [
        (call_with_an_epilogue, {"rocpy/epilogues/tracing/trace.py", "rocpy/blaslt/custom/call.pyx"}),
        (execute_with_an_epilogue, {"rocpy/epilogues/tracing/trace.py", "rocpy/blaslt/custom/plan.py"}),
        (tune_on_first_use, {"rocpy/blaslt/front/function.pyx", "rocpy/tuning/_trials.py"}),
        (tune_a_product, {"rocpy/blaslt/front/planned.py", "rocpy/tuning/_trials.py"}),
        (tune_a_composed_product, {"rocpy/blaslt/front/planned.py", "rocpy/tuning/_trials.py"}),
        (tune_on_first_use_with_an_epilogue, {"rocpy/blaslt/custom/plan.py", "rocpy/tuning/_trials.py"}),
        (tune_a_product_with_an_epilogue, {"rocpy/blaslt/custom/plan.py", "rocpy/tuning/_trials.py"}),
        (multiply_groups_in_arrays, {"rocpy/blaslt/grouped/function.pyx", *STAGES_GROUPS}),
        (
            multiply_groups_that_are_copied,
            {"rocpy/blaslt/grouped/function.pyx", "rocpy/blaslt/grouped/preparations.py"},
        ),
    ],
)
def test_the_files_that_a_first_call_enters_have_no_circle(call, enters, tmp_path, monkeypatch):
    a, b = np.ones((8, 16), np.float32), np.ones((16, 8), np.float32)
    entered, pairs = files_of_a_first_call(call, a, b, tmp_path, monkeypatch)
    assert entered >= enters
    assert not circles(pairs)


def elementwise_in_torch(x, scale):
    return (x * scale).relu() + x


def multiply(a, b):
    rocpy.matmul(a, b)


def multiply_and_activate(a, b):
    rocpy.matmul(a, b, epilogue="gelu")


def multiply_and_compose(a, b):
    rocpy.matmul(a, b, epilogue="silu_aux")


def multiply_with_an_epilogue(a, b):
    rocpy.matmul(a, b, epilogue=rocpy.epilogue(elementwise_in_torch), epilogue_inputs={"scale": 2.0})


def multiply_vectors_with_an_epilogue(a, b):
    rocpy.matmul(a[0], b, epilogue=rocpy.epilogue(elementwise_in_torch), epilogue_inputs={"scale": 2.0})


def multiply_lists(a, b):
    rocpy.grouped_matmul([a, a.detach()], [b, b])


def multiply_groups(a, b):
    rocpy.grouped_matmul(a, b.expand(2, *b.shape), offsets=[0, 4, 8])


@pytest.mark.parametrize(
    ("call", "enters"),
    [
        (multiply, "rocpy/blaslt/front/function.pyx"),
        (multiply_and_activate, "rocpy/blaslt/front/function.pyx"),
        (multiply_and_compose, "rocpy/blaslt/front/function.pyx"),
        (multiply_with_an_epilogue, "rocpy/blaslt/custom/call.pyx"),
        (multiply_vectors_with_an_epilogue, "rocpy/blaslt/front/function.pyx"),
        (multiply_lists, "rocpy/blaslt/grouped/function.pyx"),
        (multiply_groups, "rocpy/blaslt/grouped/_packed.pyx"),
    ],
)
def test_the_files_that_a_recorded_call_enters_have_no_circle(call, enters, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    a, b = torch.ones(8, 16, requires_grad=True), torch.ones(16, 8)
    entered, pairs = files_of_a_first_call(call, a, b, tmp_path, monkeypatch)
    assert entered >= {enters, "rocpy/torch/operators/dispatch.py", "rocpy/torch/operators/kernels.py"}
    assert not circles(pairs)


def test_a_circle_is_found():
    assert circles({("a", "b"), ("b", "c"), ("c", "b")}) == [("b", "c"), ("c", "b")]
