# SPDX-License-Identifier: MIT
"""replace_linear leaves a block's forward in charge: what it does, returns and lets others change stays as before."""

from __future__ import annotations

import contextlib
import copy
import functools

import pytest

torch = pytest.importorskip("torch")
prune = pytest.importorskip("torch.nn.utils.prune")
blocks = pytest.importorskip("replaced_blocks")

pytestmark = pytest.mark.torch
nn = torch.nn
F = nn.functional
Block, sample, check_behaves_as_before = blocks.Block, blocks.sample, blocks.check_behaves_as_before
CASES = []


def case(function):
    """Register a script; its second parameter's default makes the block."""
    CASES.append(function)
    return function


class Shares(Block):
    def __init__(self):
        super().__init__()
        self.down = nn.Linear(10, 6)
        self.again = nn.Linear(10, 6)
        self.again.weight = self.down.weight

    def forward(self, x):
        h = self.act(self.up(x))
        h = self.act(self.up(self.down(h)))
        return self.down(h) + self.again(h)


@case
def shared_and_called_twice(model, make=Shares):
    yield model(sample())
    with torch.no_grad():
        model[0].down.weight.mul_(2)
    yield model(sample())
    model(sample()).sum().backward()
    yield model[0].again.weight.grad


class KeepsDefault(Block):
    def forward(self, x, calls=[]):  # noqa: B006
        calls.append(len(x))
        return self.down(self.act(self.up(x)) * len(calls))


@case
def mutable_default(model, make=KeepsDefault):
    KeepsDefault.forward.__defaults__[0].clear()
    for _ in range(3):
        yield model(sample())


class StopsGradients(Block):
    def forward(self, x):
        with torch.no_grad():
            h = self.act(self.up(x))
        return self.down(h)


@case
def no_grad_inside(model, make=StopsGradients):
    model(sample()).sum().backward()
    yield model[0].up.weight.grad is None
    yield model[0].down.weight.grad


class LoudGelu(nn.GELU):
    def forward(self, x):
        return 2 * super().forward(x)


class CallsItself(nn.GELU):
    def __call__(self, x):
        return 3 * super().__call__(x)


@case
def activation_of_a_subclass(model, make=lambda: nn.Sequential(Block(LoudGelu()), Block(CallsItself()))):
    yield model(sample())


@case
def class_of_activation_patched(model, make=Block):
    yield model(sample())
    before = nn.GELU.forward
    nn.GELU.forward = lambda self, x: x * 0.5
    try:
        yield model(sample())
    finally:
        nn.GELU.forward = before
    yield model(sample())


class FindsAttributes(Block):
    def __getattr__(self, name):
        if name == "chosen":
            return super().__getattr__("act") if self.training else torch.relu
        return super().__getattr__(name)

    def forward(self, x):
        return self.down(self.chosen(self.up(x)))


@case
def attribute_lookup(model, make=FindsAttributes):
    for mode in (True, False, True):
        yield model.train(mode)(sample())


class Gets(Block):
    def __getattribute__(self, name):
        if name == "act" and not object.__getattribute__(self, "training"):
            return torch.relu
        return super().__getattribute__(name)


@case
def attribute_access(model, make=Gets):
    for mode in (True, False, True):
        yield model.train(mode)(sample())


@case
def parameters_replaced(model, make=Block):
    block = model[0].eval()
    with torch.no_grad():
        yield model(sample())
        block.up.weight = nn.Parameter(block.up.weight * 2)
        yield model(sample())
        block.up.weight.data.mul_(2)
        yield model(sample())
        block.up.weight.detach().numpy()[:] *= 2
        yield model(sample())
        block.up.bias = None
        yield model(sample())
        block.up = nn.Linear(6, 10, dtype=torch.float64, bias=False)
        block.up.weight.fill_(0.5)
        yield model(sample())


class ChangesInPlace(Block):
    def forward(self, x):
        h = self.up(x)
        g = F.gelu(h)
        h.add_(1)
        return self.down(g + h)


@case
def intermediate_changed_in_place(model, make=ChangesInPlace):
    with torch.no_grad():
        yield model(sample())


class UsesBoth(Block):
    def forward(self, x):
        h = self.up(x)
        return self.down(self.act(h) * h + self.act(self.act(h)))


