# SPDX-License-Identifier: MIT
"""replace_linear leaves a block's forward in charge: what it reads, and what changes around it, counts as before."""

from __future__ import annotations

import functools
import logging
import os
import random
import types
import warnings

import pytest

torch = pytest.importorskip("torch")
blocks = pytest.importorskip("replaced_blocks")

pytestmark = pytest.mark.torch
nn = torch.nn
F = nn.functional
Block, sample, check_behaves_as_before = blocks.Block, blocks.sample, blocks.check_behaves_as_before

SWITCHES = {"double": False}
VARIABLE = "MODEL_TEST_DOUBLE"
LOG = logging.getLogger("model_test")
activation = F.gelu
CASES = []


def case(function):
    """Register a script; its second parameter's default makes the block."""
    CASES.append(function)
    return function


class StochasticDepth(Block):
    def forward(self, x):
        if self.training and random.random() < 0.05:
            return x
        return self.down(self.act(self.up(x)))


@case
def stochastic_depth(model, make=StochasticDepth):
    random.seed(0)
    model.train()
    for _ in range(99):
        yield model(sample())


class ReadsGlobal(Block):
    def forward(self, x):
        h = self.act(self.up(x))
        return self.down(2 * h if SWITCHES["double"] else h)


@case
def global_dictionary(model, make=ReadsGlobal):
    yield model(sample())
    SWITCHES["double"] = True
    try:
        yield model(sample())
    finally:
        SWITCHES["double"] = False


class ReadsEnvironment(Block):
    def forward(self, x):
        h = self.act(self.up(x))
        return self.down(2 * h if os.environ.get(VARIABLE) else h)


@case
def environment(model, make=ReadsEnvironment):
    yield model(sample())
    os.environ[VARIABLE] = "1"
    try:
        yield model(sample())
    finally:
        del os.environ[VARIABLE]


class ReadsClassAttribute(Block):
    def forward(self, x):
        return self.down(self.act(self.up(x)) * self.factor)


@case
def class_attribute(model, make=ReadsClassAttribute):
    yield model(sample())
    ReadsClassAttribute.factor = 3.0
    try:
        yield model(sample())
    finally:
        ReadsClassAttribute.factor = 1.0


class ReadsProperty(Block):
    level = 0

    @property
    def act_now(self):
        return self.act if self.level == 0 else torch.relu

    def forward(self, x):
        return self.down(self.act_now(self.up(x)))


@case
def property_that_changes(model, make=ReadsProperty):
    yield model(sample())
    model[0].level = 1
    yield model(sample())


class AsksWhetherCompiling(Block):
    def forward(self, x):
        h = self.up(x)
        return self.down(torch.relu(h) if torch.compiler.is_compiling() else self.act(h))


@case
def asks_whether_compiling(model, make=AsksWhetherCompiling):
    yield model(sample())


class PatchedClass(Block):
    def forward(self, x):
        return self.down(self.act(self.up(x)))


@case
def class_patched_later(model, make=PatchedClass):
    yield model(sample())
    before = PatchedClass.forward
    PatchedClass.forward = lambda self, x: self.down(torch.relu(self.up(x))) + 1
    try:
        yield model(sample())
    finally:
        PatchedClass.forward = before
    yield model(sample())


@case
def instance_patched_later(model, make=Block):
    yield model(sample())
    model[0].forward = types.MethodType(lambda self, x: self.down(torch.relu(self.up(x))) + 1, model[0])
    yield model(sample())
    del model[0].forward
    yield model(sample())


@case
def layer_patched_later(model, make=Block):
    yield model(sample())
    model[0].up.forward = lambda x: x.new_zeros(len(x), 10)
    yield model(sample())


class Counts(Block):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.down(self.act(self.up(x)))


@case
def counter(model, make=Counts):
    for _ in range(5):
        model(sample())
    yield model[0].calls


class Remembers(Block):
    def forward(self, x):
        self.last = self.up(x)
        self.kept = {"hidden": self.act(self.last)}
        self.seen.append(len(x))
        return self.down(self.kept["hidden"])


@case
def attributes_set(model, make=Remembers):
    for rows in (1, 3, 2):
        model(sample(rows))
        yield model[0].last
        yield model[0].kept["hidden"]
    yield model[0].seen


