# SPDX-License-Identifier: MIT
"""Fused blocks whose parts are changed, patched or watched later: their own code decides at every call."""

from __future__ import annotations

import functools

import pytest

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")
from torch_blocks import Base, close, plain, pre, replaced  # noqa: E402

pytestmark = pytest.mark.torch
nn = torch.nn
F = nn.functional

ACTIVATION = F.gelu


@pytest.fixture
def x():
    return torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


# ---- what changes after a block was fused ----


class Statements(Base):
    """As transformers writes them."""

    def forward(self, hidden_states):
        hidden_states = self.fc1(hidden_states)
        hidden_states = self.act(hidden_states)
        hidden_states = self.fc2(hidden_states)
        return hidden_states  # noqa: RET504


class Function(Base):
    def forward(self, x):
        h = self.fc1(x)
        return self.fc2(F.relu(h))


class Method(Base):
    def forward(self, x):
        h = self.fc1(x).relu()
        return self.fc2(h)


class FromGlobal(Base):
    def forward(self, x):
        return self.fc2(ACTIVATION(self.fc1(x)))


FUSED = [Base, Statements, Function, Method]


def watched(function):
    seen = []

    def run(*args, **kwargs):
        seen.append(function)
        return function(*args, **kwargs)

    return run, seen


@pytest.mark.parametrize("cls", FUSED, ids=lambda cls: cls.__name__)
def test_these_are_fused(cls, x):
    model, _ = replaced(cls, fused=1)
    for grad in (True, False):
        with torch.set_grad_enabled(grad), rt.counters() as counts:
            close(model(x), plain(model, x))
        assert (counts.layers, counts.activations) == (2, 1)


@pytest.mark.parametrize("cls", FUSED, ids=lambda cls: cls.__name__)
def test_a_patched_class_decides(cls, x, monkeypatch):
    model, _ = replaced(cls, fused=1)
    monkeypatch.setattr(cls, "forward", lambda self, x: self.fc1(x) * 2)
    close(model(x), pre(model, x) * 2)
    monkeypatch.undo()
    close(model(x), plain(model, x))


def test_patched_code_decides(x):
    class Own(Base):
        def forward(self, x):
            return self.fc2(self.act(self.fc1(x)))

    def other(self, x):
        return x + 1

    model, _ = replaced(Own, fused=1)
    Own.forward.__code__ = other.__code__
    close(model(x), x + 1)


@pytest.mark.parametrize("cls", FUSED, ids=lambda cls: cls.__name__)
def test_a_forward_set_on_the_object_decides(cls, x):
    model, _ = replaced(cls, fused=1)
    model.forward = lambda x: x * 4
    close(model(x), x * 4)


def test_a_property_that_comes_later_decides(x, monkeypatch):
    model, _ = replaced(Base, fused=1)
    reads = []

    def act(self):
        reads.append(self)
        return torch.tanh

    monkeypatch.setattr(Base, "act", property(act), raising=False)
    close(model(x), model.fc2(torch.tanh(pre(model, x))))
    assert len(reads) == 1


def test_a_changed_getattr_decides(x, monkeypatch):
    model, _ = replaced(Base, fused=1)
    own = nn.Module.__getattr__
    monkeypatch.setattr(
        Base, "__getattr__", lambda self, name: torch.sigmoid if name == "act" else own(self, name), raising=False
    )
    close(model(x), model.fc2(torch.sigmoid(pre(model, x))))


@pytest.mark.parametrize("cls", [Base, Statements])
def test_a_submodule_exchanged_by_a_hook_of_the_layer_decides(cls, x):
    """The layer's hook changes what stands behind it: read before the layer is called, or after, as the code says."""
    theirs = cls().double()
    ours, _ = replaced(cls, fused=1)
    ours.load_state_dict(theirs.state_dict())
    found = []
    for model in (theirs, ours):
        model.fc1.register_forward_hook(lambda module, inputs, output, model=model: setattr(model, "act", nn.Tanh()))
        found.append(model(x))
    close(*found)


