# SPDX-License-Identifier: MIT
"""What a Weight was made of may change afterwards: every product reads what was there, however it is computed."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import rocpy
from rocpy.blaslt.model.weight_operand import snapshot_of
from rocpy.blaslt.operands.weight import sources_may_have_changed

INT8 = {"scale_a": 0.5, "dtype": "int8"}


def halves(x):
    """Halve in one type and add in another, which no tile program does."""
    return (x * 0.5).astype("float64") + 1


def drawn(rng, dtype, *shape):
    if dtype == "int8":
        return rng.integers(-100, 100, shape, np.int8)
    return rng.standard_normal(shape).astype(dtype)


# By name: dtype, arguments of the product, and of the Weight.
PRODUCTS = {
    "plain": ("float32", {}, {}),
    "float16": ("float16", {"dtype": "float32"}, {}),
    "bias of the Weight": ("float32", {"epilogue": "gelu_bias"}, {"bias": True}),
    "bias per row": ("float32", {"epilogue": "relu_bias", "bias": "column"}, {}),
    "bias per row, in rows": (
        "float32", {"epilogue": "relu_bias", "bias": "column", "options": {"reproducible": "batch"}}, {},
    ),
    "composed of int32": ("int8", INT8, {"scale": "row"}),
    "composed of int32, a number": ("int8", INT8, {"scale": np.float32(0.25)}),
    "amax": ("int8", {"scale_a": 0.5, "dtype": "float32", "amax": True}, {"scale": "row"}),
    "custom": ("float32", {"epilogue": rocpy.epilogue(lambda x: np.tanh(x) * 2)}, {}),
    "custom, in two types": ("float32", {"epilogue": rocpy.epilogue(halves)}, {}),
    "sums of b": ("float32", {"epilogue": "bgradb"}, {}),
}  # fmt: skip


def product(name, rng, layout, m=5):
    """Return a Weight, the arrays that it was made of, and what computes a product with it."""
    dtype, given, made = PRODUCTS[name]
    x, source = drawn(rng, dtype, m, 12), drawn(rng, dtype, *((12, 20) if layout == "kn" else (20, 12)))
    parts = [source]
    made, given = dict(made), dict(given)
    if "bias" in made:
        made["bias"] = rng.standard_normal(20, dtype=np.float32)
        parts.append(made["bias"])
    if isinstance(made.get("scale"), str):
        made["scale"] = rng.uniform(0.01, 0.02, 20).astype(np.float32)
        parts.append(made["scale"])
    if given.get("bias") == "column":
        given["bias"] = rng.standard_normal((m, 1), dtype=np.float32)
    w = rocpy.Weight(source, layout=layout, **made)
    return w, parts, lambda: rocpy.matmul(x, w, **given)


def flat(result):
    return [result] if not isinstance(result, tuple) else [result[0], *result[1].values()]


@pytest.mark.parametrize("layout", ["kn", "nk"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_a_changed_source_is_not_seen_until_it_is_refreshed(name, layout, rng):
    w, parts, run = product(name, rng, layout)
    try:
        before = flat(run())
    except rocpy.UnsupportedError as error:
        if rocpy.platform.current().name == "host":
            raise  # it has every one of these products
        pytest.skip(str(error))
    for part in parts:
        np.multiply(part, 2, out=part)
    for seen, wanted in zip(flat(run()), before, strict=True):
        np.testing.assert_array_equal(seen, wanted)
    w.refresh()
    assert not all(np.array_equal(seen, old) for seen, old in zip(flat(run()), before, strict=True))


def test_sums_beside_an_empty_result(rng):
    source = rng.standard_normal((12, 20), dtype=np.float32)
    wanted = source.sum(0)
    w = rocpy.Weight(source)
    source[:] = 0
    _, extra = rocpy.matmul(np.empty((0, 12), np.float32), w, epilogue="bgradb")
    np.testing.assert_allclose(extra["bgradb"], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_composed_products_of_mx_operands(layout, rng):
    a, scale_a = rocpy.quantize_mx(rng.standard_normal((4, 64)))
    b, scale_b = rocpy.quantize_mx(rng.standard_normal((64, 9)), axis=-2)
    if layout == "nk":
        b, scale_b = np.ascontiguousarray(b.T), np.ascontiguousarray(scale_b.T)
    w = rocpy.Weight(b, scale=scale_b, layout=layout)
    with rocpy.Matmul(a, w, scale_a=scale_a, amax=True) as mm:
        before = flat(mm.execute())
        b.view(np.uint8)[:] = 0
        scale_b.view(np.uint8)[:] += 1
        for seen in (mm.execute(), rocpy.matmul(a, w, scale_a=scale_a, amax=True)):
            for one, wanted in zip(flat(seen), before, strict=True):
                np.testing.assert_array_equal(one, wanted)


def test_debug_mode_tells_of_a_forgotten_refresh(rng, monkeypatch):
    monkeypatch.setenv("ROCPY_DEBUG", "1")
    x, source, bias = (rng.standard_normal(s, dtype=np.float32) for s in ((3, 12), (12, 20), (20,)))
    w = rocpy.Weight(source, bias=bias)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rocpy.matmul(x, w, epilogue="bias")
    for part in (source, bias):
        part[0] += 1
        with pytest.warns(rocpy.RocpyWarning, match=r"has changed.*refresh"):
            rocpy.matmul(x, w, epilogue="bias")
        w.refresh()
        rocpy.matmul(x, w, epilogue="bias")


@pytest.mark.torch
def test_tensors_of_inference_mode_have_no_counter_and_are_copied(rng, torch):
    x = torch.from_numpy(rng.standard_normal((3, 12), dtype=np.float32))
    with torch.inference_mode():
        source = torch.from_numpy(rng.standard_normal((12, 20), dtype=np.float32)).clone()
        w = rocpy.Weight(source)
        before = rocpy.matmul(x, w)
        source.mul_(2)
        torch.testing.assert_close(rocpy.matmul(x, w), before)
        w.refresh()
        torch.testing.assert_close(rocpy.matmul(x, w), 2 * before)


def test_the_bias_of_a_torch_weight_is_read_as_it_is(rng):
    torch = pytest.importorskip("torch")
    x, source, bias = (torch.from_numpy(rng.standard_normal(s, dtype=np.float32)) for s in ((3, 12), (12, 20), (20,)))
    w = rocpy.Weight(source, bias=bias)
    bias.add_(1)
    torch.testing.assert_close(rocpy.matmul(x, w, epilogue="bias"), x @ source + bias)


# ---- plans ----


def test_a_plan_takes_what_was_read_anew(rng):
    x, source, bias = (rng.standard_normal(s, dtype=np.float32) for s in ((3, 12), (12, 20), (20,)))
    residual = rng.standard_normal((3, 20), dtype=np.float32)

    def tanh_of_sum(x, bias, residual):
        return np.tanh(x + bias) + residual

    custom = {"epilogue": rocpy.epilogue(tanh_of_sum), "epilogue_inputs": {"residual": residual}}
    for given in ({"epilogue": "bias"}, {"epilogue": "gelu_erf_bias"}, custom):
        w = rocpy.Weight(source, bias=bias)
        with rocpy.Matmul(x, w, **given) as mm:
            before = mm.execute()
            source *= 2
            bias += 1
            np.testing.assert_array_equal(mm.execute(), before)
            w.refresh()
            np.testing.assert_allclose(mm.execute(), rocpy.matmul(x, w, **given), rtol=1e-5, atol=1e-5)
            assert not np.array_equal(mm.execute(), before)
            mm.reset_operands(a=2 * x)
            np.testing.assert_allclose(mm.execute(), rocpy.matmul(2 * x, w, **given), rtol=1e-5, atol=1e-5)


def test_a_plan_takes_a_scale_that_was_read_anew(rng):
    a, source = drawn(rng, "int8", 3, 16), drawn(rng, "int8", 16, 8)
    scale = np.full(8, 0.5, np.float32)
    w = rocpy.Weight(source, scale=scale)
    with rocpy.Matmul(a, w, scale_a=1.0, dtype="float32") as mm:
        before = mm.execute()
        scale *= 2
        np.testing.assert_array_equal(mm.execute(), before)
        w.refresh()
        np.testing.assert_array_equal(mm.execute(), 2 * before)


COMPOSED = """
import numpy as np, rocpy
rng = np.random.default_rng(0)
a, scale_a = rocpy.quantize_mx(rng.standard_normal((4, 32)))
b, scale_b = rocpy.quantize_mx(rng.standard_normal((32, 6)), axis=-2)
with rocpy.Matmul(a, b, scale_a=scale_a, scale_b=scale_b, dtype="float32") as mm:
    first = mm.execute()
    assert "their scales" in mm.unfused.text
    scale_a.view(np.uint8)[:] += 1
    assert np.array_equal(mm.execute(), 2 * first)
    a.view(np.uint8)[:] = 0
    assert not mm.execute().any()
