# SPDX-License-Identifier: MIT
"""The layers as modules: state dicts, copies, hooks, parametrizations, packed weights; the blocks against torch's."""

from __future__ import annotations

import copy
import functools
import io
import pickle

import pytest

import rocpy
from rocpy.errors import InvalidProblemError

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch
nn = torch.nn if torch else None
PACKED = "_rocpy_packed"


def layer(**options):
    torch.manual_seed(3)
    return rt.Linear(12, 20, activation="gelu", approximate="tanh", **options)


def plain(module):
    made = nn.Sequential(nn.Linear(12, 20), nn.GELU("tanh"))
    made[0].load_state_dict(module.state_dict())
    return made


def close(x, y, **tolerance):
    torch.testing.assert_close(x, y, **({"rtol": 1e-5, "atol": 1e-5} | tolerance))


@pytest.fixture
def x():
    return torch.randn(6, 12, generator=torch.Generator().manual_seed(5))


def test_state_dicts_go_both_ways(x):
    ours, theirs = layer(), nn.Linear(12, 20)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    close(nn.functional.gelu(theirs(x), approximate="tanh"), ours(x))
    fresh = nn.Linear(12, 20)
    ours.load_state_dict(fresh.state_dict(), strict=True)
    close(nn.functional.gelu(fresh(x), approximate="tanh"), ours(x))


def test_parameters_start_as_torchs_do():
    torch.manual_seed(11)
    ours = rt.Linear(7, 5)
    torch.manual_seed(11)
    theirs = nn.Linear(7, 5)
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)


def test_repr_says_the_activation():
    assert repr(rt.Linear(2, 3, bias=False)) == "Linear(in_features=2, out_features=3, bias=False)"
    assert "activation=gelu, approximate=tanh" in repr(layer())
    assert "activation=silu" in repr(rt.GatedMLP(2, 3))


def test_a_wrong_activation_is_told_when_it_is_made():
    for make in (lambda: rt.Linear(2, 3, activation="gellu"), lambda: rt.GatedMLP(2, 3, "gellu")):
        with pytest.raises(InvalidProblemError, match="gellu"):
            make()


def _run_linear(module, function, x):
    return function(nn.functional.linear(x, module.weight, module.bias))


def _run_gate(module, function, x):
    gate, up = module.gate_up_proj(x).chunk(2, -1)
    return module.down_proj(function(gate) * up)


@pytest.mark.parametrize(
    ("module", "reference"), [(layer, _run_linear), (lambda: rt.GatedMLP(12, 20), _run_gate)], ids=["Linear", "Gate"]
)
def test_an_assigned_activation_is_computed_and_copied(module, reference, x):
    module, gelu = module(), nn.functional.gelu
    tanh_form = functools.partial(gelu, approximate="tanh")
    tight = {"rtol": 1e-6, "atol": 2e-6}  # the two forms differ by more
    for value, function in (
        ("silu", nn.functional.silu),
        (nn.GELU("tanh"), tanh_form),
        ("gelu", tanh_form),
        ("relu", nn.functional.relu),
        (nn.GELU("tanh"), tanh_form),
        (gelu, gelu),
        (nn.GELU("tanh"), tanh_form),
        (None, nn.Identity()),
    ):
        module.activation = value
        assert not isinstance(module.activation, nn.Module)
        for one in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            close(one(x), reference(one, function, x), **tight)
    module.activation = "gelu"
    module.approximate = "tanh"
    close(module(x), reference(module, tanh_form, x), **tight)
    for name, value in (("activation", "nonsense"), ("approximate", "tnah")):
        with pytest.raises(InvalidProblemError, match=name):
            setattr(module, name, value)
    assert (module.activation, module.approximate) == ("gelu", "tanh")


