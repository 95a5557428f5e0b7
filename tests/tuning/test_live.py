# SPDX-License-Identifier: MIT
"""Tuning of live products: method, function form, switches and environment; records used, stale and refused."""

import dataclasses
import json
import os
import re
import threading
import warnings

import numpy as np
import pytest
from several_algorithms import candidates

import rocpy
from rocpy._messages.distribution import install_command
from rocpy.blaslt.front.planned import planned_product
from rocpy.blaslt.selection import tuning_state as _tuning_state
from rocpy.errors import InvalidProblemError, RocpyWarning, UnsupportedError
from rocpy.tuning import Database, _live, database


@pytest.fixture(autouse=True)
def own_database(tmp_path, monkeypatch, fresh_plan_cache):
    """A database of the test's own, and the process's mode as it was."""
    base = Database([tmp_path / "tuning.sqlite3"])
    monkeypatch.setattr(database, "_current", base)
    monkeypatch.setattr(_live, "_clock", Clock())  # a budget is a number of trials then, however busy the machine is
    before = _tuning_state.process_mode()
    _tuning_state.changed()
    yield base
    _tuning_state.set_process_mode(before)


def operands(m=24, n=40, k=32, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)


def favour(place, gain=2.0):
    """Return a measurer for which one place of the heuristic's list is faster than all others."""
    return lambda candidate: (1.0 / gain, 1.0 / gain) if candidate == place else (1.0, 1.0)


class Clock:
    """Moves by a tenth of a millisecond whenever it is read."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1e-4
        return self.now


def tuned(a, b, place, **more):
    """Tune a product so that a place of the heuristic's list wins; returns the report."""
    with planned_product(a, b, **more) as product:
        candidates(product, place + 1)
        return _live.tune(product, budget_ms=1e4, measure=favour(place), clock=Clock())


def test_the_method_measures_reorders_and_stores(own_database):
    a, b = operands(64, 256, 128)
    with rocpy.Matmul(a, b) as product:
        foreseen = product.plan()
        report = product.autotune(budget_ms=60)
        assert sorted(x.id for x in product.algorithms) == sorted(x.id for x in foreseen)
        assert product.algorithms[0] == report.best
        assert product.algorithms[0].elapsed_ms > 0
        assert product.choice == (report.best, "tuned")
        np.testing.assert_allclose(product.execute(), a @ b, atol=1e-3)
        for algorithm in product.algorithms:
            np.testing.assert_allclose(product.execute(algorithm=algorithm), a @ b, atol=1e-3)
    assert len(own_database.records()) == 1
    found = own_database.records()[0]
    assert (found.solution, found.kernel) == (report.best.id, report.best.name)
    assert report.stored == str(own_database.path)
    assert rocpy.explain(a, b).source == "tuned"


def test_a_made_up_winner_is_taken_by_every_form(own_database):
    a, b = operands(200, 300, 250)
    assert rocpy.explain(a, b).source == "heuristic"
    before = rocpy.matmul(a, b)
    report = tuned(a, b, 2)
    assert report.best.rank == 2
    assert report.gain == pytest.approx(2.0)
    how = rocpy.explain(a, b)
    assert (how.source, how.algorithm.id, how.algorithm.elapsed_ms) == ("tuned", report.best.id, 0.5)
    assert "tuned, 0.5 ms" in str(how)
    with rocpy.Matmul(a, b) as product:
        assert product.plan()[0].id == report.best.id
        forced = product.execute(algorithm=product.algorithms[0])
        assert np.array_equal(product.execute(), forced)
    assert np.array_equal(rocpy.matmul(a, b), forced), "a plan kept from before the tuning is chosen again"
    np.testing.assert_allclose(before, forced, atol=1e-3)


def test_the_bits_of_an_algorithm_do_not_depend_on_tuning():
    a, b = operands(65, 130, 257)
    with rocpy.Matmul(a, b) as product:
        before = {x.id: product.execute(algorithm=x) for x in product.plan()}
        product.autotune(budget_ms=40)
        for x in product.algorithms:
            assert np.array_equal(product.execute(algorithm=x), before[x.id])


