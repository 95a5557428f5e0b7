# SPDX-License-Identifier: MIT
"""Every algorithm that a plan offers, forced on every case it claims, against the oracle."""

from __future__ import annotations

import numpy as np
import pytest

import rocpy
from rocpy.testing import Case, make_operands, run_case
from rocpy.testing import cases as case_list
from rocpy.testing.runner import keywords, to_numpy

# One case of every kind that an algorithm could treat differently: sizes around blocks, layouts, batches, dtypes,
# epilogues.
EDGES = tuple(case for case in case_list.cases("quick") if case.group in ("edges", "skinny", "tall-k", "tiny"))
KINDS = tuple(case for case in case_list.cases("quick") if case.group == "tiny" and case.m >= 12)
CHOSEN = tuple(dict.fromkeys((*EDGES, *KINDS)))


def split(case, operands):
    arrays = dict(operands)
    positional = [arrays.pop(key) for key in ("a", "b", "c") if key in arrays]
    return positional, {**arrays, **keywords(case)}


def plan_for(case, operands):
    positional, named = split(case, operands)
    mm = rocpy.Matmul(*positional, **named)
    return mm, mm.plan()


def force_all(case, seen: set[str]) -> None:
    operands = make_operands(case)
    try:
        mm, algorithms = plan_for(case, operands)
    except rocpy.UnsupportedError:
        # Releases differ in the types that they have; every one has these.
        if case.dtype in case_list.DTYPES:
            raise
        return
    with mm:
        assert algorithms, "no algorithm"
        assert len({algorithm.id for algorithm in algorithms}) == len(algorithms)
        for algorithm in algorithms:
            result = run_case(
                case, matmul=lambda *_, chosen=algorithm, **__: mm.execute(algorithm=chosen), operands=operands
            )
            assert result.ok, f"{algorithm.name}: {result.message}"
            seen.add(algorithm.name)


@pytest.fixture(scope="module")
def seen():
    return set()


@pytest.mark.parametrize("part", range(16))
def test_each_algorithm_on_each_case_it_claims(part, seen):
    for case in CHOSEN[part::32]:
        force_all(case, seen)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(16, 32))
def test_each_algorithm_on_the_other_cases_it_claims(part, seen):
    for case in CHOSEN[part::32]:
        force_all(case, seen)


def test_there_are_several_algorithms(seen):
    assert len(seen) >= 3, seen


@pytest.mark.slow
@pytest.mark.parametrize("part", range(64))
def test_each_algorithm_on_the_full_list(part, seen):
    for case in case_list.cases("full")[part::64]:
        force_all(case, seen)


def test_algorithms_describe_themselves():
    case = Case(64, 96, 128, epilogue="gelu_bias")
    mm, algorithms = plan_for(case, make_operands(case))
    with mm:
        for algorithm in algorithms:
            assert isinstance(algorithm.id, int)
            assert algorithm.name
            assert algorithm.workspace_bytes >= 0
            assert algorithm.lowering == "native"
            assert algorithm.elapsed_ms is None
            assert algorithm.name in repr(algorithm)
        assert list(mm.algorithms) == list(algorithms)


def test_the_function_form_takes_an_algorithm():
    case = Case(64, 96, 128, epilogue="gelu_bias")
    operands = make_operands(case)
    positional, named = split(case, operands)
    mm, algorithms = plan_for(case, operands)
    with mm:
        for algorithm in algorithms:
            np.testing.assert_array_equal(
                rocpy.matmul(*positional, **named, algorithm=algorithm), mm.execute(algorithm=algorithm)
            )


def test_an_algorithm_of_another_problem_is_refused_or_right():
    small, large = Case(4, 4, 4), Case(100, 100, 100)
    mm_small, of_small = plan_for(small, make_operands(small))
    operands = make_operands(large)
    mm_large, _ = plan_for(large, operands)
    with mm_small, mm_large:
        for algorithm in of_small:
            try:
                found = run_case(
                    large,
                    matmul=lambda *_, chosen=algorithm, **__: mm_large.execute(algorithm=chosen),
                    operands=operands,
                )
            except (rocpy.InvalidProblemError, rocpy.UnsupportedError):
                continue
            assert found.ok, found.message