@pytest.mark.parametrize(
    "make",
    [layer, lambda: rt.MLP(12, 20, activation="silu"), lambda: rt.GatedMLP(12, 20)],
    ids=["Linear", "MLP", "GatedMLP"],
)
def test_copies_are_equal_and_apart(x, make):
    module = make().eval()
    with torch.no_grad():
        expected = module(x)
    stored = io.BytesIO()
    torch.save(module, stored)
    stored.seek(0)
    copies = [
        copy.deepcopy(module),
        pickle.loads(pickle.dumps(module)),
        torch.load(stored, weights_only=False),
    ]
    with torch.no_grad():
        for other in copies:
            assert repr(other) == repr(module)
            close(other(x), expected)
        for parameter in copies[0].parameters():
            parameter.zero_()
        close(copies[0](x), torch.zeros_like(expected))
        close(module(x), expected)
    assert PACKED not in pickle.dumps(module).decode("latin1")


def test_hooks_see_the_layer(x):
    module, seen = layer(), []
    module.register_forward_pre_hook(lambda module, inputs: seen.append("before"))
    module.register_forward_hook(lambda module, inputs, output: seen.append("after"))
    module.register_full_backward_hook(lambda module, grads, outputs: seen.append("backward"))
    module(x.requires_grad_()).sum().backward()
    assert seen == ["before", "after", "backward"]


def pre_hook(seen):
    return nn.modules.module.register_module_forward_pre_hook(lambda module, args: seen.append(module))


def forward_hook(seen):
    return nn.modules.module.register_module_forward_hook(lambda module, args, result: seen.append(module))


def backward_pre_hook(seen):
    return nn.modules.module.register_module_full_backward_pre_hook(lambda module, grad: seen.append(module))


def backward_hook(seen):
    return nn.modules.module.register_module_full_backward_hook(lambda module, given, grad: seen.append(module))


@pytest.mark.parametrize("register", [pre_hook, forward_hook, backward_pre_hook, backward_hook])
@pytest.mark.parametrize(
    ("make", "activation"),
    [(rt.MLP, "gelu"), (rt.MLP, rocpy.epilogue(lambda x: torch.tanh(x) * 2)), (rt.GatedMLP, "gelu")],
    ids=["MLP", "MLP of a custom epilogue", "GatedMLP"],
)
def test_hooks_of_all_modules_see_each_layer(make, activation, register):
    block, seen = make(6, 8, activation=activation), []
    handle = register(seen)
    try:
        block(torch.randn(2, 6, requires_grad=True)).sum().backward()
    finally:
        handle.remove()
    assert {id(module) for module in block.modules()} == {id(module) for module in seen}


@pytest.mark.parametrize("name", ["forward", "_call_impl", "_compiled_call_impl"])
def test_a_layers_own_call_is_made(name):
    block, seen = rt.MLP(6, 8), []
    original = block.fc2.forward

    def watched(*args):
        seen.append(name)
        return original(*args)

    setattr(block.fc2, name, watched)
    block(torch.randn(2, 6))
    assert seen == [name]


def test_hooks_inside_a_block_see_their_layers(x):
    block, seen = rt.MLP(12, 20), []
    expected = block(x)
    block.fc1.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    close(block(x), expected)
    assert seen == [(6, 20)]


def test_weight_norm(x):
    ours, theirs = layer(), plain(layer())
    nn.utils.parametrizations.weight_norm(ours)
    nn.utils.parametrizations.weight_norm(theirs[0])
    for module in (ours, theirs):
        for _ in range(2):
            module(x).square().mean().backward()
    close(ours(x), theirs(x))
    pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
    assert all(p.grad is not None for p in ours.parameters())
    for p, q in pairs:
        close(p.grad, q.grad)
    with torch.no_grad():
        close(ours.eval()(x), theirs(x))
    assert PACKED not in ours.__dict__


def test_tied_weights(x):
    first, second = rt.Linear(12, 12), rt.Linear(12, 12, activation="relu")
    second.weight = first.weight
    second(first(x)).sum().backward()
    one, two = nn.Linear(12, 12), nn.Linear(12, 12)
    one.load_state_dict(first.state_dict())
    two.load_state_dict(second.state_dict())
    two.weight = one.weight
    two(one(x)).relu().sum().backward()
    close(first.weight.grad, one.weight.grad)
    with torch.no_grad():
        first.eval()(x), second.eval()(x)
        first.weight.add_(1.0)
        one.weight.add_(1.0)
        close(first(x), one(x))
        close(second(x), two(x).relu())