"""


def test_a_composed_plan_computes_with_its_operands_as_they_are(run_python):
    if not rocpy.platform.current().is_emulated:
        pytest.skip("only the host platform presents an older release")
    run_python(COMPOSED, ROCPY_HOST_ABI="6.4", ROCPY_HOST_STAGING="0")


@pytest.mark.torch
@pytest.mark.parametrize("inference", [False, True])
def test_hooks_tell_that_tensors_may_have_changed(torch, inference):
    with torch.inference_mode(inference):
        source, x = torch.ones(16, 8), torch.eye(16)
        w = rocpy.Weight(source)
        product = rocpy.Matmul(x, w)
        torch.from_numpy(source.numpy()).mul_(3)  # as a fused optimizer does: by no operation that torch counts
        sources_may_have_changed()
        torch.testing.assert_close(rocpy.matmul(x, w), x @ source)
        source.data.add_(1)
        sources_may_have_changed()
        torch.testing.assert_close(product.execute(), x @ source)


def test_hooks_leave_weights_of_other_arrays():
    source = np.ones((16, 8), np.float32)
    w = rocpy.Weight(source)
    source[:] = 2
    sources_may_have_changed()
    assert np.array_equal(rocpy.matmul(np.eye(16, dtype=np.float32), w), np.ones((16, 8)))


@pytest.mark.parametrize("fresh", ["same", "transposed", "larger", "of another type"])
def test_a_tensor_that_got_other_data(fresh, torch):
    a, source = torch.randn(4, 5), torch.randn(5, 3)
    weight = rocpy.Weight(source)
    product = rocpy.Matmul(a, weight)
    product.execute()
    source.data = {
        "same": torch.randn(5, 3),
        "transposed": torch.randn(3, 5).t(),
        "larger": torch.randn(5, 7),
        "of another type": torch.randn(5, 3).to(torch.bfloat16),
    }[fresh]
    left = a.to(source.dtype)
    torch.testing.assert_close(rocpy.matmul(left, weight), (left.float() @ source.float()).to(source.dtype))
    assert weight.shape == tuple(source.shape)
    assert weight.dtype == str(source.dtype).removeprefix("torch.")
    if fresh in ("same", "transposed"):
        torch.testing.assert_close(product.execute(), a @ source)


def test_a_scale_that_got_other_data(torch):
    a, source = torch.ones(4, 16), torch.ones(16, 3).to(torch.float8_e4m3fn)
    scale = torch.ones(3)
    weight = rocpy.Weight(source, scale=scale)
    left = a.to(torch.float8_e4m3fn)
    rocpy.matmul(left, weight, scale_a=1.0, dtype="float32")
    scale.data = torch.full((3,), 4.0)
    torch.testing.assert_close(rocpy.matmul(left, weight, scale_a=1.0, dtype="float32"), torch.full((4, 3), 64.0))


def test_parameters_of_a_linear_that_got_other_data(torch):
    a, linear = torch.randn(4, 4), torch.nn.Linear(4, 4)
    weight = rocpy.Weight.from_linear(linear)
    product = rocpy.Matmul(a, weight, epilogue="bias")

    def check():
        expected = linear(a).detach()
        torch.testing.assert_close(rocpy.matmul(a, weight, epilogue="bias"), expected)
        torch.testing.assert_close(product.execute(), expected)

    check()
    torch.nn.utils.vector_to_parameters(torch.randn(20), linear.parameters())
    check()
    linear.bias.data = torch.randn(4)
    check()
    with torch.no_grad():
        linear.weight.mul_(2)
        linear.bias.add_(1)
    check()
    linear.weight.data = torch.randn(4, 4).t()
    check()


def test_nothing_is_read_again_where_nothing_changed(torch):
    for weight in (rocpy.Weight(torch.randn(5, 3)), rocpy.Weight.from_linear(torch.nn.Linear(5, 3))):
        before = snapshot_of(weight)
        for _ in range(3):
            rocpy.matmul(torch.randn(4, 5), weight)
        assert snapshot_of(weight) is before
        weight.refresh()
        assert snapshot_of(weight) is not before