def test_reproducible_ignores_what_was_measured():
    a, b = operands(200, 300, 250)
    tuned(a, b, 1)
    assert rocpy.explain(a, b).source == "tuned"
    assert rocpy.explain(a, b, options={"reproducible": True}).source != "tuned"
    with rocpy.tuning.enable(budget_ms=20):
        rocpy.matmul(a, b, options={"reproducible": True})
        assert rocpy.explain(a, b, options={"reproducible": True}).source != "tuned"
    with (
        rocpy.Matmul(a, b, options={"reproducible": "batch"}) as product,
        pytest.raises(UnsupportedError, match="guarantees bitwise results"),
    ):
        product.autotune()


def test_the_function_form_tunes_when_it_is_told_to(own_database):
    a, b = operands()
    rocpy.matmul(a, b)
    assert own_database.is_empty()
    np.testing.assert_allclose(rocpy.matmul(a, b, autotune=True), a @ b, atol=1e-4)
    assert len(own_database.records()) == 1
    first = own_database.records()[0]
    rocpy.matmul(a, b, autotune=True)
    assert own_database.records() == [first], "measured once"
    assert rocpy.explain(a, b).source == "tuned"


def test_autotune_false_neither_measures_nor_uses(own_database):
    a, b = operands(200, 300, 250)
    tuned(a, b, 1)
    mark = own_database.records()
    with rocpy.tuning.enable(budget_ms=20):
        rocpy.matmul(a, b, autotune=False)
        rocpy.matmul(a[:50], b, autotune=False)
    assert own_database.records() == mark


@pytest.mark.parametrize("wrong", ["yes", 1, 0])
def test_autotune_takes_truth_values_alone(wrong):
    with pytest.raises(InvalidProblemError, match="autotune: "):
        rocpy.matmul(*operands(), autotune=wrong)


def test_enable_and_disable_as_contexts_and_as_statements(own_database):
    a, b = operands()
    with rocpy.tuning.enable(budget_ms=20):
        rocpy.matmul(a, b)
        assert len(own_database.records()) == 1
        with rocpy.tuning.disable():
            rocpy.matmul(a[:5], b)
            assert rocpy.explain(a, b).source == "heuristic"
            assert len(own_database.records()) == 1
        rocpy.matmul(a[:5], b)
        assert len(own_database.records()) == 2
    rocpy.matmul(a[:6], b)
    assert len(own_database.records()) == 2
    rocpy.tuning.enable(budget_ms=20)
    rocpy.matmul(a[:6], b)
    assert len(own_database.records()) == 3
    rocpy.tuning.disable()
    rocpy.matmul(a[:7], b)
    assert len(own_database.records()) == 3


@pytest.mark.parametrize("budget_ms", [0, -1, "200", None, True, float("nan"), np.float32(-1), 10**400])
def test_a_budget_is_a_number_above_zero(budget_ms):
    with pytest.raises(InvalidProblemError, match="budget_ms: "):
        rocpy.tuning.enable(budget_ms=budget_ms)
    with rocpy.Matmul(*operands()) as product, pytest.raises(InvalidProblemError, match="budget_ms: "):
        product.autotune(budget_ms)


def test_out_and_c_are_not_touched_by_trials():
    a, b = operands()
    c = np.random.default_rng(5).standard_normal((24, 40)).astype(np.float32)
    kept = c.copy()
    with rocpy.Matmul(a, b, c, beta=0.5) as product:
        product.autotune(budget_ms=20)
    assert np.array_equal(c, kept)
    in_place = c.copy()
    assert rocpy.matmul(a, b, in_place, beta=0.5, out=in_place, autotune=True) is in_place
    np.testing.assert_allclose(in_place, a @ b + 0.5 * kept, atol=1e-4)


@pytest.mark.parametrize(
    ("epilogue", "more"),
    [
        ("gelu_bias", {"bias": np.ones(40, np.float32)}),
        ("gelu_aux_bias", {"bias": np.ones(40, np.float32)}),
        ("dgelu_bgrad", {"aux": np.ones((24, 40), np.float32)}),
        ("clamp", {"clamp": (-1.0, 1.0)}),
        ("bgradb", {}),
    ],
)
def test_epilogues_are_tuned_as_problems_of_their_own(own_database, epilogue, more):
    a, b = operands()
    rocpy.matmul(a, b, autotune=True)
    rocpy.matmul(a, b, epilogue=epilogue, autotune=True, **more)
    # Where the epilogue is composed, it begins with the plain product, which has its record.
    composed = rocpy.explain(a, b, epilogue=epilogue, **more).algorithm.lowering == "unfused"
    assert len(own_database.records()) == (1 if composed else 2)
    assert rocpy.explain(a, b, epilogue=epilogue, **more).source == "tuned"


