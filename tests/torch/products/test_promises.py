# SPDX-License-Identifier: MIT
"""What the options promise of products that torch records, transforms or casts: what they promise of plain ones."""

import numpy as np
import pytest

import rocpy
import rocpy.epilogues

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

from rocpy.torch.operators import activations, products  # noqa: E402

ROWS = ((0, 1), (3, 10), (0, 65), (129, 130))
TANH = rocpy.epilogue(lambda x, scale: np.tanh(x) * scale)


def _operands(n=34):
    torch.manual_seed(0)
    return torch.randn(130, 67), torch.randn(67, n)


def _assert_rows(function, x):
    whole = function(x)
    for start, stop in ROWS:
        assert torch.equal(function(x[start:stop]), whole[start:stop]), (start, stop)
    return whole


def _transforms(w, epilogue):
    recorded = w.clone().requires_grad_()
    product = lambda x, b=w: rocpy.matmul(x, b, epilogue=epilogue)  # noqa: E731
    return {
        "recorded": lambda x: product(x, recorded).detach(),
        "vmap": torch.vmap(product),
        "vjp": lambda x: torch.func.vjp(product, x)[0],
    }


@pytest.mark.parametrize("transform", ["recorded", "vmap", "vjp"])
@pytest.mark.parametrize("epilogue", [rocpy.epilogues.swiglu, rocpy.epilogues.geglu, "gelu_erf"], ids=str)
def test_rows_do_not_depend_on_others(transform, epilogue):
    x, w = _operands()
    with rocpy.options(reproducible="batch"):
        whole = _assert_rows(_transforms(w, epilogue)[transform], x)
        if transform != "vmap":
            assert torch.equal(whole, rocpy.matmul(x, w, epilogue=epilogue))


def test_rows_by_themselves_are_rows_of_the_whole():
    x, w = _operands()
    w.requires_grad_()
    with rocpy.options(reproducible="batch"):
        inputs = {"epilogue_inputs": {"scale": 2.0}, "epilogue": TANH}
        whole = rocpy.matmul(x, w, **inputs)
        assert all(torch.equal(rocpy.matmul(x[i], w, **inputs), whole[i]) for i in range(3))


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(
    "layer",
    [
        lambda: rt.Linear(67, 34, activation=rocpy.epilogues.swiglu),
        lambda: rt.GatedMLP(67, 50, activation="gelu"),
        lambda: rt.GatedMLP(67, 50, activation="gelu", approximate="tanh", bias=True),
    ],
)
def test_rows_of_layers(layer, grad):
    layer, x = layer(), _operands()[0]
    expected = layer(x)
    with rocpy.options(reproducible="batch"), torch.set_grad_enabled(grad):
        torch.testing.assert_close(_assert_rows(layer, x), expected)


def test_a_gate_that_is_observed_is_refused_unless_it_is_exact():
    x = _operands()[0]
    for activation in ("relu", "silu"):
        layer = rt.GatedMLP(67, 50, activation=activation)
        layer.gate_up_proj.register_forward_hook(lambda *_: None)
        with rocpy.options(reproducible="batch"):
            if activation == "relu":
                _assert_rows(layer, x)
                continue
            with pytest.raises(rocpy.UnsupportedError, match=r"reproducible='batch'.* 'silu' .* omit the option"):
                layer(x)


@pytest.mark.parametrize("options", [{"reproducible": "batch"}, {"fallback": "error"}], ids=str)
def test_recorded_products_are_computed_as_others(options, monkeypatch):
    # As on a platform that has silu, but no epilogue that stores what its gradient reads.
    monkeypatch.setitem(activations._table, "silu", activations.Fused("silu", "silu_bias"))
    monkeypatch.setattr(products, "_recorded", products._recorded.__wrapped__)
    x, w = _operands()
    leaf, aux = w.clone().requires_grad_(), {"aux": torch.randn(130, 34)}
    with rocpy.options(**options):
        for name, more in (("dgelu_erf", aux), ("dgelu_bgrad", aux), ("clamp", {"clamp": (-1, 1)}), ("silu", {})):
            try:
                plain = rocpy.matmul(x, w, epilogue=name, **more)
            except rocpy.UnsupportedError:  # of a release that lacks it: so is the recorded one
                with pytest.raises(rocpy.UnsupportedError):
                    rocpy.matmul(x, leaf, epilogue=name, **more)
                continue
            recorded = rocpy.matmul(x, leaf, epilogue=name, **more)
            pairs = [(plain, recorded)] if isinstance(plain, torch.Tensor) else [(plain[0], recorded[0])]
            assert all(torch.equal(one, other) and other.requires_grad for one, other in pairs)
        for activation, function in ((None, lambda pre: pre), ("silu", torch.nn.functional.silu)):
            layer = rt.Linear(67, 34, activation=activation)
            try:
                with torch.no_grad():
                    expected = layer(x)
            except rocpy.UnsupportedError:
                with pytest.raises(rocpy.UnsupportedError):
                    layer(x)
                continue
            y = layer(x)
            assert torch.equal(y, expected)
            (gradient,) = torch.autograd.grad(y.sum(), layer.weight)
            pre = torch.nn.functional.linear(x, layer.weight, layer.bias)
            (reference,) = torch.autograd.grad(function(pre).sum(), layer.weight)
            torch.testing.assert_close(gradient, reference, rtol=1e-3, atol=1e-3)


def test_groups_in_one_operand_are_refused_where_torch_computes_their_epilogue():
    x, w = _operands()
    stacked = torch.stack([w, w]).requires_grad_()
    with rocpy.options(fallback="error"):
        rocpy.grouped_matmul(x, stacked, offsets=[0, 60, 130])
        with pytest.raises(rocpy.UnsupportedError, match=r"'silu'.*fallback='error'.* lists of operands"):
            rocpy.grouped_matmul(x, stacked, offsets=[0, 60, 130], epilogue="silu")
        rocpy.grouped_matmul([x], [stacked[0]], epilogue="silu")


def test_entries_of_a_batch_are_refused_where_torch_computes_their_epilogue():
    x, w = _operands()
    product = lambda w: rocpy.matmul(x[:2], w, epilogue=rocpy.epilogues.geglu)  # noqa: E731
    with rocpy.options(fallback="error"), pytest.raises(rocpy.UnsupportedError, match=r"'geglu'.* entries of a batch"):
        torch._vmap_internals._vmap(product)(torch.stack([w, w]))
