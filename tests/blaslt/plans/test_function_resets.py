# SPDX-License-Identifier: MIT
"""A product with a function as epilogue keeps what reset_operands and release_operands promise."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import rocpy


def values(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


A, B, R = values(0, 16, 64), values(1, 64, 32), values(2, 32)

PLUS = rocpy.epilogue(lambda x, r: np.tanh(x) + r)
TIMES = rocpy.epilogue(lambda x, k: np.tanh(x) * k)
SUM = rocpy.epilogue(lambda x, s: x + s)
RELU = rocpy.epilogue(lambda x, r: np.maximum(x + r, 0))  # which is one of the library's own

# How a product is made of an array for each column, how that is passed again, and what is computed.
KINDS = {
    "built-in": (lambda r: {"epilogue": "relu_bias", "bias": r}, lambda r: {"bias": r}, "bias"),
    "function": (
        lambda r: {"epilogue": PLUS, "epilogue_inputs": {"r": r}},
        lambda r: {"epilogue_inputs": {"r": r}},
        "epilogue_inputs['r']",
    ),
    "function of the library's": (
        lambda r: {"epilogue": RELU, "epilogue_inputs": {"r": r}},
        lambda r: {"epilogue_inputs": {"r": r}},
        "epilogue_inputs['r']",
    ),
}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def expected(kind, a, b, r):
    return np.tanh(a @ b) + r if kind is KINDS["function"] else np.maximum(a @ b + r, 0)


def check(kind, result, a=A, b=B, r=R):
    np.testing.assert_allclose(result, expected(kind, a, b, r), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("other", [A[:3], np.asfortranarray(A)], ids=["M", "strides"])
def test_a_kept_plan_keeps_what_was_pinned(kind, other):
    # A device with memory of its own reads a copy, whose strides are those of before.
    is_same = other.shape == A.shape and not rocpy.platform.current().host_memory
    with rocpy.Matmul(A, B, options={"dynamic": "m"}, **kind[0](R)) as mm:
        last = mm.plan()[-1]
        mm.pin(last)
        for _ in range(3):
            mm.reset_operands(a=other)
            check(kind, mm.execute(), other)
            assert mm.algorithm.source == ("pinned" if is_same else "heuristic")
            mm.reset_operands(a=A)
            assert (mm.algorithm.source, mm.algorithm.id, mm.algorithm.name) == ("pinned", last.id, last.name)
            check(kind, mm.execute())


def test_a_kept_plan_is_not_made_again(kind):
    seen = []
    with rocpy.Matmul(A, B, options={"dynamic": "m"}, **kind[0](R)) as mm:
        mm.execute()
        mm.reset_operands(a=A[:3])
        mm.execute()
        from rocpy.blaslt.selection import choice

        record = lambda problem, _: seen.append(problem)  # noqa: E731
        choice.add_recorder(record)
        try:
            for m in (16, 3, 16):
                mm.reset_operands(a=A[:m])
                mm.execute()
        finally:
            choice.remove_recorder(record)
    assert seen == []


def test_a_kept_plan_holds_no_operands(kind):
    a = A.copy()
    alive = weakref.ref(a)
    with rocpy.Matmul(a, B, options={"dynamic": "m"}, **kind[0](R)) as mm:
        mm.execute()
        mm.reset_operands(a=A[:3])
        del a
        gc.collect()
        assert alive() is None


def test_few_plans_are_kept():
    def live_plans():
        rocpy.plan_cache.clear()  # of the function form, where tile programs are
        return rocpy.plan_cache.live_plans()

    before = live_plans()
    with rocpy.Matmul(A, B, options={"dynamic": "m"}, **KINDS["function"][0](R)) as mm:
        mm.execute()
        each = live_plans() - before
        for m in range(1, 13):
            mm.reset_operands(a=A[:m])
            mm.execute()
        assert live_plans() - before <= 9 * each
    assert live_plans() == before


def test_another_number_keeps_the_pinned_algorithm():
    with rocpy.Matmul(A, B, epilogue=TIMES, epilogue_inputs={"k": 2.0}) as mm:
        last = mm.plan()[-1]
        mm.pin(last)
        for k in (3.0, -0.0, 0.0, 2.0):
            mm.reset_operands(epilogue_inputs={"k": k})
            result = mm.execute()
            np.testing.assert_allclose(result, np.tanh(A @ B) * k, rtol=1e-4, atol=1e-4)
            assert np.signbit(result[0, 0]) == np.signbit(np.tanh(A @ B)[0, 0] * np.float32(k))
            assert (mm.algorithm.source, mm.algorithm.name) == ("pinned", last.name)


@pytest.mark.parametrize(
    ("change", "named"),
    [({"c": values(3, 16, 32)}, "c"), ({"scale_a": 2.0}, "scale_a"), ({"beta": 0.5}, "beta")],
    ids=["c", "scale_a", "beta"],
)
def test_what_the_product_was_made_without_is_refused(kind, change, named):
    with rocpy.Matmul(A, B, **kind[0](R)) as mm:
        pinned = mm.pin(mm.plan()[-1])
        with pytest.raises(rocpy.InvalidProblemError, match=f"^{named}"):
            mm.reset_operands(a=0 * A, **change)
        assert mm.algorithm == pinned
        check(kind, mm.execute())


@pytest.mark.parametrize(
    ("before", "after"),
    [(2.0, R), (R, 2.0), (R, R[:1]), (R, values(4, 16, 32)), (R, R.astype("f8")), (1, 1.0), (1, True), (2.0, 2)],
    ids=["number to array", "array to number", "shorter", "full", "float64", "int to float", "int to bool", "to int"],
)
def test_inputs_of_another_kind_are_refused(before, after):
    whole = np.ones((16, 64), np.int8), np.ones((64, 32), np.int8)
    a, b = whole if isinstance(before, int) else (A, B)
    with rocpy.Matmul(a, b, epilogue=SUM, epilogue_inputs={"s": before}) as mm:
        result = mm.execute()
        with pytest.raises(rocpy.InvalidProblemError, match=r"epilogue_inputs\['s'\]: it was .* and would become"):
            mm.reset_operands(a=0 * a, epilogue_inputs={"s": after})
        again = mm.execute()
        assert again.dtype == result.dtype
        np.testing.assert_array_equal(again, result)


def test_an_input_has_another_m_with_the_operands():
    full = values(5, 16, 32)
    with rocpy.Matmul(A, B, epilogue=SUM, epilogue_inputs={"s": full}, options={"dynamic": "m"}) as mm:
        mm.execute()
        with pytest.raises(rocpy.InvalidProblemError, match=r"epilogue_inputs\['s'\].*\(3, 32\)"):
            mm.reset_operands(epilogue_inputs={"s": full[:3]})
        with pytest.raises(rocpy.InvalidProblemError, match=r"epilogue_inputs\['s'\].*\(16, 32\)"):
            mm.reset_operands(a=A[:3])
        mm.reset_operands(a=A[:3], epilogue_inputs={"s": full[:3]})
        np.testing.assert_allclose(mm.execute(), A[:3] @ B + full[:3], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("arguments", [{}, {"epilogue": SUM, "epilogue_inputs": {"s": R}}], ids=["plain", "function"])
def test_scales_stay_of_their_kind(arguments):
    a, b = np.ones((16, 64), np.int8), np.ones((64, 32), np.int8)
    with rocpy.Matmul(a, b, scale_a=2.0, scale_b=0.5, dtype="float32", **arguments) as mm:
        before = mm.execute()
        with pytest.raises(rocpy.InvalidProblemError, match="^scale_a: it was scalar and would become vector"):
            mm.reset_operands(scale_a=np.ones((16, 1), np.float32))
        np.testing.assert_array_equal(mm.execute(), before)
        mm.reset_operands(scale_a=4.0)
        np.testing.assert_allclose(mm.execute() - before, 64.0, rtol=1e-6)


def test_after_a_release_all_operands_are_passed_again(kind):
    create, again, label = kind
    r = R.copy()
    alive = weakref.ref(r)
    with rocpy.Matmul(A, B, **create(r)) as mm:
        pinned = mm.pin(mm.plan()[-1])
        mm.release_operands()
        del r
        gc.collect()
        assert alive() is None
        for use in (mm.plan, mm.execute, lambda: mm.pin(0), lambda: mm.autotune(budget_ms=1)):
            with pytest.raises(rocpy.InvalidOperandError, match="^the operands were released; pass them again"):
                use()
        with pytest.raises(rocpy.InvalidOperandError) as caught:
            mm.reset_operands(a=A)
        assert str(caught.value).startswith(f"b, {label}: the operands were released")
        with pytest.raises(rocpy.InvalidOperandError) as caught:
            mm.reset_operands(a=A, b=B)
        assert str(caught.value).startswith(f"{label}: the operands were released")
        mm.reset_operands(a=2 * A, b=B, **again(R))
        check(kind, mm.execute(), 2 * A)
        assert mm.algorithm.name == pinned.name


def test_an_input_that_became_another_one_is_refused():
    full = values(6, 16, 32)
    with rocpy.Matmul(A, B, epilogue=SUM, epilogue_inputs={"s": full}) as mm:
        mm.execute()
        full.resize((2, 2), refcheck=False)
        for _ in range(2):
            with pytest.raises(rocpy.InvalidOperandError, match=r"^epilogue_inputs\['s'\]: had shape"):
                mm.reset_operands(alpha=2.0)


@pytest.mark.parametrize("empty", [A[:0], np.zeros((0, 4, 64), np.float32)], ids=["no rows", "no products"])
def test_an_algorithm_of_an_empty_product_is_not_needed(kind, empty):
    arguments = kind[0](R)
    shape = (*empty.shape[:-1], 32)
    with rocpy.Matmul(A, B, **arguments) as mm:
        named = mm.plan()[0]
        record = mm.export()["algorithm"]
    for algorithm in (named, record):
        assert rocpy.matmul(empty, B, algorithm=algorithm, **arguments).shape == shape
    with rocpy.Matmul(empty, B, **arguments) as mm:
        assert mm.execute(algorithm=0).shape == shape


def test_a_named_algorithm_is_the_one_that_runs(kind):
    arguments = kind[0](R)
    with rocpy.Matmul(A, B, **arguments) as mm:
        for algorithm in mm.plan():
            planned = mm.execute(algorithm=algorithm)
            for _ in range(2):  # planned, then as it was planned
                np.testing.assert_array_equal(rocpy.matmul(A, B, algorithm=algorithm, **arguments), planned)
    with pytest.raises(rocpy.InvalidProblemError, match="not one of this product's"):
        rocpy.matmul(A, B, algorithm="none of them", **arguments)