@pytest.mark.parametrize("wrong", ["no such algorithm", -1, 10**9, object(), 1.5])
def test_a_wrong_algorithm_is_refused(wrong):
    case = Case(8, 8, 8)
    mm, _ = plan_for(case, make_operands(case))
    with mm, pytest.raises((rocpy.InvalidProblemError, rocpy.InvalidOperandError), match="algorithm"):
        mm.execute(algorithm=wrong)


def test_workspace_limit_is_kept():
    case = Case(64, 64, 4096)
    positional, named = split(case, make_operands(case))
    with rocpy.Matmul(*positional, **named, options={"max_workspace_bytes": 0}) as mm:
        assert all(algorithm.workspace_bytes == 0 for algorithm in mm.plan())
        assert run_case(case, matmul=lambda *_, **__: mm.execute()).ok


def test_bits_do_not_depend_on_alignment_or_place():
    case = Case(37, 45, 300, epilogue="gelu_bias")
    operands = make_operands(case)
    shifted = {}
    for key, value in operands.items():
        store = np.empty(value.size + 1, dtype=value.dtype)
        shifted[key] = store[1:].reshape(value.shape)
        shifted[key][...] = value
    mm, algorithms = plan_for(case, operands)
    other, _ = plan_for(case, shifted)
    with mm, other:
        by_id = {algorithm.id: algorithm for algorithm in other.algorithms}
        for algorithm in algorithms:
            if algorithm.id in by_id:
                first, second = mm.execute(algorithm=algorithm), other.execute(algorithm=by_id[algorithm.id])
                np.testing.assert_array_equal(first, second, err_msg=algorithm.name)


PROGRAM = """
    import hashlib
    import numpy as np
    import rocpy
    from rocpy.testing import Case, make_operands
    shapes = [(64, 96, 300), (200, 130, 70), (8, 512, 700), (3, 5, 9000), (1, 900, 400)]
    # Products that are cut for the threads there are: of few tiles, of one row or column.
    shapes += [(128, 128, 128), (193, 191, 192), (1, 4096, 600), (8, 2000, 600), (2000, 8, 600), (4096, 1, 600)]
    turned = [(1, 4096, 600), (8, 2000, 600), (193, 191, 192)]
    for shape, in_place in [(shape, True) for shape in shapes] + [(shape, False) for shape in turned]:
        for epilogue in ("gelu_bias", "dgelu_bgrad"):
            arrays = make_operands(Case(*shape, epilogue=epilogue))
            a, b = arrays.pop("a"), arrays.pop("b")
            if not in_place:
                b = np.ascontiguousarray(b.T).T
            with rocpy.Matmul(a, b, **arrays, epilogue=epilogue) as mm:
                for algorithm in sorted(mm.plan(), key=lambda found: found.id):
                    d = mm.execute(algorithm=algorithm)
                    parts = (d,) if not isinstance(d, tuple) else (d[0], *d[1].values())
                    digest = hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()
                    print(shape, in_place, epilogue, algorithm.name, digest)
"""


def test_bits_do_not_depend_on_the_thread_count(run_python):
    one = run_python(PROGRAM, ROCPY_NUM_THREADS="1").stdout
    assert one.count("\n") >= 100
    assert run_python(PROGRAM, ROCPY_NUM_THREADS="5").stdout == one


def test_results_repeat_bit_for_bit():
    for case in CHOSEN[::40]:
        if not rocpy.blaslt.supported(case.dtype):
            continue  # a type that this release has no products of
        operands = make_operands(case)
        positional, named = split(case, operands)
        outputs = [rocpy.matmul(*positional, **named) for _ in range(3)]
        firsts = [to_numpy(found[0] if isinstance(found, tuple) else found) for found in outputs]
        np.testing.assert_array_equal(firsts[0], firsts[1])
        np.testing.assert_array_equal(firsts[0], firsts[2])
