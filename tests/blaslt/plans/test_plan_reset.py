# SPDX-License-Identifier: MIT
"""Operands of a plan that change: another M, other strides, after release; what is refused changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

import rocpy
from rocpy.testing import evaluate
from rocpy.testing.runner import check_outputs

DYNAMIC = {"dynamic": "m"}


def check(outputs, *args, dtype=np.float32, **options):
    for name, found in check_outputs(evaluate(*args, **options), outputs, dtype).items():
        assert found.ok, f"{name}: {found.message}"


def arrays(rng, *shapes):
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def test_another_m_plans_again(rng):
    a, b, bias = arrays(rng, (8, 12), (12, 6), (6,))
    with rocpy.Matmul(a, b, epilogue="gelu_bias", bias=bias, options=DYNAMIC) as mm:
        for m in (8, 1, 33, 8, 100, 1, 300, 8):
            (a,) = arrays(rng, (m, 12))
            mm.reset_operands(a=a)
            assert mm.problem.m == m
            check(mm.execute(), a, b, epilogue="gelu_bias", bias=bias)


def test_another_m_of_every_operand_that_has_it(rng):
    a, b, c, aux = arrays(rng, (2, 8, 12), (12, 6), (8, 6), (2, 8, 6))
    with rocpy.Matmul(a, b, c, epilogue="dgelu_bgrad", aux=aux, options=DYNAMIC) as mm:
        check(mm.execute(), a, b, c, epilogue="dgelu_bgrad", aux=aux)
        a, c, aux = arrays(rng, (2, 5, 12), (5, 6), (2, 5, 6))
        for incomplete in ({"a": a}, {"a": a, "c": c}, {"a": a, "aux": aux}):
            with pytest.raises(rocpy.InvalidProblemError, match=r"5"):
                mm.reset_operands(**incomplete)
            assert mm.problem.m == 8
        mm.reset_operands(a=a, c=c, aux=aux)
        check(mm.execute(), a, b, c, epilogue="dgelu_bgrad", aux=aux)


def test_m_may_be_empty(rng):
    a, b = arrays(rng, (8, 12), (12, 6))
    with rocpy.Matmul(a, b, options=DYNAMIC) as mm:
        mm.reset_operands(a=a[:0])
        assert mm.execute().shape == (0, 6)
        mm.reset_operands(a=a)
        check(mm.execute(), a, b)


def test_a_kept_plan_keeps_what_was_pinned(rng):
    a, b = arrays(rng, (64, 64), (64, 64))
    with rocpy.Matmul(a, b, options=DYNAMIC) as mm:
        last = mm.plan()[-1]
        mm.pin(last)
        mm.reset_operands(a=a[:7])
        mm.execute()
        assert mm.algorithm.source == "heuristic"
        mm.reset_operands(a=a)
        assert mm.algorithm.id == last.id
        assert mm.algorithm.source == "pinned"
        check(mm.execute(), a, b)


def test_few_plans_are_kept(rng):
    a, b = arrays(rng, (64, 16), (16, 8))
    before = rocpy.plan_cache.live_plans()
    with rocpy.Matmul(a, b, options=DYNAMIC) as mm:
        for m in range(1, 60):
            mm.reset_operands(a=a[:m])
            mm.execute()
        assert rocpy.plan_cache.live_plans() - before <= 9
    assert rocpy.plan_cache.live_plans() == before


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        ("a", (8, 11), np.float32),
        ("a", (8, 12), np.float64),
        ("a", (1, 8, 12), np.float32),
        ("a", (2, 9, 12), np.float32),
        ("b", (12, 7), np.float32),
        ("b", (13, 6), np.float32),
        ("bias", (8,), np.float32),
    ],
)
def test_dynamic_m_is_m_alone(rng, name, shape, dtype):
    a, b, bias = arrays(rng, (8, 12), (12, 6), (6,))
    old = {"a": a, "b": b, "bias": bias}[name]
    with rocpy.Matmul(a, b, epilogue="bias", bias=bias, options=DYNAMIC) as mm:
        with pytest.raises(rocpy.InvalidProblemError) as caught:
            mm.reset_operands(**{name: np.ones(shape, dtype)})
        message = str(caught.value)
        assert message.startswith(name)
        assert str(old.shape) in message
        assert str(shape) in message
        check(mm.execute(), a, b, epilogue="bias", bias=bias)


def test_without_the_option_another_m_is_refused_and_the_option_named(rng):
    a, b = arrays(rng, (8, 12), (12, 6))
    with rocpy.Matmul(a, b) as mm:
        with pytest.raises(rocpy.InvalidProblemError, match=r"\(8, 12\).*\(9, 12\).*dynamic"):
            mm.reset_operands(a=np.ones((9, 12), np.float32))
        check(mm.execute(), a, b)


def test_a_vector_has_no_m_to_change(rng):
    a, b = arrays(rng, (12,), (12, 6))
    with rocpy.Matmul(a, b, options=DYNAMIC) as mm, pytest.raises(rocpy.InvalidProblemError, match=r"\(12,\)"):
        mm.reset_operands(a=np.ones((2, 12), np.float32))


def test_strides_that_are_refused_change_nothing(rng):
    a, b = arrays(rng, (8, 12), (12, 6))
    wide = np.repeat(a, 2, axis=1)[:, ::2]
    with rocpy.Matmul(a, b, options={"copies": "error"}) as mm:
        with pytest.raises(rocpy.UnsupportedError, match="copies"):
            mm.reset_operands(a=wide, alpha=5.0)
        check(mm.execute(), a, b)


def test_a_refused_scalar_changes_nothing(rng):
    a, b = arrays(rng, (8, 12), (12, 6))
    with rocpy.Matmul(a, b) as mm:
        for wrong in ({"alpha": "2"}, {"alpha": 3.0, "beta": 1.0}, {"a": -a, "beta": None, "alpha": object()}):
            with pytest.raises(rocpy.RocpyError):
                mm.reset_operands(**wrong)
            check(mm.execute(), a, b)


# ---- release ----


def test_release_keeps_the_plan_and_wants_every_operand_again(rng):
    a, b, c, bias = arrays(rng, (8, 12), (12, 6), (8, 6), (6,))
    with rocpy.Matmul(a, b, c, epilogue="relu_bias", bias=bias) as mm:
        found = mm.plan()
        mm.release_operands()
        mm.release_operands()
        for use in (mm.plan, mm.execute, lambda: mm.pin(0)):
            with pytest.raises(rocpy.InvalidOperandError, match="reset_operands"):
                use()
        for incomplete in ({"a": a}, {"a": a, "b": b}, {"a": a, "b": b, "c": c}, {"b": b, "c": c, "bias": bias}):
            with pytest.raises(rocpy.InvalidOperandError, match="again"):
                mm.reset_operands(**incomplete)
        with pytest.raises(rocpy.InvalidProblemError, match=r"\(7, 12\)"):
            mm.reset_operands(a=a[:7], b=b, c=c, bias=bias)
        with pytest.raises(rocpy.InvalidOperandError):
            mm.execute()
        assert mm.algorithms == found
        mm.reset_operands(a=2 * a, b=b, c=c, bias=bias)
        check(mm.execute(), 2 * a, b, c, epilogue="relu_bias", bias=bias)
        assert mm.algorithms == found


def test_release_lets_go(rng):
    import gc
    import weakref

    class Owner(np.ndarray):
        pass

    (b,) = arrays(rng, (12, 6))
    owner = Owner((8, 12), np.float32)
    owner[...] = 1
    gone = weakref.ref(owner)
    with rocpy.Matmul(np.asarray(owner), b) as mm:
        mm.execute()
        del owner
        mm.release_operands()
        gc.collect()
        assert gone() is None


def test_a_new_weight_brings_its_bias(rng):
    x, weight, bias = arrays(rng, (4, 12), (12, 6), (6,))
    with rocpy.Matmul(x, rocpy.Weight(weight, bias=bias), epilogue="relu_bias") as mm:
        mm.reset_operands(b=rocpy.Weight(-weight, bias=2 * bias))
        check(mm.execute(), x, -weight, epilogue="relu_bias", bias=2 * bias)
        mm.reset_operands(b=rocpy.Weight(weight))
        check(mm.execute(), x, weight, epilogue="relu_bias", bias=2 * bias)
        mm.release_operands()
        mm.reset_operands(a=x, b=rocpy.Weight(weight, bias=bias))
        check(mm.execute(), x, weight, epilogue="relu_bias", bias=bias)


@pytest.mark.parametrize("kind", ["int8", "float8_e4m3fn"])
@pytest.mark.parametrize("columns", [1, 6])
@pytest.mark.parametrize("reproducible", [False, "batch"])
def test_another_m_with_a_scale_for_each_row(rng, kind, columns, reproducible):
    options = {"dynamic": "m", "reproducible": reproducible}
    (x, y) = arrays(rng, (33, 64), (64, columns))
    a, scale_a = rocpy.quantize(x, kind, axis=-1)
    b, scale_b = rocpy.quantize(y, kind, axis=-2)
    for first in (8, 1):
        keywords = {"scale_b": scale_b, "dtype": "float32", "options": options}
        with rocpy.Matmul(a[:first], b, scale_a=scale_a[:first], **keywords) as mm:
            for m in (first, 1, 33, 8, 1):
                mm.reset_operands(a=a[:m], scale_a=scale_a[:m])
                again = rocpy.matmul(a[:m], b, scale_a=scale_a[:m], **keywords)
                assert mm.execute().tobytes() == again.tobytes()
            with pytest.raises(rocpy.InvalidProblemError, match="scale_a"):
                mm.reset_operands(scale_a=scale_a)
