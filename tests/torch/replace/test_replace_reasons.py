# SPDX-License-Identifier: MIT
"""The report of replace_linear names what really keeps a layer and its activation apart."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")
from torch_blocks import Base  # noqa: E402

pytestmark = pytest.mark.torch
nn = torch.nn
F = nn.functional


class DropoutModule(Base):
    def forward(self, x):
        return self.fc2(self.act(self.drop(self.fc1(x))))


class DropoutByLines(Base):
    def forward(self, x):
        x = self.fc1(x)
        x = self.drop(x)
        x = self.act(x)
        return self.fc2(x)


class DropoutFunction(Base):
    def forward(self, x):
        return self.fc2(self.act(F.dropout(self.fc1(x), 0.1, self.training)))


class DropoutInABranch(Base):
    def forward(self, x):
        h = self.fc1(x)
        if self.training:
            h = self.drop(h)
        return self.fc2(self.act(h))


class Norm(Base):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(10)

    def forward(self, x):
        return self.fc2(self.act(self.norm(self.fc1(x))))


class Scaled(Base):
    def forward(self, x):
        return self.fc2(self.act(self.fc1(x) * 0.5))


class QuickGELU(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Quick(Base):
    def __init__(self):
        super().__init__()
        self.act = QuickGELU()


class QuickInline(Base):
    def forward(self, x):
        h = self.fc1(x)
        return self.fc2(h * torch.sigmoid(1.702 * h))


def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


class QuickFunction(Base):
    def forward(self, x):
        return self.fc2(quick_gelu(self.fc1(x)))


class Leaky(Base):
    def forward(self, x):
        return self.fc2(F.leaky_relu(self.fc1(x), 0.2))


REASONS = {
    DropoutModule: "fc1 is followed by drop, a Dropout, before any activation",
    DropoutByLines: "fc1 is followed by drop, a Dropout, before any activation",
    DropoutFunction: "fc1 is followed by F.dropout, a dropout, before any activation",
    DropoutInABranch: "`if self.training:`",
    Norm: "fc1 is followed by norm, a LayerNorm, which is not one of rocpy's activations",
    Scaled: "the result of fc1 is read by more than an activation: line ",
    Quick: "fc1 is followed by act, a QuickGELU: none of relu, gelu, silu and sigmoid",
    QuickInline: "the result of fc1 is read by more than an activation",
    QuickFunction: "`quick_gelu(self.fc1(x))`",
    Leaky: "fc1 is followed by F.leaky_relu with 0.2",
}


@pytest.mark.parametrize("cls", REASONS, ids=lambda cls: cls.__name__)
def test_the_obstacle_is_named(cls):
    report = rt.replace_linear(nn.Sequential(cls()))
    assert not report.fused
    (row,) = report.not_fused
    assert (row.name, row.kind) == ("0", cls.__name__)
    assert REASONS[cls] in row.reason


@pytest.mark.parametrize(
    ("between", "text"),
    [
        (nn.Dropout(0.1), "0 is followed by 1, a Dropout, before any activation"),
        (nn.AlphaDropout(0.1), "0 is followed by 1, a AlphaDropout, before any activation"),
        (nn.LayerNorm(4), "0 is followed by 1, a LayerNorm, which is not one of rocpy's activations"),
        (QuickGELU(), "0 is followed by 1, a QuickGELU: none of relu, gelu, silu and sigmoid"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_obstacle_in_a_sequence_is_named(between, text):
    report = rt.replace_linear(nn.Sequential(nn.Linear(4, 4), between, nn.ReLU(), nn.Linear(4, 4)))
    assert [(row.name, row.reason) for row in report.not_fused] == [("0", text)]


def test_dropout_behind_the_activation_is_no_obstacle():
    class Behind(Base):
        def forward(self, x):
            return self.drop(self.fc2(self.drop(self.act(self.fc1(x)))))

    report = rt.replace_linear(Behind())
    assert [row.computes for row in report.fused] == ["relu"]
    assert not report.not_fused


def test_what_no_longer_works_is_noted():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    report = rt.replace_linear(layer)
    assert any("fast path" in note for note in report.notes)
    assert not rt.replace_linear(nn.ReLU()).notes
