# SPDX-License-Identifier: MIT
"""Grouped products with scales, with promised bits, by tuned choices, and explained."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import rocpy
from rocpy.testing import bounds, compare, evaluate
from rocpy.testing.runner import dtype_of, to_numpy, to_torch

OFFSETS = [0, 4, 4, 8, 11]
GROUPS, TOTAL, K, M, N = 4, 11, 32, 9, 16
SHAPES = {"m": ((TOTAL, K), (GROUPS, K, N)), "n": ((GROUPS, M, K), (K, TOTAL)), "k": ((M, TOTAL), (TOTAL, N))}
FORMS_A = {
    "m": ((TOTAL,), (TOTAL, 1)),
    "n": ((GROUPS, M), (GROUPS, M, 1), (1, M, 1)),
    "k": ((GROUPS, M), (GROUPS, M, 1)),
}
FORMS_B = {"m": ((GROUPS, N), (GROUPS, 1, N), (1, 1, N)), "n": ((TOTAL,), (1, TOTAL)), "k": ((GROUPS, N), (1, 1, N))}
ONE_EACH = (GROUPS, 1, 1)


def pieces(form, a, b, result):
    """Yield each group's number, operands and result."""
    for group, (low, high) in enumerate(itertools.pairwise(OFFSETS)):
        if form == "m":
            yield group, low, high, a[low:high], b[group], result[low:high]
        elif form == "n":
            yield group, low, high, a[group], b[:, low:high], result[:, low:high]
        else:
            yield group, low, high, a[:, low:high], b[low:high], result[group]


def part(scale, form, side, group, low, high):
    """Return what of a scale belongs to one group, so that it broadcasts as the oracle's scales do."""
    if scale is None or isinstance(scale, float):
        return scale
    if scale.shape == ONE_EACH:
        return np.float32(scale[group, 0, 0])
    if form == {"a": "m", "b": "n"}[side]:
        return scale.reshape(-1)[low:high]
    return scale[0 if scale.shape[0] == 1 else group].reshape(-1)


def check(form, a, b, result, scale_a, scale_b, dtype):
    for group, low, high, left, right, found in pieces(form, a, b, result):
        given = {
            name: value
            for name, value in (
                ("scale_a", part(scale_a, form, "a", group, low, high)),
                ("scale_b", part(scale_b, form, "b", group, low, high)),
            )
            if value is not None
        }
        expected = evaluate(left, right, **given)
        item = compare(to_numpy(found), expected.result, bounds(expected, dtype_of(dtype))["result"])
        assert item.ok, item.message


def draw(rng, shape, name):
    if name == "int8":
        return rng.integers(-128, 128, shape, np.int8)
    return rng.standard_normal(shape).astype(dtype_of(name))


def scales_of(rng, forms):
    shapes = (ONE_EACH, *forms)
    return [1.0, 0.25, *(rng.uniform(0.5, 2, shape).astype(np.float32) for shape in shapes)]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "int8"])
@pytest.mark.parametrize("form", "mnk")
def test_scales_of_packed_groups(form, name, rng):
    a, b = (draw(rng, shape, name) for shape in SHAPES[form])
    for scale_a, scale_b in itertools.product(scales_of(rng, FORMS_A[form]), scales_of(rng, FORMS_B[form])):
        dtype = "float32" if isinstance(scale_a, float) or isinstance(scale_b, float) else "bfloat16"
        found = rocpy.grouped_matmul(a, b, offsets=OFFSETS, scale_a=scale_a, scale_b=scale_b, dtype=dtype)
        check(form, a, b, found, scale_a, scale_b, dtype)


@pytest.mark.torch
@pytest.mark.parametrize("form", "mnk")
def test_scales_of_torch_tensors_with_steps_between_them(form, rng, torch):
    a, b = (draw(rng, shape, "float8_e4m3fn") for shape in SHAPES[form])
    scale_a, scale_b = (rng.uniform(0.5, 2, forms[0]).astype(np.float32) for forms in (FORMS_A[form], FORMS_B[form]))
    steps = torch.from_numpy(np.repeat(scale_a, 2, axis=-1))[..., ::2]
    left, right = to_torch(a), to_torch(b)
    for given in (steps, torch.from_numpy(scale_a)):
        found = rocpy.grouped_matmul(
            left,
            right,
            offsets=torch.tensor(OFFSETS),
            scale_a=given,
            scale_b=torch.from_numpy(scale_b),
            dtype="float32",
        )
        assert isinstance(found, torch.Tensor)
        check(form, a, b, found.numpy(), scale_a, scale_b, "float32")


