# SPDX-License-Identifier: MIT
"""Weights of the MX formats: packed with their scales where the platform packs, and the same numbers everywhere."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import rocpy
from rocpy.testing import evaluate
from rocpy.testing.cases import MX
from rocpy.testing.runner import check_outputs, dtype_of


def check(outputs, *args, **options):
    for name, found in check_outputs(evaluate(*args, **options), outputs, np.float32).items():
        assert found.ok, f"{name}: {found.message}"


def drawn(rng, name, m, n, k):
    a, scale_a = rocpy.quantize_mx(rng.standard_normal((m, k), dtype=np.float32), name)
    b, scale_b = rocpy.quantize_mx(rng.standard_normal((k, n), dtype=np.float32), name, axis=-2)
    return a, scale_a, b, scale_b


def packs():
    return rocpy.Weight(*mx_ones(), layout="kn").packed


def mx_ones():
    return np.ones((32, 8), dtype_of("float8_e4m3fn")), None


# Few rows, rows on both sides of what thin tiles and skinny drivers take, and many.
@pytest.mark.parametrize("m", [1, 8, 9, 16, 17, 70])
@pytest.mark.parametrize("name", MX)
def test_a_weight_gives_what_the_arrays_give(name, m, rng):
    a, scale_a, b, scale_b = drawn(rng, name, m, 70, 96)
    with rocpy.Weight(b, scale=scale_b) as w:
        assert w.shape == (96, 70)
        assert w.dtype == name
        assert w.packed == packs()
        given = {"scale_a": scale_a, "dtype": "float32"}
        for algorithm in rocpy.Matmul(a, w, **given).plan():
            check(
                rocpy.matmul(a, w, algorithm=algorithm, **given), a, b, scale_a=scale_a, scale_b=scale_b,
            )  # fmt: skip
        d = rocpy.matmul(a, w, **given)
        np.testing.assert_array_equal(d[:1], rocpy.matmul(a, w, **given)[:1])
    with pytest.raises(rocpy.ClosedError):
        rocpy.matmul(a, w, **given)


@pytest.mark.parametrize("name", MX)
@pytest.mark.parametrize("kind", ["uint8", "float8_e8m0fnu"])
def test_layouts(name, kind, rng):
    a, scale_a, b, scale_b = drawn(rng, name, 5, 33, 64)
    scale = scale_b.view(np.uint8) if kind == "uint8" else scale_b
    stored, stored_scale = np.ascontiguousarray(b.T), np.ascontiguousarray(scale.T)
    for w in (
        rocpy.Weight(b, scale=scale),
        rocpy.Weight(np.asfortranarray(b), scale=np.asfortranarray(scale)),
        rocpy.Weight(stored, scale=stored_scale, layout="nk"),
        rocpy.Weight(stored[::-1][::-1], scale=stored_scale, layout="nk"),
        pickle.loads(pickle.dumps(rocpy.Weight(b, scale=scale))),
    ):
        check(rocpy.matmul(a, w, scale_a=scale_a, dtype="float32"), a, b, scale_a=scale_a, scale_b=scale_b)
        check(
            rocpy.matmul(a[0], w, scale_a=scale_a[0], dtype="float32"),
            a[0], b, scale_a=scale_a[0], scale_b=scale_b,
        )  # fmt: skip


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float4_e2m1fn"])
def test_a_bias_an_epilogue_and_batches(name, rng):
    _, _, b, scale_b = drawn(rng, name, 1, 40, 64)
    a, scale_a = rocpy.quantize_mx(rng.standard_normal((3, 5, 64), dtype=np.float32), name)
    bias = rng.standard_normal(40, dtype=np.float32)
    w = rocpy.Weight(b, bias=bias, scale=scale_b)
    given = {"scale_a": scale_a, "epilogue": "gelu_bias"}
    check(rocpy.matmul(a, w, dtype="float32", **given), a, b, bias=bias, scale_b=scale_b, **given)
    column = rng.standard_normal((3, 5, 1), dtype=np.float32)
    check(
        rocpy.matmul(a, w, dtype="float32", **{**given, "bias": column}),
        a, b, bias=column, scale_b=scale_b, **given,
    )  # fmt: skip
    # The largest magnitude of such products is composed.
    check(
        rocpy.matmul(a, w, scale_a=scale_a, dtype="float32", amax=True),
        a,
        b,
        scale_a=scale_a,
        scale_b=scale_b,
        amax=True,
    )


def test_plans_take_other_weights_with_their_scales(rng):
    a, scale_a, b, scale_b = drawn(rng, "float8_e5m2", 6, 20, 64)
    with rocpy.Matmul(a, rocpy.Weight(b, scale=scale_b), scale_a=scale_a, dtype="float32") as mm:
        assert mm.packed == packs()
        check(mm.execute(), a, b, scale_a=scale_a, scale_b=scale_b)
        _, _, other, other_scale = drawn(rng, "float8_e5m2", 6, 20, 64)
        other_scale = (other_scale.view(np.uint8) + np.uint8(3)).view(other_scale.dtype)
        mm.reset_operands(b=rocpy.Weight(other, scale=other_scale))
        check(mm.execute(), a, other, scale_a=scale_a, scale_b=other_scale)


def test_a_plan_takes_the_factors_of_a_new_weight(rng):
    x, y, z = (rng.standard_normal(s, dtype=np.float32) for s in ((4, 32), (32, 8), (32, 8)))
    a, scale_a = rocpy.quantize(x, axis=-1)
    first, second = rocpy.quantize(y, axis=-2), rocpy.quantize(4 * z, axis=-2)
    with rocpy.Matmul(a, rocpy.Weight(first[0], scale=first[1]), scale_a=scale_a, dtype="float32") as mm:
        mm.execute()
        mm.reset_operands(b=rocpy.Weight(second[0], scale=second[1]))
        check(mm.execute(), a, second[0], scale_a=scale_a, scale_b=second[1])


def test_sources_are_copied_until_refreshed(rng):
    a, scale_a, b, scale_b = drawn(rng, "float8_e4m3fn", 4, 9, 32)
    kept, kept_scale = b.copy(), scale_b.copy()
    w = rocpy.Weight(b, scale=scale_b)
    b[:] = 0
    scale_b.view(np.uint8)[:] += 1
    check(rocpy.matmul(a, w, scale_a=scale_a, dtype="float32"), a, kept, scale_a=scale_a, scale_b=kept_scale)
    w.refresh()
    assert not rocpy.matmul(a, w, scale_a=scale_a).any()


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float4_e2m1fn"])
def test_torch_sources_are_repacked_when_they_change(name, rng, torch):
    x, weight = rng.standard_normal((4, 64), dtype=np.float32), rng.standard_normal((18, 64), dtype=np.float32)
    a, scale_a = rocpy.quantize_mx(torch.from_numpy(x), name)
    b, scale_b = rocpy.quantize_mx(torch.from_numpy(weight), name)
    w = rocpy.Weight(b, scale=scale_b, layout="nk")
    assert w.shape == (64, 18)
    wanted = rocpy.dequantize_mx(a, scale_a) @ rocpy.dequantize_mx(b, scale_b).T
    torch.testing.assert_close(rocpy.matmul(a, w, scale_a=scale_a, dtype=torch.float32), wanted, rtol=1e-4, atol=1e-4)
    scale_b.view(torch.uint8).add_(1)
    torch.testing.assert_close(
        rocpy.matmul(a, w, scale_a=scale_a, dtype=torch.float32), 2 * wanted, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (lambda b, s: {"scale": s[:1]}, r"scale: got shape \(1, 9\)"),
        (lambda b, s: {"scale": s.T, "layout": "kn"}, r"scale: got shape \(9, 2\)"),
        (lambda b, s: {"scale": s, "layout": "nk"}, r"scale: got shape \(2, 9\)"),
        (lambda b, s: {"scale": s[0]}, "two axes"),
    ],
)
def test_wrong_scales_are_told(arguments, match, rng):
    _, _, b, scale_b = drawn(rng, "float8_e4m3fn", 1, 9, 64)
    with pytest.raises(rocpy.InvalidProblemError, match=match):
        rocpy.Weight(b, **arguments(b, scale_b))


def test_the_scale_is_not_given_twice(rng):
    a, scale_a, b, scale_b = drawn(rng, "float8_e4m3fn", 2, 9, 32)
    with pytest.raises(rocpy.InvalidProblemError, match="scale_b: the Weight already has a scale"):
        rocpy.matmul(a, rocpy.Weight(b, scale=scale_b), scale_a=scale_a, scale_b=scale_b)
