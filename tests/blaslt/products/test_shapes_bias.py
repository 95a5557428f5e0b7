# SPDX-License-Identifier: MIT
"""Biases of every shape: along rows, along columns, one for each batch entry, and what each costs in copies."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import rocpy
from rocpy.testing import bounds, compare, evaluate
from rocpy.testing.runner import to_numpy, to_torch

EPILOGUES = ("bias", "relu_bias", "gelu_bias", "silu_bias", "clamp_bias", "gelu_aux_bias", "relu_aux_bias")


def expect(outputs, a, b, c=None, **options):
    """Compare what a product gave with the oracle, whose bias broadcasts as numpy's do."""
    expected = evaluate(a, b, c, **options)
    limits = bounds(expected, a.dtype)
    result, extra = outputs if isinstance(outputs, tuple) else (outputs, {})
    for name, wanted in {"result": expected.result, **expected.aux}.items():
        found = to_numpy(result if name == "result" else extra[name])
        assert found.dtype == a.dtype
        item = compare(found, wanted, limits[name], name=name)
        assert item.ok, item.message


def given(rng, batch, m, n, k=5, dtype=np.float32):
    return (
        rng.standard_normal((*batch, m, k)).astype(dtype),
        rng.standard_normal((*batch, k, n)).astype(dtype),
    )


def settings_of(epilogue):
    return {"epilogue": epilogue} | ({"clamp": (-0.5, 0.75)} if "clamp" in epilogue else {})


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("extents", [(4, 6), (1, 6), (4, 1), (70, 130), (0, 6), (4, 0)], ids=str)
@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (0,)], ids=str)
def test_bias_per_row_in_the_function_form_and_in_a_plan(epilogue, extents, batch, rng):
    m, n = extents
    if (m, 1) == (*batch, n):
        pytest.skip("that shape is the bias of each batch entry")
    a, b = given(rng, batch, m, n)
    options = settings_of(epilogue)
    shapes = {(m, 1), (*batch, m, 1), (*(1 for _ in batch), m, 1)}
    for shape in shapes:
        bias = rng.standard_normal(shape, dtype=np.float32)
        outputs = rocpy.matmul(a, b, bias=bias, **options)
        expect(outputs, a, b, bias=bias, **options)
        result = outputs[0] if isinstance(outputs, tuple) else outputs
        assert result.flags.c_contiguous
        with rocpy.Matmul(a, b, bias=bias, **options) as mm:
            expect(mm.execute(), a, b, bias=bias, **options)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_bias_per_row_in_other_types(dtype, rng):
    a, b = given(rng, (2,), 7, 9, dtype=dtype)
    bias = rng.standard_normal((7, 1)).astype(dtype)
    expect(rocpy.matmul(a, b, epilogue="gelu_bias", bias=bias), a, b, epilogue="gelu_bias", bias=bias)


def test_bias_per_row_with_a_weight(rng):
    a, b = given(rng, (), 7, 9)
    bias, row = rng.standard_normal((7, 1), dtype=np.float32), rng.standard_normal(9, dtype=np.float32)
    weights = (
        rocpy.Weight(b),
        rocpy.Weight(b, bias=row),
        rocpy.Weight(np.ascontiguousarray(b.T), layout="nk"),
        rocpy.Weight(b[:, ::-1].copy()[:, ::-1]),
    )
    for weight in weights:
        for epilogue in ("bias", "gelu_bias", "relu_aux_bias"):
            outputs = rocpy.matmul(a, weight, epilogue=epilogue, bias=bias)
            expect(outputs, a, b, epilogue=epilogue, bias=bias)
            with rocpy.Matmul(a, weight, epilogue=epilogue, bias=bias) as mm:
                expect(mm.execute(), a, b, epilogue=epilogue, bias=bias)
                mm.reset_operands(b=rocpy.Weight(2 * b))
                expect(mm.execute(), a, 2 * b, epilogue=epilogue, bias=bias)
        assert rocpy.explain(a, weight, epilogue="bias", bias=bias).packed is False
        weight.close()
        with pytest.raises(rocpy.ClosedError):
            rocpy.matmul(a, weight, epilogue="bias", bias=bias)


