# SPDX-License-Identifier: MIT
"""State of nvmath-python's object: nothing of one plan in the next, nothing of the user's changed, its life cycle."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import rocpy
from rocpy.compat import nvmath

advanced = nvmath.linalg.advanced
Epilog = advanced.MatmulEpilog


@pytest.fixture
def operands(rng):
    return rng.standard_normal((6, 8), dtype=np.float32), rng.standard_normal((8, 5), dtype=np.float32)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


# ---- the five ways in which state leaks ----


@pytest.mark.parametrize("first", ["RELU_AUX_BIAS", "GELU_AUX_BIAS", "RELU_AUX", "BIAS"])
def test_1_no_epilog_is_left_by_an_earlier_plan(operands, first):
    a, b = operands
    bias = np.full(6, 100, np.float32)
    with advanced.Matmul(a, b) as mm:
        mm.plan(epilog=Epilog[first], epilog_inputs={"bias": bias} if "BIAS" in first else None)
        mm.execute()
        mm.plan()
        result = mm.execute()
    assert isinstance(result, np.ndarray)
    close(result, a @ b)


@pytest.mark.parametrize("first", ["BGRADA", "BGRADB"])
def test_2_no_transposition_is_left_by_an_earlier_plan(operands, first):
    a, b = operands
    for left, right in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
        with advanced.Matmul(left, right) as mm:
            mm.plan(epilog=Epilog[first])
            close(mm.execute()[0], a @ b)
            mm.plan()
            close(mm.execute(), a @ b)
            mm.plan(epilog=Epilog.RELU)
            close(mm.execute(), np.maximum(a @ b, 0))


def test_3_the_users_qualifiers_are_not_changed(operands):
    a, b = operands
    qualifiers = np.zeros(3, advanced.matrix_qualifiers_dtype)
    qualifiers["is_conjugate"][0] = 1
    before = copy.deepcopy(qualifiers)
    for _ in range(2):
        close(advanced.matmul(a, b, qualifiers=qualifiers), a @ b)
        assert (qualifiers == before).all()


def test_4_the_users_scales_are_not_changed(operands):
    a, b = operands
    scales = advanced.MatmulQuantizationScales(a=2.0, b=np.ones(1, np.float32))
    kept = scales.b
    options = advanced.MatmulOptions(memory_limit=1 << 20)
    inputs, preferences = {"bias": np.ones(6, np.float32)}, advanced.MatmulPlanPreferences(limit=5)
    with advanced.Matmul(a, b, quantization_scales=scales, options=options) as mm:
        mm.plan(epilog=Epilog.BIAS, epilog_inputs=inputs, preferences=preferences)
        mm.release_operands()
    advanced.matmul(a, b, epilog=Epilog.BIAS, epilog_inputs=inputs, preferences=preferences)
    assert (scales.a, scales.b) == (2.0, kept)
    assert list(inputs) == ["bias"]
    assert inputs["bias"] is not None
    assert preferences.limit == 5
    assert options == advanced.MatmulOptions(memory_limit=1 << 20)


def test_5_a_plan_after_release_says_what_is_missing(operands):
    a, b = operands
    with advanced.Matmul(a, b) as mm:
        mm.plan()
        mm.release_operands()
        for use in (mm.plan, mm.execute, mm.autotune, mm.applicable_algorithm_ids):
            with pytest.raises(RuntimeError, match="released"):
                use()
        with pytest.raises(RuntimeError, match="b: released"):
            mm.reset_operands(a=a)
        mm.reset_operands(a=a, b=b)
        close(mm.execute(), a @ b)
        mm.plan()
        close(mm.execute(), a @ b)


# ---- life cycle ----


def test_execute_wants_a_plan(operands):
    with advanced.Matmul(*operands) as mm:
        for use in (mm.execute, mm.autotune, lambda: mm.algorithms):
            with pytest.raises(RuntimeError, match="plan"):
                use()


def test_a_plan_that_fails_leaves_the_one_before(operands):
    a, b = operands
    with advanced.Matmul(a, b) as mm:
        mm.plan(epilog=Epilog.RELU)
        for wrong in (
            {"epilog": Epilog.BIAS},
            {"epilog": Epilog.BIAS, "epilog_inputs": {"bias": np.ones(5, np.float32)}},
            {"epilog": 3},
            {"algorithms": ["text"]},
            {"preferences": {"limits": 3}},
        ):
            with pytest.raises(rocpy.RocpyError):
                mm.plan(**wrong)
            close(mm.execute(), np.maximum(a @ b, 0))


def test_freed_is_freed(operands):
    a, b = operands
    mm = advanced.Matmul(a, b)
    mm.plan()
    mm.free()
    mm.free()
    for use in (mm.plan, mm.execute, mm.autotune, lambda: mm.reset_operands(a=a), mm.release_operands):
        with pytest.raises(advanced.InvalidMatmulState, match="freed"):
            use()
    with mm:  # as in nvmath-python, what is called in the block is refused
        pass
    assert issubclass(nvmath.linalg.InvalidMatmulState, rocpy.ClosedError)


def test_release_with_epilog_inputs_wants_all_of_them_again(operands):
    a, b = operands
    bias = np.arange(6, dtype=np.float32)
    with advanced.Matmul(a, b) as mm:
        mm.plan(epilog=Epilog.BIAS, epilog_inputs={"bias": bias})
        mm.release_operands()
        with pytest.raises(RuntimeError, match="bias"):
            mm.reset_operands(a=a, b=b)
        mm.reset_operands(a=2 * a, b=b, epilog_inputs={"bias": bias})
        close(mm.execute(), 2 * a @ b + bias[:, None])


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({}, ValueError),
        ({"a": np.ones((7, 8), np.float32)}, ValueError),
        ({"a": np.ones((6, 8))}, ValueError),
        ({"a": np.ones((8, 6), np.float32).T}, ValueError),
        ({"a": np.ones((6, 9), np.float32)[:, :8]}, ValueError),
        ({"c": np.ones((6, 5), np.float32)}, ValueError),
        ({"alpha": "text"}, ValueError),
        ({"epilog_inputs": {"bias": np.ones(6, np.float32)}}, ValueError),
        ({"a": [[1.0]]}, TypeError),
    ],
)
def test_a_reset_that_is_refused_changes_nothing(operands, change, error):
    a, b = operands
    with advanced.Matmul(a, b) as mm:
        mm.plan()
        with pytest.raises(error) as caught:
            mm.reset_operands(**change)
        assert isinstance(caught.value, rocpy.RocpyError)
        if "a" in change and hasattr(change["a"], "shape"):
            assert "(6, 8)" in str(caught.value)
        close(mm.execute(), a @ b)


def test_strides_of_axes_of_one_element_do_not_count():
    a, b = np.ones((1, 8), np.float32), np.ones((8, 3), np.float32)
    with nvmath.linalg.Matmul(a, b) as mm:
        mm.plan()
        mm.reset_operands(a=np.full((2, 8), 2, np.float32)[::2])
        close(mm.execute(), 2 * a @ b)


def test_beta_without_c_is_not_used(operands):
    a, b = operands
    for make in (advanced.Matmul, nvmath.linalg.Matmul):
        with pytest.warns(rocpy.RocpyWarning, match="no c"):
            made = make(a, b, beta=2.0)
        with made as mm:
            mm.plan()
            with pytest.warns(rocpy.RocpyWarning, match="no c"):
                mm.reset_operands(a=2 * a, beta=3.0)
            with pytest.warns(rocpy.RocpyWarning, match="no c"):
                mm.reset_operands(beta=4.0)
            close(mm.execute(), 2 * a @ b)


def test_an_algorithm_of_another_plan_is_refused(operands):
    a, b = operands
    with advanced.Matmul(a, b) as mm:
        (first, *_) = mm.plan()
        other = advanced.Algorithm(rocpy.blaslt.Algorithm(987654, "no kernel", 0, 0.0))
        with pytest.raises(ValueError, match="no kernel"):
            mm.execute(algorithm=other)
        close(mm.execute(algorithm=first), a @ b)


def test_algorithms_have_nothing_to_set_and_say_so(operands):
    with advanced.Matmul(*operands) as mm:
        (best, *_) = mm.plan()
    for name in ("tile", "stages", "split_k", "cluster_shape", "inner_shape", "reduction_scheme", "custom_option"):
        setattr(best, name, getattr(best, name))  # as the examples do
        with pytest.raises(rocpy.UnsupportedError, match=name):
            setattr(best, name, (64, 63))
    with pytest.raises(rocpy.UnsupportedError, match="record"):
        best.record = None
    with pytest.raises(AttributeError, match="shape"):
        best.shape  # noqa: B018
    for wrong in (np.zeros(3), np.array(b"{}"), np.array(b"text"), "text"):
        with pytest.raises(ValueError, match="saved algorithm"):
            advanced.Algorithm.from_numpy(wrong)


def test_the_tile_is_that_of_the_kernels_name():
    def algorithm(name):
        return advanced.Algorithm(rocpy.blaslt.Algorithm(3, name, 0, 0.0))

    told = algorithm("Cijk_Ailk_Bljk_HHS_BH_MT256x96x64_MI16x16x1_SN_K1")
    assert told.tile == (256, 96)
    assert told.capabilities.tile_ids == ((256, 96),)
    untold = algorithm("some other kernel")
    assert untold.tile == "UNDEFINED"
    assert untold.capabilities.tile_ids == ()
    assert untold.capabilities.splitk_support is None
    lines = str(told.capabilities).splitlines()
    assert len(lines) == 25
    assert "tile_ids" in lines[7]
    assert "((256, 96),)" in lines[7]


def test_released_operands_are_told_as_each_product_of_nvmath_tells_them(operands):
    a, b = operands
    for make, error in ((advanced.Matmul, RuntimeError), (nvmath.linalg.Matmul, ValueError)):
        with make(a, b) as mm:
            with pytest.raises(RuntimeError, match="plan"):
                mm.execute()
            mm.plan()
            mm.release_operands()
            with pytest.raises(error, match="released"):
                mm.execute()
            with pytest.raises(ValueError, match="released"):
                mm.reset_operands(a=a)
            mm.reset_operands(a, b)
            close(mm.execute(), a @ b)
        with pytest.raises(nvmath.linalg.InvalidMatmulState):
            mm.execute()


def test_memory_of_many_objects_is_given_back(operands):
    before = rocpy.plan_cache.live_plans()
    for _ in range(50):
        mm = advanced.Matmul(*operands)
        mm.plan(epilog=Epilog.RELU)
        mm.plan()
        mm.free()
    assert rocpy.plan_cache.live_plans() == before
