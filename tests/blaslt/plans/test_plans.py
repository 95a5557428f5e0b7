# SPDX-License-Identifier: MIT
"""Matmul: plan, execute, reset, close; that nothing of one plan leaks into the next; and misuse."""

from __future__ import annotations

import gc
import json
import sys
import threading
import warnings
import weakref

import numpy as np
import pytest

import rocpy
from rocpy.blaslt.model.problem import Problem
from rocpy.testing import Case, evaluate, make_operands
from rocpy.testing import cases as case_list
from rocpy.testing.runner import check_outputs, dtype_of, keywords, reference


@pytest.fixture
def operands(rng):
    a, b = rng.standard_normal((8, 12), dtype=np.float32), rng.standard_normal((12, 6), dtype=np.float32)
    return a, b, rng.standard_normal(6, dtype=np.float32)


def check(outputs, *args, dtype=np.float32, **options):
    for name, found in check_outputs(evaluate(*args, **options), outputs, dtype).items():
        assert found.ok, f"{name}: {found.message}"


def test_the_contract_example(operands):
    a, b, bias = operands
    with rocpy.Matmul(a, b, epilogue="gelu_bias", bias=bias) as mm:
        algorithms = mm.plan()
        check(mm.execute(), a, b, epilogue="gelu_bias", bias=bias)
        a2, b2 = 2 * a, b - 1
        mm.reset_operands(a=a2, b=b2)
        check(mm.execute(), a2, b2, epilogue="gelu_bias", bias=bias)
        check(mm.execute(algorithm=mm.algorithms[-1]), a2, b2, epilogue="gelu_bias", bias=bias)
        assert mm.algorithms == algorithms


@pytest.mark.parametrize("epilogue", case_list.EPILOGUES)
def test_every_epilogue_planned_equals_the_function_form(epilogue):
    case = Case(9, 14, 11, epilogue=epilogue, alpha=0.5, beta=-1.0)
    arrays = make_operands(case)
    positional = [arrays.pop(key) for key in ("a", "b", "c")]
    with rocpy.Matmul(*positional, **arrays, **keywords(case)) as mm:
        mm.plan()
        planned, called = mm.execute(), rocpy.matmul(*positional, **arrays, **keywords(case))
    if isinstance(planned, tuple):
        assert planned[1].keys() == called[1].keys()
        for key in planned[1]:
            np.testing.assert_array_equal(planned[1][key], called[1][key])
        planned, called = planned[0], called[0]
    np.testing.assert_array_equal(planned, called)


def test_execute_writes_into_out(operands):
    a, b, _ = operands
    with rocpy.Matmul(a, b) as mm:
        mm.plan()
        out = np.full((8, 6), np.nan, dtype=np.float32)
        assert mm.execute(out=out) is out
        check(out, a, b)
        shared = (a[:, :6],) if rocpy.platform.current().host_memory else ()  # else a was copied, and is free again
        for wrong in (np.empty((6, 8), dtype=np.float32), np.empty((8, 6), dtype=np.int32), *shared):
            with pytest.raises(rocpy.RocpyError, match="out"):
                mm.execute(out=wrong)
        strided = np.full((16, 12), np.nan, dtype=np.float32)[::2, ::2]
        try:
            mm.execute(out=strided)
        except rocpy.RocpyError:
            assert np.isnan(strided).all()
        else:
            check(strided, a, b)


def test_results_are_independent_arrays(operands):
    a, b, _ = operands
    with rocpy.Matmul(a, b) as mm:
        mm.plan()
        first = mm.execute()
        kept = first.copy()
        mm.reset_operands(a=-a)
        second = mm.execute()
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(second, -kept)


def test_execute_sees_values_that_changed_in_place(operands):
    a, b, bias = operands
    with rocpy.Matmul(a, b, epilogue="relu_bias", bias=bias) as mm:
        mm.plan()
        mm.execute()
        a += 1
        bias -= 1
        if not rocpy.platform.current().host_memory:  # operands in CPU memory are copied when they are given
            check(mm.execute(), a - 1, b, epilogue="relu_bias", bias=bias + 1)
            mm.reset_operands(a=a, bias=bias)
        check(mm.execute(), a, b, epilogue="relu_bias", bias=bias)


def test_operands_that_must_be_copied_are_read_at_execute(operands):
    a, b, _ = operands
    wide = np.repeat(a, 2, axis=1)
    with rocpy.Matmul(wide[:, ::2], b) as mm:
        mm.plan()
        check(mm.execute(), a, b)
        wide[:, ::2] = 3
        if not rocpy.platform.current().host_memory:  # operands in CPU memory are copied when they are given
            check(mm.execute(), a, b)
            mm.reset_operands(a=wide[:, ::2])
        check(mm.execute(), np.full_like(a, 3), b)


