# SPDX-License-Identifier: MIT
"""Algorithms as records: named, pinned, exported, loaded elsewhere, refused where they do not hold."""

from __future__ import annotations

import dataclasses
import json
import types

import numpy as np
import pytest

import rocpy
from rocpy.blaslt import Algorithm


@pytest.fixture
def a(rng):
    return rng.standard_normal((64, 64), dtype=np.float32)


@pytest.fixture
def mm(a):
    with rocpy.Matmul(a, a) as made:
        yield made


def test_each_algorithm_is_plain_data(mm):
    for place, algorithm in enumerate(mm.plan()):
        assert algorithm.rank == place
        assert algorithm.source == "heuristic"
        assert algorithm.library.startswith("hipblaslt ")
        assert algorithm.arch == rocpy.Device().arch
        assert json.loads(algorithm.to_json()) == algorithm.to_dict()
        assert Algorithm.from_dict(algorithm.to_dict()) == Algorithm.from_json(algorithm.to_json()) == algorithm
        assert algorithm.name in str(algorithm)


def test_a_measured_time_is_shown_and_survives():
    algorithm = Algorithm(1, "k", 0, 0.0, elapsed_ms=0.25, source="tuned")
    assert "0.25 ms" in str(algorithm)
    assert Algorithm.from_json(algorithm.to_json()) == algorithm


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"id": "7"}, "id"),
        ({"id": True}, "id"),
        ({"name": None}, "name"),
        ({"elapsed_ms": "fast"}, "elapsed_ms"),
        ({"workspace_bytes": 1.5}, "workspace_bytes"),
        ({"format": 2}, "format 2"),
        ({"tile": 3}, "tile"),
    ],
)
def test_a_wrong_record_is_refused_by_field(mm, change, named):
    record = mm.plan()[0].to_dict()
    with pytest.raises(rocpy.InvalidProblemError, match=named):
        Algorithm.from_dict({**record, **change})


def test_an_incomplete_record_is_refused(mm):
    record = mm.plan()[0].to_dict()
    for name in ("id", "name", "workspace_bytes", "waves", "library", "arch", "format"):
        with pytest.raises(rocpy.InvalidProblemError, match=name):
            Algorithm.from_dict({key: value for key, value in record.items() if key != name})
    for wrong in ([], "text", None):
        with pytest.raises(rocpy.InvalidProblemError, match="record"):
            Algorithm.from_dict(wrong)
    with pytest.raises(rocpy.InvalidProblemError, match="JSON"):
        Algorithm.from_json("{")


# ---- choosing ----


def test_execute_takes_an_algorithm_by_each_of_its_names(mm):
    for place, algorithm in enumerate(mm.plan()):
        expected = mm.execute(algorithm=algorithm)
        for given in (place, algorithm.name, algorithm.to_dict(), dataclasses.replace(algorithm, elapsed_ms=1.0)):
            np.testing.assert_array_equal(mm.execute(algorithm=given), expected)


@pytest.mark.parametrize("wrong", [-1, 10**9, "no such kernel", 1.5, True, object(), {"format": 1}])
def test_a_wrong_name_is_refused(mm, wrong):
    mm.plan()
    for use in (lambda: mm.execute(algorithm=wrong), lambda: mm.pin(wrong), lambda: mm.plan(algorithms=[wrong])):
        with pytest.raises(rocpy.InvalidProblemError, match="algorithm"):
            use()
    assert mm.execute().shape == (64, 64)


def test_the_text_of_a_record_is_refused_with_what_reads_it(a, mm):
    text = json.dumps(mm.export())
    for use in (lambda: mm.pin(text), lambda: rocpy.matmul(a, a, algorithm=text)):
        with pytest.raises(rocpy.InvalidProblemError, match=r"JSON text.*json\.loads\(text\)") as refused:
            use()
        assert len(str(refused.value)) < 100


def test_pin_holds_until_the_next_plan(mm):
    found = mm.plan()
    pinned = mm.pin(found[-1])
    assert pinned.source == "pinned"
    assert mm.algorithm == pinned
    assert mm.choice == (pinned, "pinned")
    np.testing.assert_array_equal(mm.execute(), mm.execute(algorithm=found[-1]))
    assert [one.id for one in mm.algorithms] == [one.id for one in found]
    mm.plan()
    assert mm.algorithm == found[0]


def test_pin_plans_first(mm):
    assert mm.algorithm is None
    assert mm.algorithms == []
    assert mm.pin(0).source == "pinned"
    assert mm.algorithms


def test_plan_with_algorithms_has_those_in_their_order(mm):
    found = mm.plan()
    wanted = [found[-1], found[0].name, found[-1].to_dict()]
    only = mm.plan(algorithms=wanted)
    assert [one.id for one in only] == [found[-1].id, found[0].id]
    assert mm.algorithm.id == found[-1].id
    np.testing.assert_array_equal(mm.execute(), mm.execute(algorithm=0))
    assert len(mm.plan()) == len(found)


