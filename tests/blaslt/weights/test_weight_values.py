# SPDX-License-Identifier: MIT
"""What a Weight hands out, and its copies: the values that products read, in memory that no product reads."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import rocpy

DUPLICATES = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda w: pickle.loads(pickle.dumps(w))}
K, N = 32, 6


def make(kind, layout, rng):
    """Return a Weight, the arrays that it was made of, and functions of a Weight that compute products with it."""
    a, b = rng.standard_normal((3, K), dtype=np.float32), rng.standard_normal((K, N), dtype=np.float32)
    bias, factors, given = rng.standard_normal(N, dtype=np.float32), None, {}
    if kind in ("int8", "float8_e4m3fn"):
        a, given["scale_a"] = rocpy.quantize(a, kind, axis=-1)
        b, factors = rocpy.quantize(b, kind, axis=-2)
    elif kind not in ("float32", "inference"):
        kind = kind.removeprefix("mx ")
        a, given["scale_a"] = rocpy.quantize_mx(a, kind)
        b, factors = rocpy.quantize_mx(b, kind, axis=-2)
        factors = factors.T.copy() if layout == "nk" else factors
    source = b.T.copy() if layout == "nk" else b
    if kind == "inference":
        import torch

        with torch.inference_mode():
            a, source, bias = (torch.from_numpy(x).clone() for x in (a, source, bias))
    column = np.ones((3, 1), np.float32)
    parts = [x for x in (source, bias, factors) if x is not None]
    given["dtype"] = "float32"
    products = [
        lambda w: rocpy.matmul(a, w, **given),
        lambda w: rocpy.matmul(a, w, epilogue="bias", **given),
        lambda w: rocpy.matmul(a, w, epilogue="gelu_erf_bias", **given),  # composed where libraries lack it
        lambda w: rocpy.matmul(a, w, epilogue="bias", bias=column, **given),
    ]
    return (
        rocpy.Weight(source, bias, scale=factors, layout=layout),
        parts,
        products[:3] if kind != "float32" else products,
    )


INFERENCE = pytest.param("inference", marks=pytest.mark.torch)
KINDS = pytest.mark.parametrize(
    "kind", ["float32", "int8", "float8_e4m3fn", "mx float8_e4m3fn", "mx float4_e2m1fn", INFERENCE]
)
LAYOUTS = pytest.mark.parametrize("layout", ["kn", "nk"])


@KINDS
@LAYOUTS
def test_writes_into_what_was_handed_out_change_no_product(kind, layout, rng):
    w, parts, products = make(kind, layout, rng)
    before = [np.asarray(one(w)) for one in products]
    matrix, bias = w.matrix(), w.bias
    assert tuple(matrix.shape) == (K, N)
    np.testing.assert_array_equal(np.asarray(matrix), np.asarray(parts[0].T if layout == "nk" else parts[0]))
    np.testing.assert_array_equal(np.asarray(bias), np.asarray(parts[1]))
    for part in (matrix, bias):
        part[:] = 0
    for one, wanted in zip(products, before, strict=True):
        np.testing.assert_array_equal(np.asarray(one(w)), wanted)
    assert np.asarray(w.matrix(), np.float32).any()
    assert np.asarray(w.bias).any()
    assert all(np.asarray(part, np.float32).any() for part in parts)


@KINDS
@LAYOUTS
@pytest.mark.parametrize("duplicate", DUPLICATES)
def test_copies_compute_with_the_values_of_the_weight(duplicate, kind, layout, rng):
    w, parts, products = make(kind, layout, rng)
    before = [np.asarray(one(w)) for one in products]
    for part in parts[:2]:
        np.asarray(part)[:] = 0
    if len(parts) > 2:
        parts[2].view(np.uint8)[:] = parts[2].view(np.uint8)[:, ::-1].copy()
    again = DUPLICATES[duplicate](w)
    for one, wanted in zip(products, before, strict=True):
        np.testing.assert_array_equal(np.asarray(one(w)), wanted)
        np.testing.assert_array_equal(np.asarray(one(again)), wanted)
    w.close()
    for one, wanted in zip(products, before, strict=True):
        np.testing.assert_array_equal(np.asarray(one(again)), wanted)
    again.refresh()
    assert np.asarray(products[1](again)).any() == (duplicate != "copy")  # whose source is that of w


@pytest.mark.torch
def test_a_copy_follows_the_parameters_of_a_module(torch):
    linear, x = torch.nn.Linear(4, 3), torch.randn(2, 4)
    again = copy.copy(rocpy.Weight.from_linear(linear))
    linear.weight.data = torch.randn(3, 4)
    linear.bias.data = torch.randn(3)
    torch.testing.assert_close(rocpy.matmul(x, again, epilogue="bias"), linear(x).detach())


@pytest.mark.torch
@pytest.mark.parametrize("layout", ["kn", "nk"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("read", ["matrix", "deepcopy", "pickle"])
def test_a_tensor_is_read_again_for_what_is_handed_out(torch, read, dtype, layout):
    kind = getattr(torch, dtype)
    a, source = torch.ones(1, 16, dtype=kind), torch.ones((8, 16) if layout == "nk" else (16, 8), dtype=kind)
    w = rocpy.Weight(source, layout=layout)
    assert (rocpy.matmul(a, w) == 16).all()
    source.data.mul_(4)  # which nothing tells
    if read == "matrix":
        assert (w.matrix() == 4).all()
    else:
        assert (rocpy.matmul(a, DUPLICATES[read](w)) == 64).all()
    # Later products agree with what was handed out.
    assert (rocpy.matmul(a, w) == 64).all()
    source.mul_(2)
    assert (w.matrix() == 8).all()
    assert (rocpy.matmul(a, w) == 128).all()


TRANSFORMS = {
    "vmap": lambda torch, f, x: torch.vmap(f)(x),
    "grad": lambda torch, f, x: torch.func.grad(lambda x: f(x).sum())(x),
    "make_fx": lambda torch, f, x: torch.fx.experimental.proxy_tensor.make_fx(f)(x)(x),
}


@pytest.mark.torch
@pytest.mark.parametrize("layout", ["kn", "nk"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_the_matrix_of_a_weight_outside_of_a_transform(torch, transform, layout):
    import torch.fx.experimental.proxy_tensor

    source, x = torch.arange(8.0).reshape(4, 2), torch.ones(3, 4)
    w = rocpy.Weight(source.T.contiguous() if layout == "nk" else source, layout=layout)
    for _ in range(2):
        result = TRANSFORMS[transform](torch, lambda x: x @ w.matrix(), x)
        torch.testing.assert_close(result, TRANSFORMS[transform](torch, lambda x: x @ source, x))
    w.source.data.mul_(2)  # which nothing tells
    TRANSFORMS[transform](torch, lambda x: x @ w.matrix(), x)
    torch.testing.assert_close(rocpy.matmul(x, w), x @ (w.source.T if layout == "nk" else w.source))


@pytest.mark.torch
def test_a_weight_whose_matrix_was_handed_out_is_captured_as_it_was_read(torch):
    source, x = torch.ones(4, 4), torch.ones(2, 4)
    w, out = rocpy.Weight(source), torch.zeros(2, 4)
    rocpy.matmul(x, w, out=out)
    w.matrix()
    with rocpy.Stream() as stream:
        with stream.capture() as graph:
            rocpy.matmul(x, w, out=out, stream=stream)
            matrix = w.matrix()
        graph.launch(stream)
        stream.synchronize()
    assert (out == 4).all()
    assert (matrix == 1).all()