class Logs(Block):
    def forward(self, x):
        LOG.warning("rows %d", len(x))
        return self.down(self.act(self.up(x)))


@case
def logs(model, make=Logs):
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    LOG.addHandler(handler)
    try:
        for rows in (1, 3, 2):
            yield model(sample(rows))
    finally:
        LOG.removeHandler(handler)
    yield records


class Warns(Block):
    def forward(self, x):
        warnings.warn(f"{len(x)} rows", UserWarning, stacklevel=1)
        return self.down(self.act(self.up(x)))


@case
def warns(model, make=Warns):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model(sample(2))
        model(sample(3))
    yield [str(one.message) for one in caught if one.category is UserWarning]


@case
def activation_replaced_later(model, make=Block):
    yield model(sample())
    model[0].act = nn.ReLU()
    yield model(sample())
    model[0].act = nn.Sequential(nn.Tanh(), nn.ReLU())
    yield model(sample())


@case
def activation_set_otherwise_later(model, make=Block):
    yield model(sample())
    model[0].act.approximate = "tanh"
    yield model(sample())


@case
def hooks_come_and_go(model, make=Block):
    block, seen = model[0], []
    for module in (block, block.up, block.act, block.down):
        handle = module.register_forward_hook(lambda _module, _inputs, result: result + 1)
        yield model(sample())
        handle.remove()
        handle = module.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0].clone()))
        yield model(sample())
        handle.remove()
    yield model(sample())
    yield from seen


@case
def global_hooks(model, make=Block):
    seen = []
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, _inputs, result: seen.append((isinstance(module, nn.Linear), result.clone()))
    )
    try:
        yield model(sample())
    finally:
        handle.remove()
    for is_linear, result in seen:
        yield is_linear
        yield result


@case
def backward_hooks(model, make=Block):
    seen = []
    for module in (model[0], model[0].up, model[0].act):
        module.register_full_backward_hook(lambda _module, _before, after: seen.append(after[0].clone()))
    model(sample().requires_grad_()).sum().backward()
    yield from seen


class UsesFunctional(Block):
    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


@case
def functional_patched_later(model, make=UsesFunctional):
    yield model(sample())
    before = F.gelu
    F.gelu = lambda x: x * 0.5
    try:
        yield model(sample())
    finally:
        F.gelu = before
    yield model(sample())


class UsesGlobalFunction(Block):
    def forward(self, x):
        return self.down(activation(self.up(x)))


@case
def global_function_rebound(model, make=UsesGlobalFunction):
    global activation
    yield model(sample())
    activation = torch.relu
    try:
        yield model(sample())
    finally:
        activation = F.gelu


@case
def partial_activation(model, make=lambda: Block(functools.partial(F.gelu, approximate="tanh"))):
    yield model(sample())
    model[0].act.keywords["approximate"] = "none"
    yield model(sample())


def closure_block():
    state = {"function": F.gelu}

    class Closed(Block):
        def forward(self, x):
            return self.down(state["function"](self.up(x)))

    block = Closed()
    block.state_of_closure = state
    return block


@case
def closure(model, make=closure_block):
    yield model(sample())
    model[0].state_of_closure["function"] = torch.relu
    yield model(sample())


def rebound_cell():
    function = F.gelu

    class Closed(Block):
        def forward(self, x):
            return self.down(function(self.up(x)))

        def rebind(self, other):
            nonlocal function
            function = other

    return Closed()


@case
def closure_cell_rebound(model, make=rebound_cell):
    yield model(sample())
    model[0].rebind(torch.relu)
    yield model(sample())


class Refuses(Block):
    def forward(self, x):
        if bool(x.isnan().any()):
            raise ValueError("not a number")
        return self.down(self.act(self.up(x)))


@case
def exceptions(model, make=Refuses):
    yield model(sample())
    with pytest.raises(ValueError, match="not a number"):
        model(sample() * float("nan"))


class ReturnsEarly(Block):
    def forward(self, x):
        h = self.up(x)
        if len(x) == 1:
            return self.down(h)
        return self.down(self.act(h))


@case
def returns_early(model, make=ReturnsEarly):
    for rows in (3, 1, 2, 1):
        yield model(sample(rows))


@pytest.mark.parametrize("mode", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("script", CASES, ids=lambda script: script.__name__)
def test_behaves_as_before(script, mode):
    check_behaves_as_before(script, mode)