def test_weights_layouts_and_batches_are_problems_of_their_own(own_database):
    a, b = operands()
    weight = rocpy.Weight(b)
    products = [
        lambda: rocpy.matmul(a, b),
        # What is not packed is an operand as any other.
        *([lambda: rocpy.matmul(a, weight)] if weight.packed else []),
        # Copies on a device with memory of its own are as dense as any others.
        *(
            [
                lambda: rocpy.matmul(a, np.asfortranarray(b)),
                lambda: rocpy.matmul(a, np.zeros((32, 50), np.float32)[:, :40]),
            ]
            if rocpy.platform.current().host_memory
            else []
        ),
        lambda: rocpy.matmul(np.stack([a, a]), np.stack([b, b])),
        lambda: rocpy.matmul(a, b, options={"max_workspace_bytes": 1 << 20}),
        lambda: rocpy.matmul(a, b, np.ones((24, 40), np.float32)),
    ]
    with rocpy.tuning.enable(budget_ms=20):
        for count, product in enumerate(products, 1):
            product()
            assert len(own_database.records()) == count
        for product in products:
            product()
        assert len(own_database.records()) == len(products)


def test_operands_that_are_copied_are_tuned_as_their_copies(own_database):
    a, b = operands()
    spread = np.zeros((48, 64), np.float32)[::2, ::2]
    spread[:] = a
    with rocpy.tuning.enable(budget_ms=20):
        np.testing.assert_allclose(rocpy.matmul(spread, b), a @ b, atol=1e-4)
    assert len(own_database.records()) == 1
    with rocpy.Matmul(spread, b) as product:
        product.plan()
        assert product.choice[1] == "tuned"
        product.autotune(budget_ms=20)
        np.testing.assert_allclose(product.execute(), a @ b, atol=1e-4)
    assert len(own_database.records()) == 1


def test_nothing_to_compute_is_not_tuned(own_database):
    with rocpy.tuning.enable(budget_ms=20):
        assert rocpy.matmul(np.ones((0, 3)), np.ones((3, 4))).shape == (0, 4)
        assert rocpy.matmul(np.ones((2, 0)), np.ones((0, 4))).tolist() == [[0.0] * 4] * 2
    assert own_database.is_empty()
    with rocpy.Matmul(np.ones((0, 3)), np.ones((3, 4))) as product, pytest.raises(InvalidProblemError, match="nothing"):
        product.autotune()


def change(base, **values):
    old = base.records()[0]
    base.clear()
    base.store(dataclasses.replace(old, date=old.date + 1, **values))
    _tuning_state.changed()


@pytest.mark.parametrize("stale", [{"kernel": "gone"}, {"solution": 99999}])
def test_a_stale_record_is_ignored_and_measured_again(own_database, stale):
    a, b = operands(200, 300, 250)
    best = tuned(a, b, 1).best
    change(own_database, **stale)
    assert rocpy.explain(a, b).source == "heuristic"
    np.testing.assert_allclose(rocpy.matmul(a, b), a @ b, atol=1e-3)
    with rocpy.tuning.enable(budget_ms=60):
        rocpy.matmul(a, b)
    assert rocpy.explain(a, b).source == "tuned"
    found = own_database.records()[0]
    assert found.kernel != "gone"
    assert found.solution != 99999
    assert best.name


@pytest.mark.parametrize(
    "field", ["schema", "hipblaslt", "revision", "hip", "arch", "compute_units", "device", "platform", "environment"]
)
def test_a_record_of_another_environment_is_not_used(own_database, field):
    a, b = operands()
    tuned(a, b, 1)
    scope = json.loads(own_database.records()[0].scope)
    scope[field] = {"HIPBLASLT_JIT": "1"} if field == "environment" else "another"
    change(own_database, scope=json.dumps(scope, sort_keys=True, separators=(",", ":")))
    assert rocpy.explain(a, b).source == "heuristic"


