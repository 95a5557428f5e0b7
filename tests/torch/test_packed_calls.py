# SPDX-License-Identifier: MIT
"""Layers that may be packed compute with the parameters of this call: given for it, stacked, averaged."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")
layers = pytest.importorskip("packed_layers")

pytestmark = pytest.mark.torch
LAYERS, packed_layer, check, close = layers.LAYERS, layers.packed_layer, layers.check, layers.close


@pytest.fixture
def x():
    return torch.randn(6, 12, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("packs", ["default", "frozen"])
@pytest.mark.parametrize("kind", LAYERS)
def test_parameters_for_one_call_are_read(x, kind, packs):
    module = packed_layer(kind, packs)
    given = {name: value.detach() * 2 for name, value in module.named_parameters()}
    other = packed_layer(kind, "default")
    with torch.no_grad():
        for name, parameter in other.named_parameters():
            parameter.copy_(given[name])
        for _ in range(2):
            check(kind, module, x)
            close(torch.func.functional_call(module, given, (x,)), other(x))


@pytest.mark.parametrize("packs", ["default", "frozen"])
def test_an_ensemble_of_models_is_read(x, packs):
    modules = [packed_layer("Linear", packs) for _ in range(3)]
    with torch.no_grad():
        for factor, module in enumerate(modules):
            module.weight.mul_(factor)
            module(x)
        for module in modules:
            module.bias.add_(1)
        parameters, buffers = torch.func.stack_module_state(modules)
        base = copy.deepcopy(modules[0]).to("meta")
        found = torch.vmap(lambda p, b: torch.func.functional_call(base, (p, b), (x,)))(parameters, buffers)
        close(found, torch.stack([module(x) for module in modules]))


@pytest.mark.parametrize("packs", ["default", "frozen"])
@pytest.mark.parametrize("kind", LAYERS)
def test_averages_follow(x, kind, packs):
    module = packed_layer(kind, packs)
    average = torch.optim.swa_utils.AveragedModel(
        module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5), use_buffers=True
    )
    for _ in range(3):
        with torch.no_grad():
            for p in module.parameters():
                p.mul_(2)
        average.update_parameters(module)
        check(kind, module, x)
        check(kind, average.module, x)