@pytest.mark.parametrize("wrong", ["name", 3, [], {"id": 1}, iter(())])
def test_a_list_of_algorithms_is_a_list(mm, wrong):
    with pytest.raises(rocpy.InvalidProblemError, match="algorithms"):
        mm.plan(algorithms=wrong)


def test_an_algorithm_beyond_those_asked_for_is_found(mm):
    last = mm.plan()[-1]
    assert len(mm.plan(max_algorithms=1)) == 1
    np.testing.assert_array_equal(mm.execute(algorithm=last), mm.execute(algorithm=last.name))
    # What was chosen before stays so.
    assert mm.algorithm.rank == 0
    mm.plan(max_algorithms=1)
    assert mm.pin(last).id == last.id
    assert mm.algorithm.id == last.id


def test_more_algorithms_than_there_are_is_all(mm):
    every = len(mm.plan(max_algorithms=2**14))
    for count in (2**31 - 1, 2**31, 2**40):
        assert len(mm.plan(max_algorithms=count)) == every


# ---- where a record holds ----


@pytest.mark.parametrize("change", [{"library": "hipblaslt 0.6.0"}, {"arch": "gfx942"}])
def test_a_foreign_record_is_refused_with_both_places(a, mm, change):
    foreign = dataclasses.replace(mm.plan()[0], **change)
    for use in (
        lambda: mm.execute(algorithm=foreign),
        lambda: mm.pin(foreign.to_dict()),
        lambda: mm.plan(algorithms=[foreign]),
        lambda: rocpy.matmul(a, a, algorithm=foreign),
    ):
        with pytest.raises(rocpy.InvalidProblemError) as caught:
            use()
        assert next(iter(change.values())) in str(caught.value)
        assert rocpy.Device().arch in str(caught.value)


def test_a_record_without_a_place_is_taken_by_id_and_name(mm):
    found = mm.plan()[-1]
    assert mm.pin(Algorithm(found.id, found.name, 0, 0.0)).id == found.id
    with pytest.raises(rocpy.InvalidProblemError, match="not one of this product's"):
        mm.pin(Algorithm(found.id, "another name", 0, 0.0))


def test_an_export_is_of_its_problem(a, mm):
    record = mm.export()
    json.dumps(record)
    with rocpy.Matmul(a, a[:, :63]) as other, pytest.raises(rocpy.InvalidProblemError, match=r"64 x 63"):
        other.pin(record)
    if rocpy.platform.current().host_memory:  # else it is copied, and is as dense as a
        with rocpy.Matmul(a.T, a) as other, pytest.raises(rocpy.InvalidProblemError, match="strides"):
            other.pin(record)
    with pytest.raises(rocpy.InvalidProblemError, match="relu"):
        rocpy.matmul(a, a, epilogue="relu", algorithm=record)
    with rocpy.Matmul(-a, a) as same:
        assert same.pin(record).id == record["algorithm"]["id"]


@pytest.fixture(params=["native", "custom"])
def exporting(a, request):
    epilogue = rocpy.epilogue(lambda y: y * 2 + 1) if request.param == "custom" else None
    with rocpy.Matmul(a, a, epilogue=epilogue) as made:
        yield made, lambda record: rocpy.matmul(a, a, epilogue=epilogue, algorithm=record)


@pytest.mark.parametrize("mapping", [dict, types.MappingProxyType])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format 2; this rocpy reads format 1"),
        ({"format": 2, "problem": {"of": "another format"}}, "format 2"),
        ({"format": None}, "format None"),
        ({"problem": None}, "problem"),
        ({"problem": {}}, "problem"),
        ({"problem": "text"}, "problem"),
    ],
)
def test_an_export_that_is_none_is_refused(exporting, mapping, change, message):
    mm, function = exporting
    record = mm.export()
    broken = mapping({**record, **change})
    for use in (
        lambda: mm.pin(broken),
        lambda: mm.plan(algorithms=[broken]),
        lambda: mm.execute(algorithm=broken),
        lambda: function(broken),
    ):
        with pytest.raises(rocpy.InvalidProblemError, match=message):
            use()
    mm.plan(algorithms=[mapping(record)])
    np.testing.assert_array_equal(mm.execute(algorithm=mapping(record)), function(mapping(record)))


def test_every_form_refuses_the_export_of_another_problem(a, mm):
    record = mm.export()
    with rocpy.Matmul(a, a[:, :63].copy()) as other:
        for use in (
            lambda: other.pin(record),
            lambda: other.plan(algorithms=[record]),
            lambda: other.execute(algorithm=record),
            lambda: rocpy.matmul(a, a[:, :63].copy(), algorithm=types.MappingProxyType(record)),
        ):
            with pytest.raises(rocpy.InvalidProblemError, match="64 x 63"):
                use()