def test_execute_before_plan_is_refused_or_plans(operands):
    a, b, _ = operands
    with rocpy.Matmul(a, b) as mm:
        try:
            d = mm.execute()
        except rocpy.InvalidProblemError as error:
            assert "plan()" in str(error)  # noqa: PT017
        else:
            check(d, a, b)


# ---- what a plan leaves behind ----


def test_planning_again_gives_the_same_answer(operands):
    a, b, bias = operands
    with rocpy.Matmul(a, b, epilogue="relu_aux_bias", bias=bias) as mm:
        first = mm.plan()
        before = mm.execute()
        assert mm.plan() == first
        after = mm.execute()
    np.testing.assert_array_equal(before[0], after[0])
    check(after, a, b, epilogue="relu_aux_bias", bias=bias)


@pytest.mark.parametrize("first", case_list.EPILOGUES)
def test_no_epilogue_of_one_plan_reaches_the_next(first):
    case = Case(9, 14, 11, epilogue=first)
    arrays = make_operands(case)
    a, b = arrays.pop("a"), arrays.pop("b")
    with rocpy.Matmul(a, b, **arrays, **keywords(case)) as mm:
        mm.plan()
        mm.execute()
    for following in ("default", "bgradb", "gelu_bias"):
        other = Case(9, 14, 11, epilogue=following)
        extra = {key: value for key, value in make_operands(other).items() if key not in ("a", "b")}
        with rocpy.Matmul(a, b, **extra, **keywords(other)) as mm:
            mm.plan()
            check(mm.execute(), a, b, **extra, **keywords(other))
        check(rocpy.matmul(a, b, **extra, **keywords(other)), a, b, **extra, **keywords(other))


def test_arguments_of_the_user_are_not_modified(operands):
    a, b, bias = operands
    aux = {"gelu_aux": rocpy.matmul(a, b, epilogue="gelu_aux")[1]["gelu_aux"], "note": 1}
    options = {"copies": "allow"}
    clamp = [-1.0, 1.0]
    rocpy.matmul(a, b, epilogue="dgelu", aux=aux, options=options)
    rocpy.matmul(a, b, epilogue="clamp_bias", bias=bias, clamp=clamp)
    assert list(aux) == ["gelu_aux", "note"]
    assert options == {"copies": "allow"}
    assert clamp == [-1.0, 1.0]


# ---- reset ----


def test_reset_of_each_operand(rng):
    case = Case(8, 6, 12, epilogue="gelu_bias", alpha=2.0, beta=0.5)
    arrays = make_operands(case)
    a, b, c, bias = (arrays[key] for key in ("a", "b", "c", "bias"))
    with rocpy.Matmul(a, b, c, bias=bias, **keywords(case)) as mm:
        mm.plan()
        state = {"a": a, "b": b, "c": c, "bias": bias, "alpha": 2.0, "beta": 0.5}
        for name, old in list(state.items()):
            new = 1.25 if name in ("alpha", "beta") else rng.standard_normal(old.shape, dtype=np.float32)
            mm.reset_operands(**{name: new})
            state[name] = new
            rest = {key: value for key, value in state.items() if key not in ("a", "b", "c")}
            check(mm.execute(), state["a"], state["b"], state["c"], epilogue="gelu_bias", **rest)


def test_reset_of_aux(rng):
    case = Case(8, 6, 12, epilogue="dgelu_bgrad")
    arrays = make_operands(case)
    with rocpy.Matmul(arrays["a"], arrays["b"], epilogue="dgelu_bgrad", aux={"gelu_aux": arrays["aux"]}) as mm:
        mm.plan()
        aux = rng.standard_normal((8, 6), dtype=np.float32)
        mm.reset_operands(aux={"gelu_aux": aux})
        check(mm.execute(), arrays["a"], arrays["b"], epilogue="dgelu_bgrad", aux=aux)


@pytest.mark.parametrize(
    ("name", "new"),
    [
        ("a", np.ones((7, 12), dtype=np.float32)),
        ("a", np.ones((8, 12))),
        ("a", np.ones((1, 8, 12), dtype=np.float32)),
        ("b", np.ones((12, 7), dtype=np.float32)),
        ("bias", np.ones(7, dtype=np.float32)),
    ],
)
def test_reset_to_another_problem_shows_old_and_new(operands, name, new):
    a, b, bias = operands
    old = {"a": a, "b": b, "bias": bias}[name]
    with rocpy.Matmul(a, b, epilogue="relu_bias", bias=bias) as mm:
        mm.plan()
        with pytest.raises(rocpy.InvalidProblemError) as caught:
            mm.reset_operands(**{name: new})
        message = str(caught.value)
        assert message.startswith(name)
        for array in (old, new):
            assert str(array.shape) in message or str(array.dtype) in message
        check(mm.execute(), a, b, epilogue="relu_bias", bias=bias)


