# SPDX-License-Identifier: MIT
"""Blocks that read well and do something else than they seem to: replaced, they behave as before."""

from __future__ import annotations

import functools
import types
import weakref

import pytest

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")
blocks = pytest.importorskip("replaced_blocks")
from torch.utils.checkpoint import checkpoint  # noqa: E402

pytestmark = pytest.mark.torch
nn = torch.nn
F = nn.functional
Block, sample, check_behaves_as_before = blocks.Block, blocks.sample, blocks.check_behaves_as_before
CASES = []


def case(function):
    """Register a script; its second parameter's default makes the block."""
    CASES.append(function)
    return function


def gradients(model, y):
    model.zero_grad()
    y.square().sum().backward()
    return [p.grad for p in model.parameters()]


class Private(Block):
    def __init__(self):
        super().__init__()
        self.__act = nn.SiLU()
        self.act = nn.ReLU()

    def forward(self, x):
        return self.down(self.__act(self.up(x)))


@case
def a_name_that_its_class_mangles(model, make=Private):
    yield model(sample())


class Walrus(Block):
    def forward(self, x):
        return self.down(self.act(h := self.up(x)) + h)


@case
def an_intermediate_that_gets_a_name_inside(model, make=Walrus):
    y = model(sample())
    yield y
    yield from gradients(model, y)


class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.act = nn.Linear(6, 10), nn.Linear(10, 6), nn.Sigmoid()


class Renames(Block):
    def __init__(self):
        super().__init__()
        self.inner = Other()

    def forward(self, x):
        me, self = self, self.inner  # noqa: PLW0642
        return self.down(me.act(self.up(x)))


@case
def self_is_another(model, make=Renames):
    yield model(sample())


class Shadow:
    gelu = staticmethod(torch.tanh)


class ShadowsModule(Block):
    def forward(self, x, F=Shadow):  # noqa: N803
        return self.down(F.gelu(self.up(x)))


@case
def a_parameter_shadows_a_module(model, make=ShadowsModule):
    yield model(sample())
    yield model[0](sample(), F=F)


class TakesActivation(Block):
    def forward(self, x, *, act=F.relu):
        return self.down(act(self.up(x)))


@case
def the_caller_brings_the_activation(model, make=TakesActivation):
    yield model(sample())
    yield model[0](sample(), act=torch.tanh)
    TakesActivation.forward.__kwdefaults__["act"] = torch.sigmoid
    try:
        yield model(sample())
    finally:
        TakesActivation.forward.__kwdefaults__["act"] = F.relu


class Finally(Block):
    def forward(self, x):
        try:
            return self.down(self.act(self.up(x)))
        finally:
            self.seen.append(x.shape)


@case
def something_happens_behind_the_return(model, make=Finally):
    yield model(sample())
    yield model[0].seen


class Late(Block):
    def forward(self, x):
        def run(h):
            return act(h)

        act = self.act
        h = self.up(x)
        act = torch.tanh
        return self.down(run(h))


@case
def a_closure_sees_what_comes_later(model, make=Late):
    yield model(sample())


class WritesIntoHidden(Block):
    def __init__(self):
        super().__init__(nn.ReLU(inplace=True))

    def forward(self, x):
        h = self.up(x)
        y = self.act(h)
        return self.down(y) + h.sum()


@case
def an_activation_writes_into_the_layers_result(model, make=WritesIntoHidden):
    y = model(sample())
    yield y
    yield from gradients(model, y)
    # A hook's record of the layer's result is written over as well.
    kept = []
    handle = model[0].up.register_forward_hook(lambda *args: kept.append(args[2]))
    with torch.no_grad():
        model(sample())
    handle.remove()
    yield bool((kept[0] >= 0).all())


class Changed(Block):
    def forward(self, x):
        h = self.up(x)
        x.mul_(2)
        return self.down(self.act(h)) + x


@case
def the_input_is_changed_between(model, make=Changed):
    x = sample()
    yield model(x)
    yield x


class Differentiates(Block):
    def forward(self, x):
        h = self.up(x)
        a = self.act(h)
        (slope,) = torch.autograd.grad(a.sum(), h, create_graph=True)
        return self.down(a * slope)


@case
def a_forward_that_differentiates(model, make=Differentiates):
    y = model(sample())
    yield y
    yield from gradients(model, y)


class Checkpoints(Block):
    def hidden(self, x):
        self.seen.append(torch.is_grad_enabled())
        return self.act(self.up(x))

    def forward(self, x):
        return self.down(checkpoint(self.hidden, x, use_reentrant=False))


@case
def hidden_values_are_computed_again(model, make=Checkpoints):
    y = model(sample().requires_grad_())
    yield y
    yield from gradients(model, y)
    yield model[0].seen


class SameTwice(Block):
    def forward(self, x):
        h = self.act(self.up(x))
        return self.down(h), h, h


@case
def results_are_one_object(model, make=SameTwice):
    _, first, second = model(sample())
    yield first is second