@pytest.mark.parametrize("promise", [False, True, "batch"])
def test_each_source_of_a_choice_is_documented(a, promise):
    options = {"reproducible": promise}
    if not rocpy.blaslt.supported("float32", options=options):
        pytest.skip("this release promises nothing of its algorithms")
    source = "reproducible" if promise else "heuristic"
    with rocpy.Matmul(a, a, options=options) as mm:
        assert mm.plan()[0].source == source
    assert rocpy.explain(a, a, options=options).source == source
    for documented in (Algorithm, rocpy.blaslt.Explanation):
        assert f'``"{source}"``' in documented.__doc__


def test_an_empty_product_has_nothing_to_export(a):
    with rocpy.Matmul(a[:0], a) as mm:
        assert mm.plan() == []
        assert mm.execute(algorithm=0).shape == (0, 64)
        with pytest.raises(rocpy.InvalidProblemError, match="no elements"):
            mm.export()


def test_another_process_takes_the_export(a, run_python, tmp_path):
    with rocpy.Matmul(a, a, epilogue="gelu") as mm:
        last = mm.plan()[-1]
        mm.pin(last)
        (tmp_path / "choice.json").write_text(json.dumps(mm.export()))
        expected = mm.execute()
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "d.npy", expected)
    code = f"""
        import json
        import numpy as np
        import rocpy
        a, expected = np.load({str(tmp_path / "a.npy")!r}), np.load({str(tmp_path / "d.npy")!r})
        record = json.load(open({str(tmp_path / "choice.json")!r}))
        np.testing.assert_array_equal(rocpy.matmul(a, a, epilogue="gelu", algorithm=record), expected)
        with rocpy.Matmul(a, a, epilogue="gelu") as mm:
            assert mm.pin(record).name == {last.name!r}
            np.testing.assert_array_equal(mm.execute(), expected)
            assert mm.export()["algorithm"]["source"] == "pinned"
    """
    run_python(code)


def test_the_function_form_takes_a_record_a_name_and_an_algorithm(a, mm):
    last = mm.plan()[-1]
    expected = mm.execute(algorithm=last)
    for given in (last, last.to_dict(), last.name, len(mm.algorithms) - 1):
        np.testing.assert_array_equal(rocpy.matmul(a, a, algorithm=given), expected)


def changed_record(problem, path, value):
    record = json.loads(problem.to_json())
    where = record
    for key in path[:-1]:
        where = where[key]
    where[path[-1]] = value
    return record


WRONG = [
    (("a", "shape"), [-1, 8]), (("a", "shape"), "88"), (("a", "shape"), [True, 8]), (("b", "shape"), [8.0, 8]),
    (("a", "strides"), [1]), (("a", "strides"), ["x", 1]), (("b", "strides"), [2**64, 1]),
    (("a", "shape"), [1] * 33), (("a", "dtype"), 3), (("a", "dtype"), []), (("a",), None),
    (("m",), 9), (("n",), "x"), (("k",), None), (("batch_shape",), [2]), (("result_shape",), [8]), (("m",), []),
    (("scale_a",), []), (("scale_a",), "scalars"), (("scale_c",), 1), (("amax",), "yes"), (("conj_a",), None),
    (("scale_a_batch",), ["x"]), (("scale_a_batch",), 3), (("clamp",), "x"), (("epilogue",), []), (("dtype",), {}),
    (("expression",), 3), (("expression",), "{"), (("expression",), "[]"), (("expression",), '{"name": 3}'),
    (("inputs",), 3), (("inputs",), [["x"]]), (("inputs",), [["x", {}]]),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), WRONG, ids=str)
def test_a_problem_is_checked_again(a, mm, path, value):
    record = changed_record(mm.problem, path, value)
    algorithm = {**mm.plan()[0].to_dict(), "problem": record}
    for use in (
        lambda: rocpy.blaslt.Problem.from_json(json.dumps(record)),
        lambda: rocpy.tuning.Shapes.from_json(json.dumps({"problems": [record]})),
        lambda: mm.pin(algorithm),
        lambda: rocpy.matmul(a, a, algorithm=algorithm),
    ):
        with pytest.raises(rocpy.InvalidProblemError):
            use()


def test_a_problem_that_is_no_json(a, mm):
    algorithm = {**mm.plan()[0].to_dict(), "problem": {"a": object()}}
    for use in (lambda: mm.pin(algorithm), lambda: rocpy.matmul(a, a, algorithm=algorithm)):
        with pytest.raises(rocpy.InvalidProblemError, match="^algorithm: "):
            use()


def test_a_result_of_more_axes_than_there_can_be():
    many = rocpy.blaslt.OperandInfo.dense((1,) * 40, "float32")
    with pytest.raises(rocpy.InvalidProblemError, match="40 axes"):
        rocpy.blaslt.supported(rocpy.blaslt.Problem.make(many, many))