@pytest.mark.parametrize("variable", ["HIPBLASLT_TUNING_OVERRIDE_FILE", "HIPBLASLT_TUNING_MODE"])
def test_where_the_library_tunes_itself_rocpy_refuses(own_database, monkeypatch, variable):
    monkeypatch.setenv(variable, "tune")
    monkeypatch.setattr(_live, "_warned_of", set())
    a, b = operands()
    with rocpy.Matmul(a, b) as product, pytest.raises(UnsupportedError, match=f"{variable} is set.*unset it"):
        product.autotune()
    with rocpy.tuning.enable(), pytest.warns(RocpyWarning, match=variable):
        rocpy.matmul(a[:3], b)
    with rocpy.tuning.enable(), warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        rocpy.matmul(a[:4], b)
    assert own_database.is_empty()


def test_a_tuning_mode_of_off_is_no_reason_to_refuse(monkeypatch):
    monkeypatch.setenv("HIPBLASLT_TUNING_MODE", "off")
    with rocpy.Matmul(*operands()) as product:
        assert product.autotune(budget_ms=20).trials


def test_too_small_a_budget_decides_and_stores_nothing(own_database):
    with planned_product(*operands()) as product:
        report = _live.tune(product, budget_ms=1e-3, clock=Clock())
        assert not report.decided
        assert report.best.rank == 0
        assert product.choice[1] == "heuristic"
    assert own_database.is_empty()


def test_tuning_that_fails_leaves_the_product_to_the_heuristic(own_database, monkeypatch):
    def broken(*_, **__):
        raise UnsupportedError("no events here")

    monkeypatch.setattr(_live, "trials", broken)
    a, b = operands()
    with rocpy.tuning.enable(), pytest.warns(RocpyWarning, match="no events here"):
        np.testing.assert_allclose(rocpy.matmul(a, b), a @ b, atol=1e-4)


def test_nothing_is_measured_under_capture(own_database, monkeypatch):
    monkeypatch.setattr(_live, "is_capturing", lambda _: True)
    a, b = operands()
    with rocpy.Matmul(a, b) as product, pytest.raises(UnsupportedError, match="before the capture"):
        product.autotune()
    with rocpy.tuning.enable():
        rocpy.matmul(a, b)
    assert own_database.is_empty()


def test_on_a_stream_of_the_users(own_database):
    a, b = operands()
    with rocpy.Stream() as stream, rocpy.Matmul(a, b, stream=stream) as product:
        product.autotune(budget_ms=20)
        result = product.execute()
        stream.synchronize()
    np.testing.assert_allclose(result, a @ b, atol=1e-4)


@pytest.mark.torch
def test_torch_operands(own_database, torch):
    a, b = (torch.from_numpy(x) for x in operands())
    with rocpy.tuning.enable(budget_ms=20):
        result = rocpy.matmul(a, b, epilogue="relu")
    torch.testing.assert_close(result, torch.relu(a @ b), atol=1e-4, rtol=1e-4)
    assert rocpy.explain(a, b, epilogue="relu").source == "tuned"


def test_many_threads_measure_a_problem_once(own_database, monkeypatch):
    count = 0
    conclude = _live._conclude

    def counted(*arguments):
        nonlocal count
        count += 1
        return conclude(*arguments)

    monkeypatch.setattr(_live, "_conclude", counted)
    a, b = operands()
    errors = []

    def work(thread):
        try:
            for rows in (24, 20, 16):
                np.testing.assert_allclose(rocpy.matmul(a[:rows], b), (a @ b)[:rows], atol=1e-4)
        except Exception as error:
            errors.append(error)

    with rocpy.tuning.enable(budget_ms=20):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []
    assert count == 3
    assert len(own_database.records()) == 3


FIRST = """
import numpy as np, rocpy
from rocpy.tuning import _live
_live.set_budget_ms(20000)
a, b = np.ones((64, 128), np.float32), np.ones((128, 96), np.float32)
assert rocpy.matmul(a, b)[0, 0] == 128
how = rocpy.explain(a, b)
print(how.source, how.algorithm.id, how.algorithm.elapsed_ms is not None)
"""

SECOND = f"""
from rocpy.tuning import _race
def never(*_, **__):
    raise SystemExit("measured again")
_race.race = never
{FIRST}
"""