@pytest.mark.parametrize("name", ["gelu", "relu", "silu", "sigmoid"])
def test_a_patched_function_of_torch_decides(name, x, monkeypatch):
    model = nn.Sequential(nn.Linear(6, 10), {"gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU}.get(name, nn.Sigmoid)())
    model = model.double()
    assert len(rt.replace_linear(model).fused) == 1
    where = torch if name == "sigmoid" else F
    patched, seen = watched(getattr(where, name))
    monkeypatch.setattr(where, name, patched)
    expected = patched(F.linear(x, model[0].weight, model[0].bias))
    close(model(x), expected)
    assert len(seen) == 2


def test_a_patched_function_below_torchs_decides(x, monkeypatch):
    model, _ = replaced(Function, fused=1)
    patched, seen = watched(torch.relu)
    monkeypatch.setattr(torch, "relu", patched)
    close(model(x), plain(model, x))
    assert len(seen) == 1


def test_patched_modules_of_torch_decide(x, monkeypatch):
    for cls, name in ((nn.ReLU, "forward"), (nn.ReLU, "__call__"), (nn.Module, "__call__"), (nn.Module, "_call_impl")):
        model, _ = replaced(Base, fused=1)
        patched, seen = watched(getattr(cls, name))
        with monkeypatch.context() as patch:
            patch.setattr(cls, name, lambda self, *args, patched=patched: patched(self, *args), raising=False)
            close(model(x), plain(model, x))
        assert seen, (cls, name)


def test_a_tensor_method_that_is_patched_decides(x, monkeypatch):
    model, _ = replaced(Method, fused=1)
    monkeypatch.setattr(torch.Tensor, "relu", lambda self: self * 0 + 1, raising=False)
    close(model(x), model.fc2(torch.ones(3, 10, dtype=torch.float64)))


def test_a_global_that_is_another_function_later(x, monkeypatch):
    model, _ = replaced(FromGlobal, fused=1)
    close(model(x), model.fc2(F.gelu(pre(model, x))))
    monkeypatch.setitem(globals(), "ACTIVATION", torch.tanh)
    close(model(x), model.fc2(torch.tanh(pre(model, x))))
    monkeypatch.setitem(globals(), "ACTIVATION", functools.partial(F.gelu, approximate="tanh"))
    close(model(x), model.fc2(F.gelu(pre(model, x), approximate="tanh")))


def test_hooks_see_what_they_saw(x):
    for cls in FUSED:
        model, _ = replaced(cls, fused=1)
        seen = []
        handles = [
            model.fc1.register_forward_hook(lambda module, inputs, output, seen=seen: seen.append(output.min().item()))
        ]
        model(x)
        assert seen[0] < 0
        handles.append(model.fc1.register_full_backward_hook(lambda *args, seen=seen: seen.append("backward")))
        model(x.clone().requires_grad_()).sum().backward()
        assert "backward" in seen
        for handle in handles:
            handle.remove()
        handle = nn.modules.module.register_module_forward_pre_hook(
            lambda module, inputs, seen=seen: seen.append(type(module))
        )
        with handle:
            model(x)
        assert rt.Linear in seen


def test_modes_and_subclasses_see_the_calls(x):
    class Notes(torch.overrides.TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.calls = []

        def __torch_function__(self, function, types, args=(), kwargs=None):
            self.calls.append(getattr(function, "__name__", ""))
            return function(*args, **(kwargs or {}))

    class Marked(torch.Tensor):
        pass

    model, _ = replaced(Function, fused=1)
    with Notes() as notes:
        close(model(x), plain(model, x))
    assert "relu" in notes.calls
    assert type(model(x.as_subclass(Marked))) is Marked


def test_a_default_device_does_not_keep_layers_apart(x):
    model, _ = replaced(Base, fused=1)
    with torch.device("cpu"), rt.counters() as counts:
        close(model(x), plain(model, x))
    assert counts.activations == 1


def test_dropout_between_is_no_pair(x):
    class Dropped(Base):
        def forward(self, x):
            return self.fc2(self.act(self.drop(self.fc1(x))))

    model, report = replaced(Dropped, fused=0)
    assert "fc1 is followed by drop, a Dropout" in report.not_fused[0].reason
    torch.manual_seed(3)
    found = model(x)
    torch.manual_seed(3)
    hidden = F.dropout(pre(model, x), 0.5).relu()
    close(found, F.linear(hidden, model.fc2.weight, model.fc2.bias))


def test_shared_layers_and_blocks(x):
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.act = nn.Linear(6, 6), nn.SiLU()

        def forward(self, x):
            x = self.act(self.fc(x))
            return self.act(self.fc(x))

    model = Shared().double()
    report = rt.replace_linear(model)
    assert len(report.fused) == 1  # one layer, called twice
    with rt.counters() as counts:
        found = model(x)
    assert counts.activations == 2
    layer = model.fc.weight, model.fc.bias
    close(found, F.silu(F.linear(F.silu(F.linear(x, *layer)), *layer)))


def test_a_subclass_of_an_activation_is_itself(x):
    class Shifted(nn.GELU):
        def forward(self, x):
            return super().forward(x) + 1

    model = nn.Sequential(nn.Linear(6, 4), Shifted()).double()
    assert not rt.replace_linear(model).fused
    close(model(x), F.gelu(F.linear(x, model[0].weight, model[0].bias)) + 1)


def test_a_sequence_that_iterates_otherwise(x):
    class Reversed(nn.Sequential):
        def __iter__(self):
            return iter(list(self._modules.values())[::-1])

    model = Reversed(nn.ReLU(), nn.Linear(6, 6)).double()
    rt.replace_linear(model)
    close(model(x), F.linear(x, model._modules["1"].weight, model._modules["1"].bias).relu())


def test_a_class_that_counts_its_subclasses_gets_none():
    class Registered(Base):
        subclasses = []  # noqa: RUF012

        def __init_subclass__(cls, **kwargs):
            Registered.subclasses.append(cls)
            super().__init_subclass__(**kwargs)

        def forward(self, x):
            return self.fc2(self.act(self.fc1(x)))

    _, report = replaced(Registered, fused=0)
    assert not Registered.subclasses
    assert "subclass" in report.not_fused[0].reason


def test_an_activation_whose_code_reads_names_notices_them(x, monkeypatch):
    class Spelled(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 0.5

        def forward(self, x):
            return self.scale * x * (1.0 + torch.erf(x / ROOT))  # noqa: F821

    monkeypatch.setitem(globals(), "ROOT", 2.0**0.5)
    model = nn.Sequential(nn.Linear(6, 10), Spelled()).double()
    assert [row.computes for row in rt.replace_linear(model).fused] == ["gelu"]
    before = F.linear(x, model[0].weight, model[0].bias)
    with rt.counters() as counts:
        close(model(x), F.gelu(before))
    assert counts.activations == 1
    model[1].scale = 1.0
    close(model(x), 2 * F.gelu(before))
    model[1].scale = 0.5
    monkeypatch.setitem(globals(), "ROOT", 1.0)
    close(model(x), 0.5 * before * (1 + torch.erf(before)))
    monkeypatch.setitem(globals(), "ROOT", 2.0**0.5)
    monkeypatch.setattr(torch, "erf", torch.tanh)
    close(model(x), 0.5 * before * (1 + torch.tanh(before / 2.0**0.5)))


def test_the_representation_names_the_pairs_that_are_fused_now():
    for make, name in ((lambda: nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 6)), "1"), (Base, "act")):
        model = make()
        layer, plain_repr = next(iter(model._modules)), model.extra_repr()
        rt.replace_linear(model)
        assert model.extra_repr() == f"fused: {layer} + {model_row(model, name)}"
        for module, text in (
            (nn.SiLU(), f"fused: {layer} + silu"),
            (nn.Tanh(), plain_repr),
            (nn.ReLU(), f"fused: {layer} + relu"),
        ):
            setattr(model, name, module)
            assert model.extra_repr() == text
        setattr(model, layer, nn.Linear(6, 6))
        assert model.extra_repr() == plain_repr


def model_row(model, name):
    return {nn.GELU: "gelu", nn.ReLU: "relu", nn.SiLU: "silu"}[type(getattr(model, name))]
