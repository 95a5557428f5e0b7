# SPDX-License-Identifier: MIT
"""replace_linear: which layers it takes, which pairs it fuses, that nothing else changes, and that it can be undone."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch
nn = torch.nn
F = nn.functional


class Gate(nn.Module):
    """The feed-forward block of Llama, as its users write it."""

    def __init__(self, act):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(6, 10, bias=False), nn.Linear(6, 10, bias=False)
        self.down_proj = nn.Linear(10, 6, bias=False)
        self.act_fn = act

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Functions(nn.Module):
    """Layers with functions between them."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(6, 6) for _ in range(4))
        self.drop = nn.Dropout(0.5)

    def forward(self, hidden):
        hidden = F.gelu(self.a(hidden), approximate="tanh")
        hidden = self.drop(torch.relu(self.b(hidden)))
        return F.silu(self.d(self.c(hidden).sigmoid()))


class NewGelu(nn.Module):
    """Tanh GELU spelled out."""

    def forward(self, x):
        c = (2.0 / torch.pi) ** 0.5
        return 0.5 * x * (1.0 + torch.tanh(c * (x + 0.044715 * torch.pow(x, 3.0))))


class ErfGelu(nn.Module):
    """GELU spelled out."""

    def forward(self, x):
        return x * 0.5 * (1.0 + torch.erf(x / 2.0**0.5))


class Quick(nn.Module):
    """Near GELU, and not GELU."""

    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Rounded(nn.Module):
    """Tanh GELU with a constant of ten digits."""

    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))


class Decoder(nn.Module):
    """A decoder layer that attends to its own input."""

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerDecoderLayer(6, 2, 8, 0.0, batch_first=True)

    def forward(self, x):
        return self.layer(x, x)


def sequence(act, dtype=torch.float64):
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 10), act, nn.Dropout(0.0), nn.Linear(10, 6)).to(dtype)


MODELS = {
    "sequence": (lambda: sequence(nn.GELU()), 2, ["gelu"]),
    "sequence tanh": (lambda: sequence(nn.GELU("tanh")), 2, ["gelu_tanh"]),
    "sequence relu": (lambda: sequence(nn.ReLU(inplace=True)), 2, ["relu"]),
    "sequence spelled out": (lambda: sequence(NewGelu()), 2, ["gelu_tanh"]),
    "two layers": (lambda: nn.Sequential(nn.Linear(6, 9), nn.SiLU(), nn.Linear(9, 6)), 2, ["silu"]),
    "gate": (lambda: Gate(nn.SiLU()), 3, ["silu"]),
    "gate erf": (lambda: Gate(ErfGelu()), 3, ["gelu"]),
    "functions": (Functions, 4, ["gelu_tanh", "relu", "sigmoid", "silu"]),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(6, 2, 8, 0.0, "gelu", batch_first=True), 2, ["gelu"]),
    "decoder": (Decoder, 2, ["relu"]),
}


@pytest.fixture
def x():
    return torch.randn(4, 3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(5), requires_grad=True)


def made(name):
    make, layers, fused = MODELS[name]
    torch.manual_seed(7)
    return make().double(), layers, fused


def step(model, x):
    torch.manual_seed(11)
    model.zero_grad()
    y = model(x)
    grads = torch.autograd.grad(y.square().sum(), [x, *model.parameters()])
    return [y.detach(), *grads]


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


def classes(model):
    return [(name, id(module), type(module), dict(module.__dict__)) for name, module in model.named_modules()]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_the_model_computes_the_same_by_rocpy(name, training, x):
    model, layers, fused = made(name)
    model.train(training)
    before, keys, parameters = classes(model), list(model.state_dict()), list(model.parameters())
    expected = step(model, x)
    report = rt.replace_linear(model)
    assert len(report.replaced) == layers
    assert [row.computes for row in report.fused] == fused
    assert list(model.state_dict()) == keys
    assert all(p is q for p, q in zip(model.parameters(), parameters, strict=True))
    assert [(name, number) for name, number, *_ in classes(model)] == [(name, number) for name, number, *_ in before]
    assert all(module.training is training for module in model.modules())
    with rt.counters() as counts:
        close(step(model, x), expected)
    assert counts.layers == layers
    assert counts.activations == len(fused)
    # Each layer's input and weight; an encoder's input needs a gradient as well.
    assert counts.gradients == 2 * layers
    with torch.no_grad(), rt.counters() as counts:
        close(model.eval()(x), expected[0]) if not training or name != "functions" else model(x)
    assert counts.layers == layers
    assert counts.activations == len(fused)
    model.train(training)
    report.undo()
    assert classes(model) == before
    close(step(model, x), expected)
    report.undo()
    assert classes(model) == before


def test_training_in_between_stays_after_undo(x):
    model, _, _ = made("gate")
    other = copy.deepcopy(model)
    report = rt.replace_linear(model)
    for one in (model, other):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            one(x).square().mean().backward()
            optimizer.step()
    report.undo()
    close(list(model.parameters()), list(other.parameters()))
    assert type(model) is Gate
    close(model(x), other(x))


@pytest.mark.parametrize("make", [Quick, Rounded, nn.Tanh, nn.Hardswish, nn.PReLU], ids=lambda make: make.__name__)
def test_another_formula_is_not_fused(make, x):
    model = sequence(make())
    expected = step(model, x)
    report = rt.replace_linear(model)
    assert not report.fused
    close(step(model, x), expected)
    if make.__module__.startswith("torch."):
        assert make.__name__ in report.not_fused[0].reason