def test_scales_of_lists(rng):
    a = [rocpy.quantize(rng.standard_normal((m, 64)), "int8", axis=-1) for m in (3, 1, 70, 0)]
    b = [rocpy.quantize(rng.standard_normal((64, 8)), "int8", axis=-2) for _ in range(4)]
    left, right = [x for x, _ in a], [x for x, _ in b]
    rows, columns = [s for _, s in a], [s for _, s in b]
    for given in (
        {"scale_a": rows, "scale_b": columns},
        {"scale_a": rows, "scale_b": 0.5},
        {"scale_a": 2.0, "scale_b": [0.5, 2.0, 0.25, 1.0]},
        {"scale_a": 1.0, "scale_b": (columns[0],)},
    ):
        results = rocpy.grouped_matmul(left, right, dtype="float32", **given)
        for group, found in enumerate(results):
            own = {}
            for name, value in given.items():
                own[name] = value[min(group, len(value) - 1)] if isinstance(value, list | tuple) else value
            np.testing.assert_array_equal(found, rocpy.matmul(left[group], right[group], dtype="float32", **own))
    weights = [rocpy.Weight(x, scale=s) for x, s in b]
    for found, x, s, w in zip(
        rocpy.grouped_matmul(left, weights, scale_a=rows, dtype="bfloat16"), left, rows, weights, strict=True
    ):
        np.testing.assert_array_equal(found, rocpy.matmul(x, w, scale_a=s, dtype="bfloat16"))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float4_e2m1fn"])
def test_lists_take_scales_by_blocks(name, rng):
    a = [rocpy.quantize_mx(rng.standard_normal((m, 64)), name) for m in (3, 1)]
    b = [rocpy.quantize_mx(rng.standard_normal((64, 8)), name, axis=-2) for _ in range(2)]
    results = rocpy.grouped_matmul(
        [x for x, _ in a], [x for x, _ in b], scale_a=[s for _, s in a], scale_b=[s for _, s in b]
    )
    for found, (x, s), (y, t) in zip(results, a, b, strict=True):
        np.testing.assert_array_equal(found, rocpy.matmul(x, y, scale_a=s, scale_b=t))


@pytest.mark.parametrize(
    ("scale", "error", "match"),
    [
        (np.ones(5, np.float32), rocpy.InvalidProblemError, r"scale_b: got shape \(5,\), .*\(4, 1, 1\).* \(4, 16\) or"),
        (np.ones(N, np.float32), rocpy.InvalidProblemError, r"scale_b: got shape \(16,\)"),
        (np.ones(ONE_EACH), rocpy.InvalidProblemError, "scale_b is float64; scales are float32"),
        (np.ones(ONE_EACH, np.uint8), rocpy.UnsupportedError, "block scales along K are not supported with offsets="),
        ([1.0] * 4, rocpy.InvalidOperandError, r"scale_b: got list; .*\(4, 1, 1\)"),
        (True, rocpy.InvalidOperandError, "scale_b: got True"),
        ("2", rocpy.InvalidOperandError, "scale_b"),
    ],
)
def test_wrong_scales_are_refused_by_name(scale, error, match, rng):
    a, b = (draw(rng, shape, "float8_e4m3fn") for shape in SHAPES["m"])
    with pytest.raises(error, match=match):
        rocpy.grouped_matmul(a, b, offsets=OFFSETS, scale_b=scale)


def test_scales_are_refused_where_products_take_none(rng):
    a, b = (draw(rng, shape, "float32") for shape in SHAPES["m"])
    with pytest.raises(rocpy.InvalidProblemError, match="scale_a: a float32 product takes no scales"):
        rocpy.grouped_matmul(a, b, offsets=OFFSETS, scale_a=2.0)
    with pytest.raises(rocpy.InvalidProblemError, match="scale_a: got 2 for 3 products"):
        rocpy.grouped_matmul([a] * 3, b[0], scale_a=[1.0, 2.0])


def test_integer_results_take_a_whole_alpha(rng):
    a, b = (draw(rng, shape, "int8") for shape in SHAPES["m"])
    assert (
        rocpy.grouped_matmul(a, b, offsets=OFFSETS, alpha=2) == 2 * rocpy.grouped_matmul(a, b, offsets=OFFSETS)
    ).all()
    for call in (
        lambda: rocpy.grouped_matmul(a, b, offsets=OFFSETS, alpha=0.5),
        lambda: rocpy.grouped_matmul([a], b[0], alpha=0.5),
    ):
        with pytest.raises(rocpy.InvalidProblemError, match="alpha = 0.5; an integer result"):
            call()


