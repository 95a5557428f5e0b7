# SPDX-License-Identifier: MIT
"""What a layer cannot take is refused by the name that it has there, and so is what names no layer or activation."""

from __future__ import annotations

import re

import numpy as np
import pytest

import rocpy
from rocpy.errors import InvalidOperandError, InvalidProblemError, RocpyError

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch
DOUBLED = rocpy.epilogue(lambda x: x * 2.0)
ADDED = rocpy.epilogue(lambda x, residual: x + residual)
OTHERS = [1.0, [1.0] * 4, np.ones((4, 4), np.float32), "text", None]
LAYERS = {
    "Linear": lambda: rt.Linear(4, 4),
    "Linear, packed": lambda: rt.Linear(4, 4, pack=True).eval(),
    "Linear, custom": lambda: rt.Linear(4, 4, activation=DOUBLED),
    "Linear, custom, packed": lambda: rt.Linear(4, 4, activation=DOUBLED, pack=True).eval(),
    "MLP": lambda: rt.MLP(4, 4),
    "MLP, packed": lambda: rt.MLP(4, 4, pack=True).eval(),
    "MLP, custom": lambda: rt.MLP(4, 4, activation=DOUBLED),
    "GatedMLP": lambda: rt.GatedMLP(4, 4),
    "replaced": lambda: replaced(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())),
}


def replaced(model):
    rt.replace_linear(model)
    return model


@pytest.mark.parametrize("records", [True, False])
@pytest.mark.parametrize("layer", LAYERS)
def test_an_input(layer, records):
    module = LAYERS[layer]()
    for value in OTHERS:
        with torch.set_grad_enabled(records), pytest.raises(InvalidOperandError) as raised:
            module(value)
        assert str(raised.value) == f"input: got {type(value).__name__}; a layer takes torch tensors"


@pytest.mark.parametrize("activation", [None, "gelu", DOUBLED], ids=["none", "gelu", "custom"])
@pytest.mark.parametrize("name", ["input", "weight", "bias"])
@pytest.mark.parametrize("requires_grad", [True, False])
def test_operands_of_the_function(name, activation, requires_grad):
    tensors = {
        "input": torch.ones(4, 4),
        "weight": torch.ones(4, 4, requires_grad=requires_grad),
        "bias": torch.ones(4),
    }
    for value in OTHERS:
        if name == "bias" and value is None:
            continue
        with pytest.raises(InvalidOperandError, match=rf"^{name}: got {type(value).__name__}; a layer takes torch"):
            rt.linear(**tensors | {name: value}, activation=activation)


@pytest.mark.parametrize("records", [True, False])
@pytest.mark.parametrize("layer", [name for name in LAYERS if name != "replaced"])
def test_a_sparse_input(layer, records):
    module = LAYERS[layer]()
    with torch.set_grad_enabled(records), pytest.raises(InvalidOperandError, match=r"^input: got a tensor of layout"):
        module(torch.ones(4, 4).to_sparse())


@pytest.mark.parametrize("activation", [None, "gelu", DOUBLED], ids=["none", "gelu", "custom"])
@pytest.mark.parametrize("name", ["input", "weight", "bias"])
@pytest.mark.parametrize("requires_grad", [True, False])
def test_sparse_operands_of_the_function(name, activation, requires_grad):
    tensors = {
        "input": torch.ones(4, 4, requires_grad=requires_grad),
        "weight": torch.ones(4, 4, requires_grad=requires_grad),
        "bias": torch.ones(4),
    }
    tensors[name] = tensors[name].detach().to_sparse()
    with pytest.raises(InvalidOperandError, match=rf"^{name}: got a tensor of layout torch.sparse_coo"):
        rt.linear(**tensors, activation=activation)


def dual(x):
    return torch.autograd.forward_ad.make_dual(x.detach(), torch.ones_like(x))


