# SPDX-License-Identifier: MIT
"""A block of two layers for tests of replace_linear, and what it gives by torch's own functions."""

import torch
from torch import nn

import rocpy.torch as rt

F = nn.functional


class Base(nn.Module):
    """Two layers and an activation."""

    def __init__(self):
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 6)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


def plain(model, x):
    """What the two layers and ReLU give by torch's own functions."""
    hidden = F.linear(x, model.fc1.weight, model.fc1.bias).relu()
    return F.linear(hidden, model.fc2.weight, model.fc2.bias)


def pre(model, x):
    return F.linear(x, model.fc1.weight, model.fc1.bias)


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-11)


def replaced(cls, *, fused=None):
    torch.manual_seed(0)
    model = cls().double()
    report = rt.replace_linear(model)
    assert len(report.replaced) == 2
    if fused is not None:
        assert len(report.fused) == fused, report
    return model, report