def test_integer_results_with_scales_are_composed(rng):
    a, b = (draw(rng, shape, "int8") for shape in SHAPES["m"])
    rows, columns = np.linspace(0.001, 0.01, TOTAL, dtype=np.float32), np.full((GROUPS, N), 0.5, np.float32)
    found = rocpy.grouped_matmul(a, b, offsets=OFFSETS, scale_a=rows, scale_b=columns, dtype="int8")
    for group, low, high, left, right, one in pieces("m", a, b, found):
        wanted = rocpy.matmul(left, right, scale_a=rows[low:high], scale_b=columns[group], dtype="int8")
        np.testing.assert_array_equal(one, wanted)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("form", "mnk")
def test_promised_bits_are_those_of_single_products(form, name, rng):
    """reproducible="batch": a row's bits depend neither on the size of its group nor on its neighbours."""
    a, b = (draw(rng, shape, name) for shape in SHAPES[form])
    scales = {"scale_a": 0.5, "scale_b": 1.0} if name.startswith("float8") else {}
    with rocpy.options(reproducible="batch"):
        found = rocpy.grouped_matmul(a, b, offsets=OFFSETS, dtype="float32", **scales)
        for *_, left, right, one in pieces(form, a, b, found):
            assert np.array_equal(one, rocpy.matmul(left, right, dtype="float32", **scales))
        if form == "m":
            other = rocpy.grouped_matmul(a, b[[0, 0, 2, 2]], offsets=[0, 1, 1, 8, 11], dtype="float32", **scales)
            assert np.array_equal(other[:1], found[:1])
            assert np.array_equal(other[4:8], found[4:8])
        how = rocpy.explain(a, b, offsets=OFFSETS, dtype="float32", **scales)
    assert {one.source for _, _, one in how.runs} == {"reproducible"}


def test_an_explanation_has_one_part_for_each_launch(rng):
    a, b = (draw(rng, shape, "float32") for shape in SHAPES["m"])
    how = rocpy.explain(a, b, offsets=[0, 3, 6, 6, 11], epilogue="relu")
    assert isinstance(how, rocpy.blaslt.GroupedExplanation)
    assert [(first, count) for first, count, _ in how.runs] == [(0, 2), (3, 1)]
    batch, single = (one for _, _, one in how.runs)
    assert batch.problem.batch_shape == (2,)
    assert (batch.problem.m, single.problem.m) == (3, 5)
    assert single.algorithm.name == rocpy.explain(a[6:11], b[3], epilogue="relu").algorithm.name
    for part_ in ("groups 0 to 1, one batch", "group 3", "heuristic", "relu", single.algorithm.name):
        assert part_ in str(how)
    assert rocpy.explain(a[:0], b[:0], offsets=[0]).runs == ()
    lists = rocpy.explain([a[:3], a], b[0], bias=None)
    assert [one.problem.m for _, _, one in lists.runs] == [3, TOTAL]


def test_an_explanation_tells_copies_and_compositions(rng):
    a, b = (draw(rng, shape, "float32") for shape in SHAPES["m"])
    how = rocpy.explain(a[:, ::-1], b, offsets=OFFSETS)
    assert "a" in how.copies
    assert len(how.runs) == 3
    x, y = (draw(rng, shape, "int8") for shape in SHAPES["m"])
    composed = rocpy.explain(x, y, offsets=OFFSETS, scale_a=0.5, dtype="int8")
    assert all(one.unfused for _, _, one in composed.runs)
    with pytest.raises(rocpy.UnsupportedError, match="a: shape"):
        rocpy.explain(a[:, ::-1], b, offsets=OFFSETS, options={"copies": "error"})
    with pytest.raises(TypeError, match="unexpected keyword argument 'gamma'"):
        rocpy.explain(a, b, offsets=OFFSETS, gamma=2.0)


def test_an_epilogue_with_aux_that_is_composed(rng):
    a, b = (draw(rng, shape, "float16") for shape in SHAPES["m"])
    bias = draw(rng, (GROUPS, N), "float16")
    result, aux = rocpy.grouped_matmul(a, b, offsets=OFFSETS, epilogue="relu_aux_bias", bias=bias)
    for group, low, high, left, right, one in pieces("m", a, b, result):
        d, beside = rocpy.matmul(left, right, epilogue="relu_aux_bias", bias=bias[group])
        np.testing.assert_allclose(one.astype(np.float32), d.astype(np.float32), atol=2e-2)
        np.testing.assert_allclose(
            aux["relu_aux"][low:high].astype(np.float32), beside["relu_aux"].astype(np.float32), atol=2e-2
        )