WRONG = {
    "a tangent": (dual, ("input", "weight", "bias", "residual"), "{}: it carries a forward-mode tangent"),
    "without memory": (
        lambda x: x.detach().to("meta"),
        ("input", "weight", "bias", "residual"),
        r"{}\S* (is )?on (cpu|meta)",
    ),
    "fake": (
        lambda x: torch._subclasses.FakeTensorMode().from_tensor(x.detach()),
        ("input", "weight", "bias", "residual"),
        "{}\\S* a fake tensor, beside (input|weight), a real one",
    ),
    "float64": (lambda x: x.detach().double(), ("input", "weight"), "{} is float64|layer's {} is float64"),
    "bool": (lambda x: x.detach() > 0, ("input",), "input is bool"),
    "short": (lambda x: x.detach()[..., :3], ("bias",), "bias: got shape .3,., expected length N = 4"),
    "a vector": (lambda x: x.detach()[0], ("weight",), "(weight|bias): got shape .4,."),
    "a batch": (lambda x: x.detach()[None], ("weight",), "weight: got shape .1, 4, 4., expected .N, K."),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch's own, in make_dual
@pytest.mark.parametrize("activation", ["gelu", DOUBLED, ADDED], ids=["gelu", "custom", "added"])
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("requires_grad", [True, False])
def test_operands_have_the_names_of_the_layers_parameters(wrong, activation, requires_grad):
    change, names, message = WRONG[wrong]
    inputs = {"epilogue_inputs": {"residual": torch.ones(4, 4)}} if activation is ADDED else {}
    for name in names if inputs else names[:3]:
        tensors = {"input": torch.ones(4, 4), "weight": torch.ones(4, 4, requires_grad=requires_grad)}
        tensors["bias"] = torch.ones(4)
        with torch.autograd.forward_ad.dual_level():
            if name == "residual":
                inputs = {"epilogue_inputs": {name: change(inputs["epilogue_inputs"][name])}}
            else:
                tensors[name] = change(tensors[name])
            with pytest.raises(RocpyError, match=message.replace("{}", name)) as raised:
                rt.linear(**tensors, activation=activation, **inputs)
        assert not re.search(r"\b[abc]( is|:| on)|beside [abc],", str(raised.value))


def test_a_compiled_layer_has_them_too():
    layer = torch.compile(rt.Linear(4, 4, activation=DOUBLED), backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="input: .?shape .5, 3., whose last axis has 3 elements.?; the layer takes 4"):
        layer(torch.ones(5, 3))
    with torch.autocast("cpu"):
        assert layer(torch.ones(5, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("layer", ["MLP", "MLP, custom", "replaced"])
def test_operands_of_two_layers_have_names_that_all_modules_know(layer):
    module = LAYERS[layer]()
    if layer == "replaced":
        module.append(rt.Linear(4, 4))
    names = [name for name, _ in module.named_parameters()]
    for name, known in zip(
        names, ("first layer's weight", "first layer's bias", "second layer's weight"), strict=False
    ):
        with (
            torch.autograd.forward_ad.dual_level(),
            pytest.raises(RocpyError, match=f"^the {known}: it carries a forward-mode tangent"),
        ):
            torch.func.functional_call(module, {name: dual(module.get_parameter(name))}, torch.ones(3, 4))
    with pytest.raises(InvalidOperandError, match="^weight is on cpu and input on meta"):
        module(torch.ones(3, 4, device="meta"))
    with pytest.raises(InvalidProblemError, match=r"^input: shape \(3, 5\)"):
        module(torch.ones(3, 5))


@pytest.mark.parametrize("activation", [["gelu"], {}, {"gelu"}, ("gelu",), 1, b"gelu"], ids=str)
def test_an_activation(activation):
    x = torch.ones(4, 4)
    for call in (
        lambda: rt.linear(x, x, activation=activation),
        lambda: rt.Linear(4, 5, activation=activation),
        lambda: rt.MLP(4, 5, activation=activation),
    ):
        with pytest.raises(InvalidProblemError, match=r"^activation: got .*, expected one of None, 'none', 'relu'"):
            call()
    with pytest.raises(InvalidProblemError, match="^activation: got"):
        rt.GatedMLP(4, 5, activation=activation)


@pytest.mark.parametrize("approximate", [["tanh"], None, 1], ids=str)
def test_an_approximation(approximate):
    for make in (rt.Linear, rt.MLP, rt.GatedMLP):
        with pytest.raises(InvalidProblemError, match="^approximate: got"):
            make(4, 5, activation="gelu", approximate=approximate)


@pytest.mark.parametrize("skip", [5, None, [5], ["0", None], b"0", 1.5, {1: "0"}], ids=str)
def test_names_to_skip(skip):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    with pytest.raises(InvalidOperandError, match=r"^skip: got .*, expected names of layers"):
        rt.replace_linear(model, skip=skip)
    assert type(model[0]) is torch.nn.Linear


@pytest.mark.parametrize(
    "skip",
    ["0", ["0"], ("0", "1.*"), {"0"}, "*", lambda name, module: name == "0"],
    ids=lambda skip: type(skip).__name__,
)
def test_layers_are_skipped(skip):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    assert not rt.replace_linear(model, skip=skip).replaced
