# SPDX-License-Identifier: MIT
"""Epilogues of the user's: numbers of every kind as inputs, and graphs, whoever computes or records the product."""

from __future__ import annotations

import decimal
import fractions

import numpy as np
import pytest

import rocpy

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),  # torch's own
]
SCALED = rocpy.epilogue(lambda x, s: x * s)
TWO = rocpy.epilogue(lambda x, s: (x * s, x + s))
A, B = torch.arange(12.0).reshape(3, 4), torch.arange(20.0).reshape(4, 5)
NUMBERS = [
    2, 2.0, True, np.float32(2), np.float64(2), np.int64(2), np.uint8(2), np.True_, np.longdouble(2),
    fractions.Fraction(1, 4), decimal.Decimal(2),
]  # fmt: skip


def product(a, value, epilogue=SCALED):
    return rt.matmul(a, B, epilogue=epilogue, epilogue_inputs={"s": value})


def in_autocast(value):
    with torch.autocast("cpu"):
        return product(A, value).float()


def of_layer(layer, value):
    layer = layer(4, 5, activation=SCALED)
    result = layer(A, s=value)
    result.sum().backward()
    return result - layer(A, s=float(value))


CALLS = {
    "plain": lambda value: product(A, value),
    "recorded": lambda value: product(A.clone().requires_grad_(), value).detach(),
    "mapped": lambda value: torch.vmap(lambda x: product(x, value))(A[None])[0],
    "traced": lambda value: torch.jit.trace(lambda a: product(a, value), (A,))(A),
    "symbolic": lambda value: torch.fx.symbolic_trace(lambda a: product(a, value))(A),
    "autocast": in_autocast,
}


@pytest.mark.parametrize("value", NUMBERS, ids=lambda value: type(value).__name__)
def test_numbers(value):
    expected = A @ B * float(value)
    for name, call in CALLS.items():
        torch.testing.assert_close(call(value), expected, rtol=2e-2 if name == "autocast" else 1e-6, atol=0)
    assert rt.matmul(A.to("meta"), B.to("meta"), epilogue=SCALED, epilogue_inputs={"s": value}).is_meta
    for layer in (rt.Linear, rt.MLP):
        assert not of_layer(layer, value).any()


@pytest.mark.parametrize("value", [2.0, np.float32(2), np.int64(2), np.True_])
def test_numbers_compile(value):
    torch.testing.assert_close(torch.compile(product, backend="aot_eager", fullgraph=True)(A, value), A @ B * value)


@pytest.mark.parametrize("value", [2j, np.complex64(2), np.datetime64(1, "s"), fractions.Fraction(10**400)], ids=str)
def test_what_is_no_real_number(value):
    for a in (A, A.clone().requires_grad_(), A.to("meta")):
        with pytest.raises(rocpy.InvalidOperandError, match=r"^epilogue_inputs\['s'\]: got .*a real number"):
            product(a, value)


@pytest.mark.parametrize("epilogue", [SCALED, TWO], ids=["one", "two"])
@pytest.mark.parametrize("recorded", [False, True])
def test_graphs_contain_the_operator(epilogue, recorded):
    s = torch.arange(5.0, requires_grad=recorded)

    def run(a, s):
        return product(a, s, epilogue)

    expected = run(A, s)
    traced, symbolic = torch.jit.trace(run, (A, s)), torch.fx.symbolic_trace(run)
    assert "rocpy::epilogue" in str(traced.graph)
    assert "rocpy.epilogue.default" in str(symbolic.graph)
    for graph in (traced, symbolic):
        torch.testing.assert_close(graph(A, s), expected)
        torch.testing.assert_close(graph(2 * A, s), run(2 * A, s))


@pytest.mark.parametrize("layer", [rt.Linear, rt.MLP])
@pytest.mark.parametrize("activation", ["gelu", rocpy.epilogue(lambda x: torch.tanh(x) * 2)], ids=["name", "epilogue"])
def test_layers_in_graphs(layer, activation):
    layer = layer(4, 5, activation=activation)
    for module in (layer, torch.nn.Sequential(layer)):
        for graph in (torch.fx.symbolic_trace(module), torch.jit.trace(module, (A,))):
            assert "rocpy" in str(graph.graph) or isinstance(graph, torch.jit.ScriptModule)
            torch.testing.assert_close(graph(A), module(A))