def test_a_second_process_starts_tuned_and_measures_nothing(run_python, tmp_path):
    path = str(tmp_path / "shared.sqlite3")
    first = run_python(FIRST, ROCPY_TUNING_DB=path, ROCPY_AUTOTUNE="1").stdout.split()
    assert first[0] == "tuned"
    second = run_python(SECOND, ROCPY_TUNING_DB=path, ROCPY_AUTOTUNE="1").stdout.split()
    assert second == first
    third = run_python(SECOND, ROCPY_TUNING_DB=path).stdout.split()
    assert third == first
    off = run_python(SECOND, ROCPY_TUNING_DB=path, ROCPY_AUTOTUNE="0").stdout.split()
    assert off[0] == "heuristic"


@pytest.mark.skipif(not rocpy.platform.current().is_emulated, reason="only the host platform has instruction sets")
@pytest.mark.parametrize("variable", [{"ROCPY_HOST_ISA": "baseline"}, {"ROCPY_NUM_THREADS": "1"}])
def test_another_instruction_set_or_number_of_threads_is_another_environment(run_python, tmp_path, variable):
    path = str(tmp_path / "shared.sqlite3")
    usual = {"ROCPY_TUNING_DB": path, "ROCPY_NUM_THREADS": "2"}
    run_python(FIRST, ROCPY_AUTOTUNE="1", **usual)
    assert run_python(SECOND, **usual).stdout.split()[0] == "tuned"
    assert run_python(SECOND, **{**usual, **variable}).stdout.split()[0] == "heuristic"


def test_a_wrong_autotune_variable_is_told(run_python):
    done = run_python(
        "import numpy, rocpy; rocpy.matmul(numpy.ones((2, 2)), numpy.ones((2, 2)))", ROCPY_AUTOTUNE="yes", check=False
    )
    assert "ROCPY_AUTOTUNE: got 'yes', expected 0, 1 or empty" in done.stderr


def test_the_staged_operands_of_a_platform_with_its_own_memory(run_python, tmp_path):
    program = """
    import numpy as np, rocpy
    a, b = np.ones((64, 128), np.float32), np.ones((128, 96), np.float32)
    with rocpy.Matmul(a, b) as product:
        report = product.autotune(budget_ms=20000)
        assert product.execute()[0, 0] == 128
        assert type(product.execute()) is np.ndarray
    with rocpy.tuning.enable(budget_ms=20000):
        assert rocpy.matmul(a[:32], b)[0, 0] == 128
    print(len(rocpy.tuning.current().records()), rocpy.explain(a, b).source, rocpy.explain(a[:32], b).source)
    """
    done = run_python(program, ROCPY_HOST_STAGING="1", ROCPY_TUNING_DB=str(tmp_path / "t.sqlite3"))
    assert done.stdout.split() == ["2", "tuned", "tuned"]


def test_the_report(tmp_path):
    report = tuned(*operands(200, 300, 250), 1)
    lines = str(report).splitlines()
    assert lines[2].startswith("*")
    assert report.best.name in lines[2]
    assert "(heuristic)" in str(report)
    assert "2.00 times" in lines[-1]
    document = json.loads(json.dumps(report.to_dict()))
    assert document["trials"][0]["algorithm"]["id"] == report.best.id
    assert document["gain"] == pytest.approx(2.0)


def test_the_plot_of_a_report(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `plot` is not installed")
    report = tuned(*operands(200, 300, 250), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        report.plot(tmp_path / "times.png")
        axes = report.plot().axes[0]
    assert axes.get_xscale() == "linear"
    assert axes.get_xlim()[0] == 0
    assert [label.get_text().startswith("* ") for label in axes.get_yticklabels()][:2] == [True, False]
    assert (tmp_path / "times.png").stat().st_size > 1000


def test_plot_without_matplotlib_says_what_to_install(monkeypatch):
    report = tuned(*operands(), 0)
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match=re.escape(install_command("plot"))):
        report.plot()


def test_the_databases_file_is_the_variables(monkeypatch, tmp_path):
    monkeypatch.setattr(database, "_current", None)
    monkeypatch.setenv("ROCPY_TUNING_DB", os.fspath(tmp_path / "x.sqlite3"))
    assert rocpy.tuning.current().path == tmp_path / "x.sqlite3"