@pytest.mark.parametrize("order", ["rows", "columns", "padded columns", "spread"])
def test_bias_per_row_into_out(order, rng):
    store = {
        "rows": lambda batch: np.empty((*batch, 7, 9), np.float32),
        "columns": lambda batch: np.empty((*batch, 9, 7), np.float32).swapaxes(-1, -2),
        "padded columns": lambda batch: np.empty((*batch, 9, 12), np.float32)[..., 2:9].swapaxes(-1, -2),
        "spread": lambda batch: np.empty((*batch, 14, 18), np.float32)[..., ::2, ::2],
    }
    for batch in ((), (3,)):
        a, b = given(rng, batch, 7, 9)
        bias = rng.standard_normal((7, 1), dtype=np.float32)
        for epilogue in ("gelu_bias", "gelu_aux_bias"):
            out = store[order](batch)
            outputs = rocpy.matmul(a, b, epilogue=epilogue, bias=bias, out=out)
            assert (outputs[0] if isinstance(outputs, tuple) else outputs) is out
            expect(outputs, a, b, epilogue=epilogue, bias=bias)
            with rocpy.Matmul(a, b, epilogue=epilogue, bias=bias) as mm:
                out = store[order](batch)
                expect(mm.execute(out=out), a, b, epilogue=epilogue, bias=bias)
                with pytest.raises(rocpy.InvalidProblemError, match=r"out: shape .*7, 9"):
                    mm.execute(out=np.empty((*batch, 9, 7), np.float32))


def test_bias_per_row_with_c(rng):
    for batch in ((), (2,)):
        a, b = given(rng, batch, 7, 9)
        bias = rng.standard_normal((7, 1), dtype=np.float32)
        for shape in ((7, 9), (9,), (7, 1), (*batch, 7, 9)):
            c = rng.standard_normal(shape, dtype=np.float32)
            for view in (c, np.asfortranarray(c)):
                options = {"alpha": 0.5, "beta": 2.0, "epilogue": "relu_bias", "bias": bias}
                expect(rocpy.matmul(a, b, view, **options), a, b, c, **options)
                with rocpy.Matmul(a, b, view, **options) as mm:
                    expect(mm.execute(), a, b, c, **options)


@pytest.mark.parametrize("location", ["device", "host"])
def test_bias_per_row_with_c_in_buffers(location, rng):
    def stored(array):
        buffer = rocpy.Buffer(array.shape, array.dtype, location=location)
        buffer.copy_from(array)
        return buffer

    a, b = given(rng, (2,), 4, 6)
    bias = rng.standard_normal((4, 1), dtype=np.float32)
    for shape in ((2, 4, 6), (6,)):
        c = rng.standard_normal(shape, dtype=np.float32)
        operands = [stored(array) for array in (a, b, c)]
        more = {"beta": 0.5, "epilogue": "relu_aux_bias"}
        expect(rocpy.matmul(*operands, bias=stored(bias), **more), a, b, c, bias=bias, **more)
        with rocpy.Matmul(*operands, bias=stored(bias), **more) as mm:
            expect(mm.execute(), a, b, c, bias=bias, **more)
            mm.reset_operands(c=stored(-c))
            expect(mm.execute(), a, b, -c, bias=bias, **more)


def test_c_in_rows_goes_with_out_in_columns(rng):
    a, b = given(rng, (), 7, 9)
    c = rng.standard_normal((7, 9), dtype=np.float32)
    out = np.empty((7, 9), np.float32, order="F")
    expect(rocpy.matmul(a, b, c, alpha=2.0, beta=0.5, out=out), a, b, c, alpha=2.0, beta=0.5)


def test_bias_per_row_of_any_strides(rng):
    a, b = given(rng, (3,), 7, 9)
    store = rng.standard_normal((3, 14, 2), dtype=np.float32)
    for bias in (store[:, ::2, :1], store[:, :7, 1:], store[:, 6::-1, :1], store[:1, :7, :1], store[0, ::2, :1]):
        expect(rocpy.matmul(a, b, epilogue="bias", bias=bias), a, b, epilogue="bias", bias=bias)


