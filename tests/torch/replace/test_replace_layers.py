# SPDX-License-Identifier: MIT
"""replace_linear, layer by layer: what is refused, what of a layer stays, parts of models, packing, the report."""

from __future__ import annotations

import copy
import json

import pytest

from rocpy.errors import InvalidOperandError, InvalidProblemError

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch
nn = torch.nn


def sequence(act):
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(6, 10), act, nn.Dropout(0.0), nn.Linear(10, 6)).double()


@pytest.fixture
def x():
    return torch.randn(4, 3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(5), requires_grad=True)


def step(model, x):
    model.zero_grad()
    y = model(x)
    grads = torch.autograd.grad(y.square().sum(), [x, *model.parameters()])
    return [y.detach(), *grads]


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)


# ---- which layers ----


def test_what_is_not_replaced_is_said():
    class Own(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 2

    class Tagged(torch.Tensor):
        pass

    model = nn.ModuleDict(
        {
            "own": Own(2, 2),
            "lazy": nn.LazyLinear(2),
            "mine": rt.Linear(2, 2),
            "attention": nn.MultiheadAttention(4, 2),
            "lstm": nn.LSTM(2, 2),
            "bilinear": nn.Bilinear(2, 2, 2),
            "patched": nn.Linear(2, 2),
            "tagged": nn.Linear(2, 2),
            "sparse": nn.Linear(2, 2, bias=False),
            "integer": nn.Linear(2, 2, bias=False),
            "skipped": nn.Linear(2, 2),
            "good": nn.Linear(2, 2),
        }
    )
    model["patched"].forward = lambda x: x
    model["tagged"].weight = nn.Parameter(torch.randn(2, 2).as_subclass(Tagged))
    model["sparse"].weight = nn.Parameter(torch.eye(2).to_sparse())
    model["integer"].weight = nn.Parameter(torch.ones(2, 2, dtype=torch.int8), requires_grad=False)
    report = rt.replace_linear(model, skip="skip*")
    assert [row.name for row in report.replaced] == ["good"]
    reasons = {row.name: row.reason for row in report.not_replaced}
    assert set(reasons) == {*model} - {"good"} | {"attention.out_proj"}
    assert "Tagged" in reasons["tagged"]
    assert "int8" in reasons["integer"]
    assert all(reasons.values())
    assert not [note for note in report.notes if "skip" in note]
    again = rt.replace_linear(model, skip=lambda name, module: "good" in name)
    assert [row.name for row in again.replaced] == ["skipped"]


def test_weights_that_are_no_layer_are_named_with_their_share():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Parameter(torch.randn(4, 6, 10))
            self.scale = nn.Parameter(torch.ones(6))
            self.position = nn.Parameter(torch.ones(1, 7, 6))

        def forward(self, x, index):
            return torch.stack([row @ self.up[at] for row, at in zip(x * self.scale, index, strict=True)])

    class Router(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 6))

        def forward(self, x):
            return nn.functional.linear(x, self.weight)

    model = nn.ModuleDict(
        {"experts": Experts(), "router": Router(), "fc": nn.Linear(6, 4), "table": nn.Embedding(3, 2)}
    )
    report = rt.replace_linear(model)
    assert [row.name for row in report.replaced] == ["fc"]
    reasons = {row.name: row.reason for row in report.not_replaced}
    assert set(reasons) == {"experts", "router"}
    share = 100 * 240 / sum(p.numel() for p in model.parameters())
    assert f"up of (4, 6, 10), {share:.0f} % of the model's parameters" in reasons["experts"]
    assert "weight of (4, 6)" in reasons["router"]


def test_the_model_may_be_a_layer_itself(x):
    layer = nn.Linear(6, 4).double()
    expected = layer(x)
    report = rt.replace_linear(layer)
    assert type(layer) is rt.Linear
    close(layer(x), expected)
    assert "(the model)" not in repr(report)
    report.undo()
    assert type(layer) is nn.Linear


def test_a_wrong_model_is_refused():
    with pytest.raises(InvalidOperandError, match="list"):
        rt.replace_linear([nn.Linear(2, 2)])


def test_hooks_parametrizations_and_frozen_parameters_stay(x):
    model = sequence(nn.GELU())
    model[0].weight.requires_grad_(False)
    seen = []
    model[0].register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    nn.utils.parametrizations.weight_norm(model[3])
    expected, names = model(x), list(model.state_dict())
    report = rt.replace_linear(model)
    assert isinstance(model[3], rt.Linear)
    assert type(model[3]).__name__ == "ParametrizedLinear"
    assert list(model.state_dict()) == names
    with rt.counters() as counts:
        close(model(x), expected)
    assert counts.layers == 2
    assert len(seen) == 2
    assert not model[0].weight.requires_grad
    close(copy.deepcopy(model)(x), expected)
    nn.utils.parametrize.remove_parametrizations(model[3], "weight")
    assert type(model[3]) is rt.Linear
    close(model(x), expected)
    report.undo()
    assert type(model[3]) is nn.Linear
    close(model(x), expected)


