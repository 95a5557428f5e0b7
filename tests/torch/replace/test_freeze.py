# SPDX-License-Identifier: MIT
"""Packed layers and frozen models: when a packed weight is read, what undoes it, and what cannot be frozen."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import rocpy
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch
nn = torch.nn if torch else None
PACKED = "_rocpy_packed"


def close(x, y):
    torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-5)


@pytest.fixture
def x():
    return torch.randn(6, 12, generator=torch.Generator().manual_seed(5))


def frozen_mlp():
    module = rt.MLP(12, 20).eval()
    rt.freeze(module)
    return module


def test_packing_is_for_inference_alone(x):
    module = rt.Linear(12, 20, pack=True)
    module(x)
    with torch.no_grad():
        module(x)
    module.eval()(x)
    assert PACKED not in module.__dict__
    with torch.no_grad():
        module(x)
    assert PACKED in module.__dict__
    module.train()
    assert PACKED not in module.__dict__
    assert module.pack
    for other in (rt.Linear(12, 20), rt.MLP(12, 20), rt.GatedMLP(12, 20)):
        with torch.no_grad():
            other.eval()(x)
        assert not any(PACKED in layer.__dict__ for layer in other.modules())


def test_a_parameter_that_needs_no_gradient_is_read_packed_in_grad_mode(x):
    module = rt.Linear(12, 20, pack=True).eval()
    for p in module.parameters():
        p.requires_grad_(False)
    with rt.counters() as counts:
        module(x)
    assert counts.packed == 1
    y = module(x.requires_grad_())
    y.sum().backward()
    assert x.grad is not None


def test_copies_and_pickles_hold_no_packed_weight(x):
    module = frozen_mlp()
    with torch.no_grad():
        expected = module(x)
        assert PACKED not in pickle.dumps(module).decode("latin1")
        for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            close(other(x), expected)
            for p in other.parameters():
                p.zero_()
            assert other(x).abs().max() == 0
            other.train()
            assert not other.fc1.pack
        close(module(x), expected)


# ---- freeze ----


def test_freeze_and_its_undo(x):
    model = nn.Sequential(rt.MLP(12, 20), nn.Linear(12, 12), rt.Linear(12, 12, pack=True)).eval()
    report = rt.freeze(model)
    assert report.frozen == ["0.fc1", "0.fc2", "2"]
    assert report.not_frozen == []
    assert str(report).startswith("3 linear layers frozen")
    assert report.to_dict()["frozen"] == report.frozen
    with rt.counters() as counts, torch.no_grad():
        model(x)
    assert counts.packed == 3
    report.undo()
    report.undo()
    assert not any(PACKED in layer.__dict__ for layer in model.modules())
    assert [layer.pack for layer in (model[0].fc1, model[0].fc2, model[2])] == [False, False, True]


def test_freezing_twice_and_training(x):
    model = nn.Sequential(rt.Linear(12, 20), rt.Linear(20, 3)).eval()
    first, second = rt.freeze(model), rt.freeze(model)
    assert first.packed_bytes == second.packed_bytes
    if rocpy.Weight(np.ones((4, 4), np.float32)).packed:
        assert first.packed_bytes == 4 * (12 * 20 + 20 * 3)
    model[0].train()
    assert not model[0].pack
    assert model[1].pack
    model.train()
    model.eval()
    with rt.counters() as counts, torch.no_grad():
        model(x)
    assert counts.packed == 0
    second.undo()
    first.undo()
    assert not any(layer.pack for layer in model)


def test_freezing_again_reads_what_torch_did_not_report(x):
    model = nn.Sequential(rt.Linear(12, 20), rt.Linear(20, 3, pack=True), rt.MLP(3, 4), rt.GatedMLP(3, 4)).eval()
    rt.freeze(model)
    with torch.no_grad():
        model(x)
        for p in model.parameters():
            p.data += 1.0
        rt.freeze(model)
        expected = copy.deepcopy(model).train()(x)
        close(model(x), expected)


def test_what_cannot_be_frozen_is_said():
    with torch.inference_mode():
        born = rt.Linear(4, 4)
    normed = rt.Linear(4, 4)
    nn.utils.parametrizations.weight_norm(normed)
    model = nn.Sequential(born, normed, rt.Linear(4, 4, device="meta"), rt.Linear(4, 4)).eval()
    report = rt.freeze(model)
    assert report.frozen == ["3"]
    assert [row.name for row in report.not_frozen] == ["0", "1", "2"]
    assert "inference mode" in report.not_frozen[0].reason
    assert "computed" in report.not_frozen[1].reason
    assert "memory" in report.not_frozen[2].reason
    assert "not frozen" in str(report)
    with pytest.raises(InvalidProblemError, match=r"replace_linear\(model\) first, whose report"):
        rt.freeze(nn.Linear(2, 2).eval())
    with pytest.raises(InvalidProblemError, match=r"eval\(\)"):
        rt.freeze(rt.Linear(2, 2))
    with pytest.raises(InvalidProblemError, match="1 is in training mode"):
        rt.freeze(mixed())
    with pytest.raises(InvalidOperandError, match="model"):
        rt.freeze("model")


def layer_of(dtype, activation):
    layer = rt.Linear(4, 4, bias=False, activation=activation).eval()
    layer.weight = nn.Parameter(torch.ones(4, 4).to(dtype), requires_grad=False)
    return layer


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_layers_whose_calls_are_refused_are_not_frozen(activation):
    for dtype in (torch.float8_e4m3fn, torch.int32, *([torch.int8, torch.complex64] if activation else [])):
        layer = layer_of(dtype, activation)
        report = rt.freeze(layer)
        with pytest.raises((InvalidProblemError, UnsupportedError)) as error:
            layer(torch.ones(1, 4).to(dtype))
        assert [row.reason for row in report.not_frozen] == [str(error.value)]
        assert PACKED not in layer.__dict__
    for dtype in (torch.bfloat16, torch.float64, *([] if activation else [torch.int8, torch.complex64])):
        layer = layer_of(dtype, activation)
        assert rt.freeze(layer).frozen == [""]
        layer(torch.ones(1, 4).to(dtype))


def mixed():
    model = nn.Sequential(rt.Linear(2, 2), rt.Linear(2, 2)).eval()
    model[1].train()
    return model


def test_threads_share_a_frozen_model_while_it_changes(x):
    from concurrent.futures import ThreadPoolExecutor

    module = rt.Linear(12, 20, activation="relu").eval()
    rt.freeze(module)
    with torch.no_grad():
        for p in module.parameters():
            p.fill_(1.0)

    def read(_):
        with torch.no_grad():
            return [module(torch.ones(2, 12)) for _ in range(50)]

    def write():
        with torch.no_grad():
            for _ in range(50):
                module.weight.copy_(torch.full((20, 12), 2.0) if module.weight[0, 0] == 1 else torch.ones(20, 12))

    with ThreadPoolExecutor(5) as pool:
        found = [pool.submit(read, i) for i in range(4)]
        pool.submit(write).result()
        for future in found:
            for y in future.result():
                # A row of a weight that is being written holds ones and twos.
                assert ((y >= 13) & (y <= 25)).all()
    with torch.no_grad():
        close(module(x), nn.functional.linear(x, module.weight, module.bias).relu())