def test_bias_per_row_of_torch_tensors(torch, rng):
    a, b = given(rng, (2,), 7, 9)
    bias = rng.standard_normal((7, 1), dtype=np.float32)
    for epilogue in ("gelu_bias", "relu_aux_bias"):
        outputs = rocpy.matmul(to_torch(a), to_torch(b), epilogue=epilogue, bias=to_torch(bias))
        result = outputs[0] if isinstance(outputs, tuple) else outputs
        assert type(result) is torch.Tensor
        assert result.is_contiguous()
        expect(outputs, a, b, epilogue=epilogue, bias=bias)
    out = torch.empty(2, 7, 9)
    before = out._version
    rocpy.matmul(to_torch(a), to_torch(b), epilogue="bias", bias=to_torch(bias), out=out)
    assert out._version > before
    out = torch.empty(2, 9, 7).mT
    rocpy.matmul(to_torch(a), to_torch(b), epilogue="bias", bias=to_torch(bias), out=out)
    assert out._version > 0
    expect(out, a, b, epilogue="bias", bias=bias)


def test_what_a_bias_per_row_copies_is_said(rng):
    a, b = given(rng, (), 7, 9)
    bias = rng.standard_normal((7, 1), dtype=np.float32)
    found = rocpy.explain(a, b, epilogue="bias", bias=bias)
    assert found.copies[-1] == "result"
    assert "result" in str(found)
    assert "result" not in rocpy.explain(a[:1], b, epilogue="bias", bias=bias[:1]).copies
    with rocpy.options(copies="error"):
        with pytest.raises(rocpy.UnsupportedError, match=r"bias: shape \(7, 1\).*column-major"):
            rocpy.matmul(a, b, epilogue="bias", bias=bias)
        with pytest.raises(rocpy.UnsupportedError, match=r"bias: shape \(7, 1\).*column-major"):
            rocpy.Matmul(a, b, epilogue="bias", bias=bias)
        out = np.empty((7, 9), np.float32, order="F")
        expect(rocpy.matmul(a, b, epilogue="bias", bias=bias, out=out), a, b, epilogue="bias", bias=bias)
        expect(rocpy.matmul(a[:1], b, epilogue="bias", bias=bias[:1]), a[:1], b, epilogue="bias", bias=bias[:1])


def test_a_bias_for_each_batch_entry_in_all_its_forms(rng):
    for batch, n in itertools.product(((3,), (2, 3), (2, 1, 3)), (1, 6)):
        a, b = given(rng, batch, 4, n)
        for axes in range(len(batch) + 1):
            full = batch[len(batch) - axes :]
            for mask in itertools.product((False, True), repeat=axes):
                shape = (*(1 if one else extent for one, extent in zip(mask, full, strict=True)), n)
                bias = rng.standard_normal(shape, dtype=np.float32)
                if shape[-2:] == (4, 1):
                    continue
                outputs = rocpy.matmul(a, b, epilogue="gelu_bias", bias=bias)
                expect(outputs, a, b, epilogue="gelu_bias", bias=bias)


def test_a_shape_that_is_both_is_the_bias_of_each_batch_entry(rng):
    a, b = given(rng, (4,), 4, 1)
    bias = rng.standard_normal((4, 1), dtype=np.float32)
    found = rocpy.matmul(a, b, epilogue="bias", bias=bias)
    np.testing.assert_allclose(found, a @ b + bias[:, None], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(4,), (6, 1), (2, 4, 1), (1, 4), (4, 6), (3, 4, 6), (), (6, 4, 1), (1, 1, 4, 1)])
def test_a_bias_of_another_shape_is_refused(shape, rng):
    a, b = given(rng, (3,), 4, 6)
    with pytest.raises(rocpy.InvalidProblemError, match=r"bias: got shape .*N = 6.*\(3, 6\).*\(4, 1\)"):
        rocpy.matmul(a, b, epilogue="bias", bias=np.ones(shape, np.float32))
    with pytest.raises(rocpy.InvalidProblemError, match="bias"):
        rocpy.matmul(a[0, 0], b, epilogue="bias", bias=np.ones((1, 1), np.float32))