def test_a_parametrization_that_comes_and_stays(x):
    model = sequence(nn.GELU())
    report = rt.replace_linear(model)
    nn.utils.parametrizations.spectral_norm(model[0])
    model.eval()
    expected = model(x)
    report.undo()
    assert isinstance(model[0], nn.Linear)
    assert not isinstance(model[0], rt.Linear)
    close(model(x), expected)
    nn.utils.parametrize.remove_parametrizations(model[0], "weight")
    assert type(model[0]) is nn.Linear


def test_a_weight_norm_by_hooks(x):
    with pytest.warns(FutureWarning):
        model = nn.Sequential(nn.utils.weight_norm(nn.Linear(6, 5)), nn.GELU()).double()
    expected = step(model, x)
    report = rt.replace_linear(model)
    assert len(report.replaced) == 1
    close(step(model, x), expected)


def test_tied_weights_stay_tied(x):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(9, 6), nn.Linear(6, 9, bias=False)
            self.head.weight = self.embedding.weight
            self.first = self.again = nn.Linear(6, 6)

        def forward(self, x):
            return self.head(self.again(self.first(x)))

    model = Tied().double()
    expected = step(model, x)
    report = rt.replace_linear(model)
    assert model.head.weight is model.embedding.weight
    assert model.first is model.again
    assert len(report.replaced) == 2
    close(step(model, x), expected)


# ---- parts, packing, the report ----


def test_part_of_a_sequence_runs(x):
    model = sequence(nn.GELU())
    rt.replace_linear(model)
    close(model[2:](model[:2](x)), model(x))


def test_packed_layers(x):
    model = sequence(nn.GELU()).eval()
    with torch.no_grad():
        expected = model(x)
        report = rt.replace_linear(model, pack=True)
        for _ in range(2):
            with rt.counters() as counts:
                close(model(x), expected)
            assert counts.packed == counts.layers == 2
        report.undo()
        assert not any(name.startswith("_rocpy") for module in model.modules() for name in module.__dict__)
        rt.replace_linear(model)
        with rt.counters() as counts:
            model(x)
        assert counts.packed == 0


def test_report_is_a_table_and_json():
    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Tanh()) for _ in range(3)))
    report = rt.replace_linear(model, skip="2.*")
    text = repr(report)
    assert "4 linear layers replaced, 2 of them fused with their activation; 2 not replaced; 2 not fused" in text
    document = json.loads(report.to_json())
    assert document == report.to_dict()
    assert document["fused"][0] == {
        "block": "0",
        "layer": "0.0",
        "activation": "0.1",
        "computes": "relu",
        "inside": True,
    }
    assert document["not_fused"][0]["reason"].startswith("2 is followed by 3, a Tanh")


def test_without_fusing(x):
    model = sequence(nn.ReLU())
    report = rt.replace_linear(model, fuse=False)
    assert not report.fused
    assert type(model) is nn.Sequential
    with rt.counters() as counts:
        model(x)
    assert (counts.layers, counts.activations) == (2, 0)


def test_twice(x):
    model = sequence(nn.ReLU())
    first = rt.replace_linear(model)
    expected = model(x)
    second = rt.replace_linear(model)
    assert not second.replaced
    assert [row.reason for row in second.not_replaced] == ["rocpy already computes it"] * 2
    second.undo()
    close(model(x), expected)
    first.undo()
    assert type(model) is nn.Sequential
    assert type(model[0]) is nn.Linear


def test_a_skipped_name_that_no_module_has_is_refused_before_anything_changes():
    model = nn.ModuleDict({"body": nn.Sequential(nn.Linear(2, 2)), "lm_head": nn.Linear(2, 2)})
    for skip, meant in (("lm_haed", "'lm_head'"), ("head.lm_head", "'lm_head'"), (["body.0", "0"], "'body.0'")):
        with pytest.raises(InvalidProblemError, match=f"skip: the model has no module .*; did you mean {meant}"):
            rt.replace_linear(model, skip=skip)
        assert type(model["lm_head"]) is nn.Linear
    report = rt.replace_linear(model, skip=["body.*", "*.attention.*"])
    assert [row.name for row in report.replaced] == ["lm_head"]
    assert "skip: '*.attention.*' matches no module" in report.notes


def test_each_name_of_a_shared_layer_can_be_skipped():
    shared = nn.Linear(2, 2)
    model = nn.ModuleDict({"first": shared, "second": shared})
    assert not rt.replace_linear(model, skip="second").replaced