# ---- what must be noticed after the replacement ----


def watch(seen):
    def hook(module, inputs, output):
        seen.append(output.detach().clone())

    return hook


@pytest.mark.parametrize("name", ["sequence", "gate", "functions"])
def test_a_hook_sees_what_it_saw(name, x):
    model, *_ = made(name)
    model.eval()
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    expected, found = [], []
    handles = [m.register_forward_hook(watch(expected)) for m in layers]
    model(x)
    for handle in handles:
        handle.remove()
    rt.replace_linear(model)
    handles = [m.register_forward_hook(watch(found)) for m in layers]
    model(x)
    close(found, expected)
    for handle in handles:
        handle.remove()
    with rt.counters() as counts:
        model(x)
    assert counts.activations > 0


def test_a_hook_of_the_activation_or_of_all_modules_is_noticed(x):
    model = sequence(nn.GELU())
    seen = []
    rt.replace_linear(model)
    handle = model[1].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0].min()))
    expected = model(x)
    handle.remove()
    assert seen[0] < -0.2  # GELU itself is never below that
    handle = nn.modules.module.register_module_forward_hook(lambda module, inputs, output: seen.append(type(module)))
    close(model(x), expected)
    handle.remove()
    assert nn.GELU in seen


def test_a_layer_that_was_wrapped_or_exchanged_is_noticed(x):
    model = sequence(nn.GELU())
    rt.replace_linear(model)

    class Doubled(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return 2 * self.inner(x)

    layer = model[0]
    model[0] = Doubled(layer)
    close(model(x), model[3](F.gelu(2 * F.linear(x, layer.weight, layer.bias))))
    model[0] = layer
    model[1] = nn.Tanh()
    close(model(x), model[3](torch.tanh(F.linear(x, layer.weight, layer.bias))))
    model[1] = nn.GELU()
    model[1].approximate = "tanh"
    close(model(x), model[3](F.gelu(F.linear(x, layer.weight, layer.bias), approximate="tanh")))
    model.insert(1, nn.LayerNorm(10).double())
    close(model(x), model[4](F.gelu(model[1](F.linear(x, layer.weight, layer.bias)), approximate="tanh")))


def test_a_block_whose_function_changes_calls_the_new_one(x):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.function = nn.Linear(6, 6), F.gelu

        def forward(self, x):
            return self.function(self.fc(x))

    model = Block().double()
    report = rt.replace_linear(model)
    assert [row.computes for row in report.fused] == ["gelu"]
    model.function = torch.tanh
    close(model(x), F.linear(x, model.fc.weight, model.fc.bias).tanh())


def test_what_is_not_straight_is_not_fused(x):
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.act = nn.Linear(6, 6), nn.ReLU()

    class Weight(Reads):
        def forward(self, x):
            if isinstance(self.fc.weight, torch.Tensor) and x.dtype != self.fc.weight.dtype:
                x = x.to(self.fc.weight.dtype)
            return self.act(self.fc(x))

    class Asks(Reads):
        def forward(self, x):
            return self.act(self.fc(x)) if isinstance(x, torch.Tensor) else x

    class Kind(Reads):
        def forward(self, x):
            return self.act(self.fc(x)) if type(x) is torch.Tensor else x

    class Mode(Reads):
        def forward(self, x):
            return self.act(self.fc(x)) if torch.is_grad_enabled() else self.fc(x)

    class Twice(Reads):
        def forward(self, x):
            y = self.fc(x)
            return self.act(y) + y

    class Size(Reads):
        def forward(self, x):
            return self.act(self.fc(x)) if x.shape[0] > 3 else self.fc(x)

    for make, fused in ((Weight, 0), (Asks, 0), (Kind, 0), (Mode, 0), (Twice, 0), (Size, 0)):
        model = make().double()
        expected = step(model, x)
        report = rt.replace_linear(model)
        assert len(report.fused) == fused, make
        assert len(report.not_fused) == 1 - fused
        close(step(model, x), expected)
        with torch.no_grad():
            report.undo()
            expected = model(x)
            rt.replace_linear(model)
            close(model(x), expected)


@pytest.mark.parametrize("name", ["two layers", "sequence spelled out", "encoder layer"])
def test_copies_stay_fused(name, x):
    model, layers, fused = made(name)
    if name == "sequence spelled out":
        model[1] = nn.GELU("tanh")
    model.eval()
    rt.replace_linear(model)
    expected = model(x)
    stored = io.BytesIO()
    torch.save(model, stored)
    stored.seek(0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), torch.load(stored, weights_only=False)):
        assert repr(other) == repr(model)
        with rt.counters() as counts:
            close(other(x), expected)
        assert (counts.layers, counts.activations) == (layers, len(fused))
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
    close(model(x), expected)


@pytest.mark.parametrize("name", ["two layers", "encoder layer"])
def test_a_copied_report_undoes_the_copy(name, x):
    model, *_ = made(name)
    before = [type(module) for module in model.modules()]
    model.report = rt.replace_linear(model)
    after = [type(module) for module in model.modules()]
    expected = model(x)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert repr(other.report) == repr(model.report)
        other.report.undo()
        assert [type(module) for module in other.modules()] == before
        close(other(x), expected)
        assert [type(module) for module in model.modules()] == after
    pickle.loads(pickle.dumps(model.report)).undo()
    assert [type(module) for module in model.modules()] == after
    model.report.undo()
    assert [type(module) for module in model.modules()] == before