# ---- blocks ----


def blocks(activation, approximate, dtype=torch.float64, bias=True):
    torch.manual_seed(2)
    ours = rt.MLP(6, 10, 5, activation, approximate=approximate, bias=bias, dtype=dtype)
    between = {
        None: nn.Identity(),
        "relu": nn.ReLU(),
        "gelu": nn.GELU(approximate),
        "silu": nn.SiLU(),
        "sigmoid": nn.Sigmoid(),
    }[activation]
    theirs = nn.Sequential(nn.Linear(6, 10, bias, dtype=dtype), between, nn.Linear(10, 5, bias, dtype=dtype))
    theirs[0].load_state_dict(ours.fc1.state_dict())
    theirs[2].load_state_dict(ours.fc2.state_dict())
    return ours, theirs


ACTIVATIONS = [
    (None, "none"),
    ("relu", "none"),
    ("gelu", "none"),
    ("gelu", "tanh"),
    ("silu", "none"),
    ("sigmoid", "none"),
]


@pytest.mark.parametrize(("activation", "approximate"), ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6), (0, 6), (6,)])
def test_mlp(activation, approximate, bias, shape):
    ours, theirs = blocks(activation, approximate, bias=bias)
    x = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    other = x.detach().clone().requires_grad_()
    y, z = ours(x), theirs(other)
    close(y, z, rtol=1e-12, atol=1e-12)
    y.square().sum().backward()
    z.square().sum().backward()
    close(x.grad, other.grad, rtol=1e-11, atol=1e-11)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        close(p.grad, q.grad, rtol=1e-11, atol=1e-11)
    with torch.no_grad():
        close(ours(x), z.detach(), rtol=1e-12, atol=1e-12)
        close(ours.eval()(x), z.detach(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("activation", "approximate"), ACTIVATIONS)
def test_mlp_gradients(activation, approximate):
    ours, _ = blocks(activation, approximate)
    x = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    parameters = [p.detach().requires_grad_() for p in ours.parameters()]

    def run(x, *parameters):
        return torch.func.functional_call(ours, dict(zip(dict(ours.named_parameters()), parameters, strict=True)), x)

    assert torch.autograd.gradcheck(run, (x, *parameters))
    assert torch.autograd.gradgradcheck(run, (x, *parameters), fast_mode=True)


@pytest.mark.parametrize(("activation", "approximate"), ACTIVATIONS)
@pytest.mark.parametrize(
    "frozen", [("fc1.bias",), ("fc1.weight", "fc1.bias"), ("fc2.weight",), ("fc2.weight", "fc2.bias")]
)
def test_mlp_gives_only_the_gradients_that_are_needed(activation, approximate, frozen):
    ours, theirs = blocks(activation, approximate)
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        p.requires_grad_(name not in frozen)
        q.requires_grad_(name not in frozen)
    x = torch.randn(4, 6, dtype=torch.float64)
    ours(x).square().sum().backward()
    theirs(x).square().sum().backward()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (p.grad is None) is (q.grad is None)
        if p.grad is not None:
            close(p.grad, q.grad, rtol=1e-11, atol=1e-11)


class Llama(nn.Module):
    """The block as the models write it."""

    def __init__(self, outside, inside, activation, bias, dtype):
        super().__init__()
        self.gate_proj = nn.Linear(outside, inside, bias, dtype=dtype)
        self.up_proj = nn.Linear(outside, inside, bias, dtype=dtype)
        self.down_proj = nn.Linear(inside, outside, bias, dtype=dtype)
        self.activation = activation

    def forward(self, x):
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


GATES = {
    (None, "none"): nn.Identity(),
    ("silu", "none"): nn.SiLU(),
    ("gelu", "tanh"): nn.GELU("tanh"),
    ("gelu", "none"): nn.GELU(),
    ("relu", "none"): nn.ReLU(),
    ("sigmoid", "none"): nn.Sigmoid(),
}


@pytest.mark.parametrize("gate", GATES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_gated_mlp(gate, bias):
    theirs = Llama(6, 10, GATES[gate], bias, torch.float64)
    ours = rt.GatedMLP(6, 10, gate[0], approximate=gate[1], bias=bias, dtype=torch.float64)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    back = Llama(6, 10, GATES[gate], bias, torch.float64)
    back.load_state_dict(ours.state_dict(), strict=True)
    x = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    other = x.detach().clone().requires_grad_()
    y, z = ours(x), back(other)
    close(y, z, rtol=1e-12, atol=1e-12)
    y.square().sum().backward()
    z.square().sum().backward()
    close(x.grad, other.grad, rtol=1e-11, atol=1e-11)
    both = torch.cat((back.gate_proj.weight.grad, back.up_proj.weight.grad))
    close(ours.gate_up_proj.weight.grad, both, rtol=1e-11, atol=1e-11)
    close(ours.down_proj.weight.grad, back.down_proj.weight.grad, rtol=1e-11, atol=1e-11)
    with torch.no_grad():
        close(ours.eval()(x), z.detach(), rtol=1e-12, atol=1e-12)
    small = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ours, (small,))
    assert torch.autograd.gradgradcheck(ours, (small,))


def test_blocks_save_no_more_than_torchs():
    class Sizes(dict):
        def pack(self, x):
            self[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
            return x

    def kept(module, x):
        sizes = Sizes()
        with torch.autograd.graph.saved_tensors_hooks(sizes.pack, lambda x: x):
            module(x)
        return sum(sizes.values())

    x = torch.randn(64, 6)
    for activation, approximate in ACTIVATIONS:
        ours, theirs = blocks(activation, approximate, torch.float32)
        assert 0 < kept(ours, x) <= kept(theirs, x)
    for (activation, approximate), function in GATES.items():
        gated = rt.GatedMLP(6, 10, activation, approximate=approximate)
        assert 0 < kept(gated, x) <= kept(Llama(6, 10, function, False, torch.float32), x)


def _changed(kind):
    module = nn.GELU()
    match kind:
        case "hook":
            module.register_forward_hook(lambda m, i, o: o * 100)
        case "pre-hook":
            module.register_forward_pre_hook(lambda m, i: None)
        case "gradient hook":
            module.register_full_backward_hook(lambda m, i, o: None)
        case "forward":
            module.forward = lambda z: z * 100
    return module


@pytest.mark.parametrize("kind", ["hook", "pre-hook", "gradient hook", "forward", "class"])
@pytest.mark.parametrize(
    "form",
    [
        lambda act: rt.Linear(8, 4, activation=act),
        lambda act: rt.MLP(8, 4, activation=act),
        lambda act: rt.GatedMLP(8, 4, activation=act),
        lambda act: rt.linear(torch.ones(2, 8), torch.ones(4, 8), activation=act),
    ],
    ids=["Linear", "MLP", "GatedMLP", "linear"],
)
def test_an_activation_with_code_of_its_own_is_refused(kind, form, monkeypatch):
    activation = _changed(kind)
    if kind == "class":
        monkeypatch.setattr(nn.GELU, "forward", lambda self, z: z * 100)
    with pytest.raises(InvalidProblemError, match=r"^activation: got a GELU with hooks or a changed forward"):
        form(activation)


@pytest.mark.parametrize(
    "activation", [nn.GELU(), functools.partial(nn.functional.gelu, approximate="none")], ids=["module", "partial"]
)
def test_an_activation_with_another_approximation_is_refused(activation):
    with pytest.raises(InvalidProblemError, match="approximate='tanh', but .* approximate='none'"):
        rt.Linear(8, 4, activation=activation, approximate="tanh")
    assert rt.Linear(8, 4, activation=nn.functional.gelu, approximate="tanh").approximate == "tanh"
