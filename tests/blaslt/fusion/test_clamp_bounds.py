# SPDX-License-Identifier: MIT
"""Results are clamped to the bounds that were passed, whatever their type: hipBLASLt's bounds are float32."""

import numpy as np
import pytest

import rocpy
from rocpy.blaslt import supported

# Bounds of float64 results, of which one at least is no float32 number, and those that are.
ROUNDED = [(-2, 0.1), (-0.1, 3), (-2, 1e-50), (-2, 1e300), (-1e300, 0.1), (0.1, np.inf), (2**24 + 1, 2**25)]
EXACT = [(-2, 0.5), (-np.inf, 2**-140), (np.float32(-0.1), np.float32(0.1)), (-np.inf, np.inf)]
PRODUCTS = np.array([-1e301, -7.0, -0.05, 0.0, 1e-60, 0.07, 5.0, 2.0**24 + 2, 1e301])


def operands():
    return PRODUCTS[:, None], np.ones((1, 2))


def clamped(bounds):
    return np.repeat(np.clip(PRODUCTS, *map(float, bounds))[:, None], 2, 1)


def form_of_function(a, b, **keywords):
    return rocpy.matmul(a, b, **keywords)


def form_of_plan(a, b, **keywords):
    with rocpy.Matmul(a, b, **keywords) as planned:
        planned.execute()
        planned.reset_operands(a=a.copy())
        return planned.execute()


def form_of_weight(a, b, **keywords):
    with rocpy.Weight(b) as weight:
        return rocpy.matmul(a, weight, **keywords)


def form_of_groups(a, b, **keywords):
    return rocpy.grouped_matmul([a], [b], **keywords)[0]


def form_of_packed_groups(a, b, **keywords):
    return rocpy.grouped_matmul(a, b[None], offsets=[0, len(a)], **keywords)


FORMS = [form_of_function, form_of_plan, form_of_weight, form_of_groups, form_of_packed_groups]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bounds", ROUNDED + EXACT)
def test_float64_results(form, bounds):
    np.testing.assert_array_equal(form(*operands(), epilogue="clamp", clamp=bounds), clamped(bounds))


@pytest.mark.parametrize("bounds", [ROUNDED[0], EXACT[0]])
@pytest.mark.parametrize("form", FORMS[:3])
def test_float64_results_with_a_bias_and_their_pre_activation(form, bounds):
    a, b = operands()
    bias = np.zeros(2)
    np.testing.assert_array_equal(form(a, b, epilogue="clamp_bias", bias=bias, clamp=bounds), clamped(bounds))
    for more in ({"epilogue": "clamp_aux"}, {"epilogue": "clamp_aux_bias", "bias": bias}):
        result, extra = form(a, b, clamp=bounds, **more)
        np.testing.assert_array_equal(result, clamped(bounds))
        np.testing.assert_array_equal(extra["clamp_aux"], a @ b)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bounds", [(-5, 2**24 + 1), (-(2**24) - 1, 7), (-5, 2**31 - 1), (-(2**31), 2**24)])
def test_integer_results(form, bounds):
    a = np.array([[127] * 1100, [-128] * 1100, [0] * 1100, [1] * 1100], np.int8)
    b = np.full((1100, 3), 127, np.int8)
    expected = np.clip(a.astype(np.int64) @ b.astype(np.int64), *bounds)
    np.testing.assert_array_equal(form(a, b, epilogue="clamp", clamp=bounds), expected)


def test_a_custom_epilogue():
    @rocpy.epilogue
    def clip(y):
        return np.clip(y, -2, 0.1)

    for form in FORMS[:2]:
        np.testing.assert_array_equal(form(*operands(), epilogue=clip), clamped((-2, 0.1)))


@pytest.mark.parametrize(("bounds", "rounded"), [*((b, True) for b in ROUNDED), *((b, False) for b in EXACT)])
def test_explanations_and_answers_agree_with_the_call(bounds, rounded):
    a, b = operands()
    arguments = {"epilogue": "clamp", "clamp": bounds}
    native = supported("float64", epilogue="clamp").lowering == "native"
    with rocpy.Matmul(a, b, **arguments) as mm:
        answer = supported(mm.problem)
        assert answer.lowering == ("native" if native and not rounded else "unfused")
        strict = supported(mm.problem, options={"fallback": "error"})
    grouped = rocpy.explain(a, b[None], offsets=[0, len(a)], **arguments).runs[0][2]
    for how in (rocpy.explain(a, b, **arguments), grouped):
        assert how.algorithm.lowering == answer.lowering
        assert ("takes bounds in float32" in how.unfused) == rounded == ("float32" in str(answer))
    if native and not rounded:
        assert strict
        rocpy.matmul(a, b, **arguments, options={"fallback": "error"})
        return
    assert not strict
    with pytest.raises(rocpy.UnsupportedError, match="clamp=.* float32" if rounded else "clamp"):
        rocpy.matmul(a, b, **arguments, options={"fallback": "error"})


def test_other_results_are_clamped_in_float32_as_they_are_computed():
    a, b = np.array([[-1], [5]], np.float32), np.ones((1, 2), np.float32)
    how = [rocpy.explain(a, b, epilogue="clamp", clamp=(-2, high)).unfused for high in (0.1, 0.5)]
    assert how[0] == how[1]
    assert rocpy.matmul(a, b, epilogue="clamp", clamp=(-2, 0.1)).max() == np.float32(0.1)


@pytest.mark.torch
def test_torch_tensors_and_their_gradient():
    import torch

    a, b = (torch.from_numpy(x) for x in operands())
    a.requires_grad_()
    result = rocpy.matmul(a, b, epilogue="clamp", clamp=(-2, 0.1))
    np.testing.assert_array_equal(result.detach().numpy(), clamped((-2, 0.1)))
    result.sum().backward()
    np.testing.assert_array_equal(a.grad.numpy()[:, 0], np.where((PRODUCTS > -2) & (PRODUCTS < 0.1), 2.0, 0.0))
