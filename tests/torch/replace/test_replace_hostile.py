# SPDX-License-Identifier: MIT
"""Blocks whose forward depends on more than its layers: replaced or not, their own code decides at every call."""

from __future__ import annotations

import os
import time

import pytest

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")
from torch_blocks import Base, close, plain, pre, replaced  # noqa: E402

pytestmark = pytest.mark.torch
nn = torch.nn
F = nn.functional

FACTOR = 1.0
SEEN = []


@pytest.fixture
def x():
    return torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


# ---- what a forward does beside its layers ----


class StochasticDepth(Base):
    def forward(self, x):
        if self.training and torch.rand(()) < 0.5:
            return x
        return self.fc2(self.act(self.fc1(x)))


class EarlyReturn(Base):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return self.fc2(self.act(self.fc1(x)))


class Counts(Base):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return self.fc2(self.act(self.fc1(x)))


class KeepsResult(Base):
    def forward(self, x):
        self.last = self.act(self.fc1(x))
        return self.fc2(self.last)


class KeepsInDict(Base):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        self.kept["hidden"] = self.act(self.fc1(x))
        return self.fc2(self.kept["hidden"])


class Appends(Base):
    def forward(self, x):
        SEEN.append(x.shape)
        return self.fc2(self.act(self.fc1(x)))


class Times(Base):
    seconds = 0.0

    def forward(self, x):
        begin = time.perf_counter()
        y = self.fc2(self.act(self.fc1(x)))
        self.seconds += time.perf_counter() - begin
        return y


class Global(Base):
    def forward(self, x):
        return self.fc2(self.act(self.fc1(x))) * FACTOR


class Environment(Base):
    def forward(self, x):
        y = self.fc2(self.act(self.fc1(x)))
        return -y if os.environ.get("ROCPY_TEST_SIGN") else y


class ClassAttribute(Base):
    factor = 1.0

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x))) * self.factor


class Compiling(Base):
    def forward(self, x):
        return x if torch.compiler.is_compiling() else self.fc2(self.act(self.fc1(x)))


class Raises(Base):
    def forward(self, x):
        y = self.act(self.fc1(x))
        if y.shape[-1] != 10:
            raise ValueError("no")
        try:
            return self.fc2(y)
        except RuntimeError:
            return y


class Closes(Base):
    """Its forward is made by a function."""


def _closing(factor):
    def forward(self, x):
        return self.fc2(self.act(self.fc1(x))) * factor

    return forward


Closes.forward = _closing(3.0)


class Doubles(Base):
    def forward(self, x):
        return super().forward(x) * 2


class Wrapped(Base):
    @torch.no_grad()
    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


NOT_STRAIGHT = {
    StochasticDepth: "if self.training",
    EarlyReturn: "if x.sum",
    Counts: "self.calls += 1",
    KeepsResult: "self.last = ",
    KeepsInDict: "self.kept",
    Appends: "SEEN.append",
    Times: "time.perf_counter",
    Environment: "os.environ",
    ClassAttribute: "self.factor",
    Compiling: "is_compiling",
    Raises: "if y.shape",
}


@pytest.mark.parametrize("cls", NOT_STRAIGHT, ids=lambda cls: cls.__name__)
def test_a_forward_that_does_more_is_left_alone_and_its_line_is_told(cls):
    _, report = replaced(cls, fused=0)
    (row,) = report.not_fused
    assert NOT_STRAIGHT[cls] in row.reason
    assert "test_replace_hostile.py" in row.reason
    assert "line " in row.reason


@pytest.mark.parametrize("cls", [Closes, Doubles, Wrapped], ids=lambda cls: cls.__name__)
def test_a_forward_that_cannot_be_read_is_left_alone(cls, x):
    model, report = replaced(cls, fused=0)
    assert report.not_fused
    close(model(x), plain(model, x) * {Closes: 3, Doubles: 2, Wrapped: 1}[cls])
    assert model(x.requires_grad_()).requires_grad is (cls is not Wrapped)


def test_stochastic_depth_goes_on(x):
    model, _ = replaced(StochasticDepth)
    skipped = sum(model(x) is x for _ in range(200))
    assert 50 < skipped < 150
    assert model.eval()(x) is not x


def test_early_return(x):
    model, _ = replaced(EarlyReturn)
    assert model(x.abs()) is not None
    y = x.abs()
    assert model(y) is y
    close(model(-y), plain(model, -y))


def test_what_forward_leaves_behind(x):
    for cls in (Counts, KeepsResult, KeepsInDict, Appends, Times):
        model, _ = replaced(cls)
        SEEN.clear()
        for _ in range(3):
            close(model(x), plain(model, x))
        hidden = pre(model, x).relu()
        if cls is Counts:
            assert model.calls == 3
        elif cls is KeepsResult:
            close(model.last, hidden)
        elif cls is KeepsInDict:
            close(model.kept["hidden"], hidden)
        elif cls is Appends:
            assert [x.shape] * 3 == SEEN
        else:
            assert model.seconds > 0


def test_what_forward_reads_outside(x, monkeypatch):
    model, _ = replaced(Global)
    close(model(x), plain(model, x))
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    close(model(x), plain(model, x) * 5)
    model, _ = replaced(Environment)
    monkeypatch.setenv("ROCPY_TEST_SIGN", "1")
    close(model(x), -plain(model, x))
    model, _ = replaced(ClassAttribute)
    monkeypatch.setattr(ClassAttribute, "factor", 7.0)
    close(model(x), plain(model, x) * 7)


def test_the_compiler_is_asked_at_each_call(x):
    torch._dynamo.reset()
    model, _ = replaced(Compiling)
    close(model(x), plain(model, x))
    close(torch.compile(model, backend="eager")(x), x)
    close(model(x), plain(model, x))
    torch._dynamo.reset()


def test_errors_are_the_blocks_own(x):
    model, _ = replaced(Raises)
    model.fc1 = nn.Linear(6, 9).double()
    with pytest.raises(ValueError, match="no"):
        model(x)