class Weak(Block):
    def forward(self, x):
        h = self.up(x)
        self.seen[:] = [weakref.ref(h)]
        return self.down(self.act(h))


@case
def intermediates_live_as_long_as_before(model, make=Weak):
    y = model(sample())
    alive = model[0].seen[0]() is not None
    yield alive
    del y
    yield model[0].seen[0]() is None


@case
def an_option_of_the_activation_changes_later(model, make=Block):
    yield model(sample())
    model[0].act.approximate = "tanh"
    yield model(sample())


@case
def a_partial_gets_another_keyword(model, make=lambda: Block(functools.partial(F.gelu, approximate="none"))):
    yield model(sample())
    model[0].act.keywords["approximate"] = "tanh"
    yield model(sample())
    model[0].act.keywords["approximate"] = "none"
    yield model(sample())


@case
def the_class_of_an_activation_changes_later(model, make=Block):
    yield model(sample())
    model[0].act.__class__ = nn.Tanh
    yield model(sample())


class Plain(Block):
    def forward(self, x):
        return self.down(self.act(self.up(x)))


def _twice(self, x):
    return self.down(self.act(self.up(x))) * 2


class Liar(Block):
    # Code that says it stands where Plain's does, as a reloaded or generated file may leave it.
    forward = types.FunctionType(
        _twice.__code__.replace(
            co_name="forward", co_qualname="Plain.forward", co_firstlineno=Plain.forward.__code__.co_firstlineno
        ),
        globals(),
        "forward",
    )


@case
def source_that_is_not_the_codes(model, make=Liar):
    yield model(sample())


class Disguised(Block):
    def forward(self, x):
        return Plain.forward(self, x) + 1

    forward.__wrapped__ = Plain.forward


@case
def a_forward_that_points_to_another(model, make=Disguised):
    yield model(sample())


class Picks(Block):
    def pick(self):
        self.seen.append("activation")
        return self.act

    def forward(self, x):
        handle = self.up.register_forward_hook(lambda *_: self.seen.append("layer"))
        y = self.down(self.pick()(self.up(x)))
        handle.remove()
        return y


@case
def what_is_called_is_asked_for_first(model, make=Picks):
    yield model(sample())
    yield model[0].seen


@case
def a_call_of_linear_is_patched(model, make=Block):
    yield model(sample())
    calls = []

    def call(self, x):
        calls.append(tuple(x.shape))
        return nn.Module.__call__(self, x) * 2

    nn.Linear.__call__ = call
    try:
        yield model(sample())
    finally:
        del nn.Linear.__call__
    yield calls
    yield model(sample())


@case
def the_forward_of_linear_is_patched(model, make=Block):
    before = nn.Linear.forward
    yield model(sample())
    nn.Linear.forward = lambda self, x: before(self, x) * 2
    try:
        y = model(sample())
        yield y
        yield from gradients(model, y)
    finally:
        nn.Linear.forward = before
    yield model(sample())


@case
def the_function_linear_is_patched(model, make=Block):
    before = F.linear
    yield model(sample())
    calls = []

    def linear(x, weight, bias=None):
        calls.append(tuple(weight.shape))
        return before(x, weight, bias) + 1

    F.linear = linear
    try:
        yield model(sample())
    finally:
        F.linear = before
    yield calls
    yield model(sample())


@case
def parameters_of_other_shapes(model, make=Block):
    yield model(sample())
    block = model[0]
    torch.manual_seed(3)
    block.up.weight = nn.Parameter(torch.randn(12, 6, dtype=torch.float64))
    block.up.bias = None
    block.down.weight = nn.Parameter(torch.randn(6, 12, dtype=torch.float64))
    y = model(sample())
    yield y
    yield from gradients(model, y)


@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("script", CASES, ids=lambda script: script.__name__)
def test_behaves_as_before(script, mode):
    check_behaves_as_before(script, mode)


def test_there_are_many():
    assert len(CASES) >= 20


@pytest.mark.parametrize("owner", [nn.Linear, F], ids=["forward", "function"])
def test_a_patch_that_was_there_before_decides(owner, monkeypatch):
    name = "forward" if owner is nn.Linear else "linear"
    before = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args: before(*args) * 2)
    model = Block().double()
    expected = model(sample())
    report = rt.replace_linear(model)
    assert not report.replaced
    assert all("another package's function" in row.reason for row in report.not_replaced)
    torch.testing.assert_close(model(sample()), expected, rtol=0, atol=0)


@pytest.mark.parametrize("make", [lambda: rt.Linear(6, 6, activation="gelu"), lambda: rt.MLP(6, 8)])
def test_a_patch_is_seen_by_layers_of_rocpys_own(make, monkeypatch):
    layer = make().double()
    before = F.linear
    plain = layer(sample())
    monkeypatch.setattr(F, "linear", lambda x, weight, bias=None: before(x, weight, bias) * 0)
    assert not layer(sample()).any()
    monkeypatch.undo()
    assert torch.equal(layer(sample()), plain)
