# SPDX-License-Identifier: MIT
"""Modes and tensor classes that override torch's functions decide what a layer computes, as in nn.Linear."""

from __future__ import annotations

import pytest

import rocpy

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch
F = torch.nn.functional
DOUBLED = rocpy.epilogue(lambda x: x * 2)
SHIFTED = rocpy.epilogue(lambda x, bias: x + bias)


def negated(function, result):
    return -result if function is F.linear else result


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return negated(function, function(*args, **(kwargs or {})))


class Negated(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return negated(function, super().__torch_function__(function, types, args, kwargs or {}))


class Marked(torch.Tensor):
    pass


def replaced(frozen):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4)).eval()
    rt.replace_linear(model)
    if frozen:
        rt.freeze(model)
    return model


LAYERS = {
    "Linear": lambda: rt.Linear(4, 4),
    "packed": lambda: rt.Linear(4, 4, pack=True).eval(),
    "relu": lambda: rt.Linear(4, 4, activation="relu"),
    "epilogue": lambda: rt.Linear(4, 4, activation=DOUBLED),
    "MLP": lambda: rt.MLP(4, 8),
    "GatedMLP": lambda: rt.GatedMLP(4, 8),
    "replaced": lambda: replaced(False),
    "frozen": lambda: replaced(True),
}
ACTIVATIONS = {"Linear": None, "packed": None, "relu": torch.relu, "epilogue": lambda x: 2 * x}


@pytest.mark.parametrize("name", LAYERS)
def test_overrides_of_linear(name):
    layer, x = LAYERS[name](), torch.randn(3, 4)
    with torch.no_grad():
        plain = layer(x)
        with Mode():
            found = layer(x)
        of_class = layer(x.as_subclass(Negated))
        assert type(layer(x.as_subclass(Marked))) is Marked
        with torch.device("cpu"), rt.counters() as counts:  # a mode of torch's own
            torch.testing.assert_close(layer(x), plain)
    assert counts.layers + counts.matmuls > 0 or name == "epilogue"
    torch.testing.assert_close(of_class.as_subclass(torch.Tensor), found)
    assert not torch.equal(found, plain)
    if name in ACTIVATIONS:
        activation = ACTIVATIONS[name] or (lambda y: y)
        torch.testing.assert_close(found, activation(-F.linear(x, layer.weight, layer.bias)))


def test_an_epilogue_that_takes_the_bias():
    layer, x = rt.Linear(4, 4, activation=SHIFTED), torch.randn(3, 4)
    with Mode():
        found = layer(x)
    torch.testing.assert_close(found, layer.bias - x @ layer.weight.T)
