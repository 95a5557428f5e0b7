# SPDX-License-Identifier: MIT
"""Layers that may pack their weights, and what torch computes with the same parameters."""

from __future__ import annotations

import torch
from torch import nn

import rocpy
import rocpy.torch as rt


def close(x, y):
    torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)


class Gate(nn.Module):
    """The gated block as models write it."""

    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(12, 16, bias=False), nn.Linear(12, 16, bias=False)
        self.down_proj = nn.Linear(16, 12, bias=False)

    def forward(self, x):
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


def replaced():
    model = nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 12))
    rt.replace_linear(model)
    return model


class OfWeight(nn.Module):
    """A product with a `rocpy.Weight` of a parameter."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(12, 20)
        self.weight = rocpy.Weight.from_linear(self.inner)

    def forward(self, x):
        if torch.is_grad_enabled():
            return self.inner(x)
        return rocpy.matmul(x, self.weight, epilogue="bias")


def mlp_reference(state):
    reference = nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 12))
    names = {"fc1.weight": "0.weight", "fc1.bias": "0.bias", "fc2.weight": "2.weight", "fc2.bias": "2.bias"}
    reference.load_state_dict({names[name]: value for name, value in state.items()})
    return reference


def loaded(module, state):
    module.load_state_dict(state)
    return module


KINDS = {
    "Linear": (
        lambda: rt.Linear(12, 20, activation="relu"),
        lambda state: nn.Sequential(loaded(nn.Linear(12, 20), state), nn.ReLU()),
    ),
    "MLP": (lambda: rt.MLP(12, 20), mlp_reference),
    "GatedMLP": (lambda: rt.GatedMLP(12, 16), lambda state: loaded(Gate(), state)),
    "replaced": (
        replaced,
        lambda state: loaded(nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 12)), state),
    ),
    "Weight": (
        OfWeight,
        lambda state: loaded(nn.Linear(12, 20), {name.removeprefix("inner."): x for name, x in state.items()}),
    ),
}


def packed_layer(kind, packs):
    torch.manual_seed(3)
    module = KINDS[kind][0]().eval()
    if packs == "frozen":
        rt.freeze(module)
    elif packs == "pack":
        for layer in module.modules():
            if isinstance(layer, rt.Linear):
                layer.pack = True
    return module


def check(kind, module, x):
    with torch.no_grad():
        x = x.to(next(module.parameters()).dtype)
        close(module(x), KINDS[kind][1](module.state_dict()).to(x.dtype)(x))


LAYERS = [kind for kind in KINDS if kind != "Weight"]