@case
def intermediate_used_twice(model, make=UsesBoth):
    yield model(sample())
    model(sample()).sum().backward()
    yield model[0].up.weight.grad


class Draws(Block):
    def forward(self, x):
        return self.down(F.dropout(self.act(self.up(x)), p=0.5, training=self.training))


@case
def random_numbers(model, make=Draws):
    torch.manual_seed(3)
    for mode in (True, False, True):
        yield model.train(mode)(sample())
    yield torch.rand(3)


class HooksTensor(Block):
    def forward(self, x):
        h = self.up(x)
        if h.requires_grad:
            h.register_hook(lambda gradient: self.seen.append(gradient.clone()))
        return self.down(self.act(h))


@case
def tensor_hooks(model, make=HooksTensor):
    model(sample()).sum().backward()
    yield from model[0].seen


class Plain(Block):
    def forward(self, x):
        return self.down(self.act(self.up(x)))


class Derived(Plain):
    def forward(self, x):
        return super().forward(x) + 1


@case
def calls_its_base(model, make=Derived):
    yield model(sample())
    before = Plain.forward
    Plain.forward = lambda self, x: self.down(self.up(x))
    try:
        yield model(sample())
    finally:
        Plain.forward = before


def plus_one(function):
    @functools.wraps(function)
    def wrapped(self, x):
        return function(self, x) + 1

    return wrapped


class Decorated(Block):
    @plus_one
    def forward(self, x):
        return self.down(self.act(self.up(x)))


@case
def decorated(model, make=Decorated):
    yield model(sample())


class Delegates(Block):
    def _hidden(self, x):
        return self.act(self.up(x))

    def forward(self, x):
        return self.down(self._hidden(x))


@case
def method_patched_later(model, make=Delegates):
    yield model(sample())
    model[0]._hidden = lambda x: torch.relu(model[0].up(x))
    yield model(sample())


@case
def class_exchanged(model, make=Block):
    yield model(sample())
    model[0].__class__ = Derived
    yield model(sample())


@case
def sequential_is_edited(
    model, make=lambda: nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
):
    block = model[0]
    yield model(sample())
    block[1] = nn.SiLU()
    yield model(sample())
    block.insert(1, nn.Tanh())
    yield model(sample())
    del block[1:3]
    yield model(sample())
    yield block[:2](sample())
    block.append(nn.Sigmoid())
    yield model(sample())
    hidden = sample()
    for module in block:
        hidden = module(hidden)
    yield hidden


class Reversed(nn.Sequential):
    def forward(self, x):
        for module in reversed(self):
            x = module(x)
        return x


@case
def sequential_in_reverse(model, make=lambda: Reversed(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 6))):
    yield model(sample())


@case
def copies_follow_their_own(model, make=Block):
    other = copy.deepcopy(model)
    other[0].act = nn.ReLU()
    with torch.no_grad():
        other[0].up.weight.zero_()
    yield model(sample())
    yield other(sample())


@case
def pruned_and_normalized(model, make=Block):
    nn.utils.parametrizations.weight_norm(model[0].up)
    yield model(sample())
    prune.l1_unstructured(model[0].down, "weight", amount=0.5)
    yield model(sample())


class Manages(Block):
    @contextlib.contextmanager
    def watched(self):
        self.seen.append("in")
        try:
            yield
        finally:
            self.seen.append("out")

    def forward(self, x):
        with self.watched():
            h = self.act(self.up(x))
        return self.down(h)


@case
def context_manager(model, make=Manages):
    model(sample())
    model(sample())
    yield model[0].seen


class TakesMore(Block):
    def forward(self, x, *, scale=1.0, mask=None):
        h = self.act(self.up(x))
        return self.down(h if mask is None else h * mask) * scale


@case
def keywords(model, make=TakesMore):
    block = model[0]
    yield block(sample())
    yield block(sample(), scale=3.0)
    yield block(x=sample(), mask=torch.zeros(10, dtype=torch.float64))
    with pytest.raises(TypeError):
        block(sample(), scales=2)


class Returns(Block):
    def forward(self, x):
        h = self.up(x)
        return self.down(self.act(h)), h


@case
def returns_the_intermediate(model, make=Returns):
    yield from model(sample())


@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("script", CASES, ids=lambda script: script.__name__)
def test_behaves_as_before(script, mode):
    check_behaves_as_before(script, mode)