def test_reset_to_other_strides_is_right_or_refused(operands):
    a, b, _ = operands
    with rocpy.Matmul(a, b) as mm:
        mm.plan()
        turned = np.asfortranarray(a * 2)
        try:
            mm.reset_operands(a=turned)
        except rocpy.InvalidProblemError as error:
            assert "strides" in str(error)  # noqa: PT017
            turned = a
        check(mm.execute(), turned, b)


def test_reset_that_fails_changes_nothing(operands):
    a, b, _ = operands
    with rocpy.Matmul(a, b) as mm:
        mm.plan()
        for wrong in ({"a": 2 * a, "b": np.ones((3, 3), dtype=np.float32)}, {"a": 2 * a, "bias": b[0]}, {"b": "text"}):
            with pytest.raises(rocpy.RocpyError):
                mm.reset_operands(**wrong)
            check(mm.execute(), a, b)


def test_reset_of_nothing_or_of_the_unknown(operands):
    a, b, _ = operands
    with rocpy.Matmul(a, b) as mm:
        mm.plan()
        for arguments in ({"d": a}, {"epilogue": "relu"}):
            with pytest.raises((rocpy.InvalidProblemError, TypeError)):
                mm.reset_operands(**arguments)
        check(mm.execute(), a, b)


# ---- life cycle ----


def test_closed_means_closed(operands):
    a, b, _ = operands
    mm = rocpy.Matmul(a, b)
    mm.plan()
    mm.close()
    mm.close()
    for use in (mm.plan, mm.execute, lambda: mm.reset_operands(a=a), mm.__enter__):
        with pytest.raises(rocpy.ClosedError, match="closed"):
            use()


def test_close_releases_the_operands(operands):
    _, b, _ = operands

    class Owner(np.ndarray):
        pass

    a = Owner((8, 12), np.float32)
    a[...] = 1
    gone = weakref.ref(a)
    mm = rocpy.Matmul(np.asarray(a), b)
    mm.plan()
    mm.execute()
    del a
    gc.collect()
    assert (gone() is not None) == rocpy.platform.current().host_memory  # a copy on the device needs no original
    mm.close()
    gc.collect()
    assert gone() is None


def test_operands_live_as_long_as_the_plan(operands):
    _, b, _ = operands
    with rocpy.Matmul(np.full((8, 12), 2.0, dtype=np.float32), b) as mm:
        gc.collect()
        mm.plan()
        check(mm.execute(), np.full((8, 12), 2.0, dtype=np.float32), b)


def test_an_exception_in_the_block_closes(operands):
    a, b, _ = operands
    with pytest.raises(KeyError), rocpy.Matmul(a, b) as mm:
        raise KeyError
    with pytest.raises(rocpy.ClosedError):
        mm.plan()


def test_a_failed_constructor_leaves_nothing(operands):
    a, b, bias = operands
    before = [sys.getrefcount(item) for item in (a, b, bias)]
    for _ in range(50):
        with pytest.raises(rocpy.InvalidProblemError):
            rocpy.Matmul(a, b, epilogue="relu", bias=bias)
        with pytest.raises(rocpy.InvalidProblemError):
            rocpy.Matmul(a, b.T)
    gc.collect()
    assert [sys.getrefcount(item) for item in (a, b, bias)] == before


def test_dropping_a_plan_warns_of_nothing(operands):
    a, b, _ = operands
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20):
            rocpy.Matmul(a, b).plan()
        gc.collect()


def test_inputs_without_an_epilogue_that_takes_them_are_refused(operands):
    a, b, _ = operands
    for later in ({"epilogue_inputs": {}},):
        with pytest.raises(rocpy.InvalidProblemError, match=next(iter(later))):
            rocpy.matmul(a, b, **later)


# ---- the problem as data ----


@pytest.mark.parametrize("case", case_list.select("quick", dtype="bfloat16")[::17], ids=lambda case: case.name)
def test_problems_survive_json(case):
    arrays = make_operands(case)
    positional = [arrays.pop(key) for key in ("a", "b", "c") if key in arrays]
    with rocpy.Matmul(*positional, **arrays, **keywords(case)) as mm:
        problem = mm.problem
        assert Problem.from_json(problem.to_json()) == problem
        json.loads(problem.to_json())
        assert (problem.m, problem.n, problem.k) == (case.m, case.n, case.k)
        assert problem.flops == case.flops
        assert problem.bytes >= sum(array.nbytes for array in positional if array.base is None)
        for part in (case.epilogue, case.dtype, str(case.m), str(case.n), str(case.k)):
            assert part in str(problem)


