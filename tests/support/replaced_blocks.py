# SPDX-License-Identifier: MIT
"""Runs a script on a model as it is and on the same model after replace_linear: both must do the same."""

from __future__ import annotations

import copy

import torch
from torch import nn

import rocpy.torch as rt


class Block(nn.Module):
    """Two layers with an activation between: what is fused where it is certain."""

    factor = 1.0

    def __init__(self, act=None):
        super().__init__()
        self.up, self.down = nn.Linear(6, 10), nn.Linear(10, 6)
        self.act = nn.GELU() if act is None else act
        self.seen = []

    def forward(self, x):
        return self.down(self.act(self.up(x)))


def sample(rows=3):
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, 6, generator=generator, dtype=torch.float64)


def tensors_of(values):
    return [value.detach().clone() if isinstance(value, torch.Tensor) else copy.copy(value) for value in values]


def check_behaves_as_before(script, mode):
    """``script(model)`` drives a model and yields what it sees; the default of its second parameter makes the block."""
    make = script.__defaults__[0]
    torch.manual_seed(0)
    plain = nn.Sequential(make()).double().train(mode)
    replaced = copy.deepcopy(plain)
    if not isinstance(make, type):  # closures are not copied
        torch.manual_seed(0)
        replaced = nn.Sequential(make()).double().train(mode)
    report = rt.replace_linear(replaced)
    assert "replaced" in repr(report)
    expected = tensors_of(script(plain))
    seen = tensors_of(script(replaced))
    assert expected
    assert len(seen) == len(expected)
    for value, wanted in zip(seen, expected, strict=True):
        if isinstance(wanted, torch.Tensor):
            torch.testing.assert_close(value, wanted, rtol=1e-10, atol=1e-12)
        else:
            assert value == wanted