def test_validation_needs_no_platform(run_python):
    code = """
        import sys
        from rocpy.blaslt.model.problem import OperandInfo, Problem
        from rocpy.errors import InvalidProblemError
        a = OperandInfo.dense((4, 5), "float32")
        try:
            Problem.make(a, a)
        except InvalidProblemError as error:
            assert "must be equal" in str(error), error
        else:
            sys.exit("accepted")
    """
    run_python(code, ROCPY_PLATFORM="amd")


# ---- threads ----


def test_different_plans_run_in_parallel(operands):
    a, b, _ = operands
    failures = []

    def work(scale):
        try:
            with rocpy.Matmul(scale * a, b) as mm:
                mm.plan()
                for _ in range(200):
                    check(mm.execute(), scale * a, b)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(np.float32(i + 1),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_one_plan_moves_between_threads(operands):
    a, b, _ = operands
    results = []
    with rocpy.Matmul(a, b) as mm:
        mm.plan()
        thread = threading.Thread(target=lambda: results.append(mm.execute()))
        thread.start()
        thread.join()
        check(results[0], a, b)
        check(mm.execute(), a, b)


def test_two_threads_in_one_plan_are_told_or_served(rng):
    a = rng.standard_normal((300, 300), dtype=np.float32)
    outcomes = []
    start = threading.Barrier(2)
    with rocpy.Matmul(a, a) as mm:
        mm.plan()
        expected = mm.execute()

        def work():
            start.wait()
            for _ in range(30):
                try:
                    outcomes.append(np.array_equal(mm.execute(), expected))
                except rocpy.RocpyError as error:
                    outcomes.append("thread" in str(error))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(outcomes) == 60
    assert all(outcomes)


def test_every_dtype_is_planned():
    for name in case_list.DTYPES:
        case = Case(33, 17, 65, name, epilogue="gelu_aux_bias")
        arrays = make_operands(case)
        with rocpy.Matmul(arrays["a"], arrays["b"], epilogue=case.epilogue, bias=arrays["bias"]) as mm:
            mm.plan()
            found = check_outputs(reference(case, arrays), mm.execute(), dtype_of(name))
            assert all(item.ok for item in found.values()), found


def test_a_matmul_whose_constructor_failed_is_closed():
    class Product(rocpy.Matmul):
        def __init__(self):
            with pytest.raises(rocpy.InvalidProblemError):
                super().__init__(np.ones((2, 3)), np.ones((4, 5)))

    mm = Product()
    assert repr(mm) == "<rocpy.Matmul, closed>"
    mm.close()
    for use in (mm.plan, mm.execute, mm.export, mm.__enter__, lambda: mm.problem):
        with pytest.raises(rocpy.ClosedError):
            use()


def test_products_of_every_kind_have_the_same_class():
    a = np.ones((4, 4), np.float32)
    double = rocpy.epilogue(lambda x, factor: x * factor)
    with rocpy.Matmul(a, a) as plain, rocpy.Matmul(a, a, epilogue=double, epilogue_inputs={"factor": 2.0}) as custom:
        assert type(plain) is type(custom) is rocpy.Matmul
        custom.reset_operands(epilogue_inputs={"factor": 3.0})
        np.testing.assert_array_equal(custom.execute(), 3 * plain.execute())
        with pytest.raises(rocpy.InvalidProblemError, match="epilogue_inputs: only custom epilogues"):
            plain.reset_operands(epilogue_inputs={"factor": 3.0})


@pytest.mark.parametrize("kind", ["native", "composed", "custom", "custom, composed"])
def test_a_closed_matmul_still_says_what_it_was_told(kind, request):
    a = np.ones((4, 4), np.float32)
    arguments = {}
    if kind == "composed":
        request.getfixturevalue("without_programs")
        arguments["epilogue"] = "gelu_erf"
    elif kind != "native":
        wide = "float64" if kind == "custom, composed" else "float32"
        arguments = {"epilogue": rocpy.epilogue(lambda x, r: x * 2 + r.astype(wide)), "epilogue_inputs": {"r": a}}
    names = (
        "problem",
        "algorithms",
        "algorithm",
        "choice",
        "device_name",
        "copies",
        "staged",
        "packed",
        "options",
        "stream",
    )
    with rocpy.Matmul(a, a, **arguments) as mm:
        mm.plan()
        before = {name: getattr(mm, name) for name in names}
        assert before["choice"][0] is not None
        composed = mm.unfused is not None
    assert {name: getattr(mm, name) for name in names} == before
    assert (mm.unfused is not None) == composed == (kind == "composed")
    for use in (mm.plan, mm.execute, mm.autotune, mm.reset_operands, lambda: mm.pin(0)):
        with pytest.raises(rocpy.ClosedError):
            use()
