# SPDX-License-Identifier: MIT
"""Replaced models under torch.compile, torch.export, autocast, torch.func and checkpointing; their gradients."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")
modules = pytest.importorskip("compiled_modules")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
nn = torch.nn


class Gate(nn.Module):
    """As Llama writes it."""

    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(6, 10), nn.Linear(6, 10), nn.Linear(10, 6)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class Spelled(nn.Module):
    """Tanh GELU spelled out."""

    def forward(self, x):
        c = (2.0 / torch.pi) ** 0.5
        return 0.5 * x * (1.0 + torch.tanh(c * (x + 0.044715 * torch.pow(x, 3.0))))


def model():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Sequential(nn.Linear(6, 12), nn.GELU("tanh"), nn.Linear(12, 6)),
        Gate(),
        nn.Linear(6, 7),
        nn.ReLU(),
        nn.Identity(),
        nn.Linear(7, 5),
        Spelled(),
    )


@pytest.fixture
def pair():
    """A model and a replaced copy of it."""
    torch._dynamo.reset()
    theirs = model()
    ours = copy.deepcopy(theirs)
    report = rt.replace_linear(ours)
    assert (len(report.replaced), len(report.fused)) == (7, 4)
    yield theirs, ours
    torch._dynamo.reset()


def test_no_graph_break(pair):
    _, ours = pair
    found = torch._dynamo.explain(ours)(torch.randn(3, 6))
    assert found.graph_break_count == 0
    assert found.graph_count == 1


@pytest.mark.parametrize(
    ("backend", "activations"),
    # Other backends get the block's own code, in which rocpy computes the layers.
    # A float that a module computes is an argument of the graph with dynamic=True, so that one formula is not known.
    [("aot_eager", 0), *(pytest.param(*row, marks=pytest.mark.slow) for row in (("rocpy", 3), ("inductor", 0)))],
)
def test_five_batch_sizes_compile_once(backend, activations, pair):
    theirs, ours = pair
    compiled, x = modules.compiled_once(ours, theirs, backend)
    with rt.counters() as counts:
        modules.step(compiled, x)
    assert (counts.layers, counts.activations) == (7, activations)


@pytest.mark.slow
def test_a_compiled_model_notices_the_replacement():
    theirs = model()
    ours = copy.deepcopy(theirs)
    compiled = torch.compile(ours, backend="aot_eager")
    x = torch.randn(3, 6)
    expected = compiled(x)
    report = rt.replace_linear(compiled)
    assert len(report.replaced) == 7
    with rt.counters() as counts:
        torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-5)
    assert counts.layers == 7
    report.undo()
    with rt.counters() as counts:
        torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-5)
    assert counts.layers == 0


@pytest.mark.slow
def test_a_hook_put_on_a_compiled_model_is_seen_when_it_compiles_again(pair):
    theirs, ours = pair
    x = torch.randn(3, 6)
    compiled = torch.compile(ours, backend="aot_eager")
    compiled(x)
    for model in pair:
        model[2].register_forward_hook(lambda module, inputs, output: output * 2)
    torch._dynamo.reset()
    torch.testing.assert_close(compiled(x), theirs(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("strict", [pytest.param(True, marks=pytest.mark.slow), False])
def test_export(strict, pair, tmp_path):
    theirs, ours = pair
    rows = torch.export.Dim("rows")
    program = torch.export.export(ours.eval(), (torch.randn(3, 6),), dynamic_shapes=({0: rows},), strict=strict)
    targets = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    # The two layers of the first block are one operator or two.
    assert sum(target in ("rocpy.linear.default", "rocpy.mlp.default") for target in targets) in (6, 7)
    apart = any("gelu" in target or "tanh" in target or "relu" in target for target in targets)
    assert apart is strict  # torch's compiler reads the blocks' own code
    assert set(program.state_dict) == set(theirs.state_dict())
    torch.export.save(program, tmp_path / "model.pt2")
    x = torch.randn(9, 6)
    found = torch.export.load(tmp_path / "model.pt2").module()(x)
    torch.testing.assert_close(found, theirs.eval()(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_autocast(compiled, pair):
    theirs, ours = pair
    run = torch.compile(ours, fullgraph=True, backend="rocpy") if compiled else ours
    x = torch.randn(16, 6)
    exact = theirs(x)
    with torch.autocast("cpu", dtype=torch.bfloat16), rt.counters() as counts:
        found, expected = run(x), theirs(x)
    assert found.dtype == expected.dtype == torch.bfloat16
    # The activation that is spelled out runs in torch's functions there, each in the type that autocast has for it.
    assert (counts.layers, counts.activations) == (7, 3)
    error = (found.double() - exact.double()).abs().max()
    assert error <= 2 * (expected.double() - exact.double()).abs().max() + 2**-8 * exact.abs().max()


def test_bfloat16_model():
    theirs = model().bfloat16()
    ours = copy.deepcopy(theirs)
    rt.replace_linear(ours)
    x = torch.randn(16, 6).bfloat16()
    torch.testing.assert_close(ours(x), theirs(x), rtol=5e-2, atol=2e-2)


def test_gradients(pair):
    ours = pair[1].double()
    x = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    parameters = [p.detach().requires_grad_() for p in ours.parameters()]
    names = [name for name, _ in ours.named_parameters()]

    def run(x, *parameters):
        return torch.func.functional_call(ours, dict(zip(names, parameters, strict=True)), x)

    assert torch.autograd.gradcheck(run, (x, *parameters))
    assert torch.autograd.gradgradcheck(ours, (x,))


def test_transforms(pair):
    theirs, ours = (module.double() for module in pair)
    x = torch.randn(4, 6, dtype=torch.float64)

    def loss(module):
        def of(parameters, x):
            return torch.func.functional_call(module, parameters, x).square().sum()

        return of

    def per_sample(module):
        parameters = dict(module.named_parameters())
        return torch.vmap(torch.func.grad(loss(module)), in_dims=(None, 0))(parameters, x)

    torch.testing.assert_close(per_sample(ours), per_sample(theirs), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(torch.vmap(ours)(x), theirs(x), rtol=1e-10, atol=1e-10)


def test_meta_and_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with torch.device("meta"):
        meta = model()
    assert len(rt.replace_linear(meta).fused) == 4
    assert meta(torch.empty(3, 6, device="meta")).shape == (3, 5)
    with FakeTensorMode():
        fake = model()
        rt.replace_linear(fake)
        assert fake(torch.empty(3, 6)).shape == (3, 5)


def test_operators_of_a_replaced_model(pair):
    """What the layers call passes torch's own check of operators, on their parameters."""
    _, ours = pair
    layer, after = ours[0][0], ours[0][2]
    x = torch.randn(3, 6, requires_grad=True)
    operators = torch.ops.rocpy
    torch.library.opcheck(operators.linear.default, (x, layer.weight, layer.bias, "gelu_tanh"))
    torch.library.opcheck(operators.mlp.default, (x, layer.weight, layer.bias, after.weight, after.bias, "gelu_tanh"))


def test_checkpointing(pair):
    from torch.utils.checkpoint import checkpoint_sequential

    theirs, ours = pair
    x = torch.randn(3, 6, requires_grad=True)
    expected = modules.step(theirs, x)
    ours.zero_grad()
    y = checkpoint_sequential(ours, 2, x, use_reentrant=False)
    y.square().sum().backward()
    torch.testing.assert_close([y.detach(), *(p.grad for p in ours.parameters())], expected, rtol=1e-4, atol=1e-5)


def test_symbolic_trace_and_jit_trace(pair):
    theirs, ours = pair
    x = torch.randn(3, 6)
    for run in (torch.fx.symbolic_trace(ours), torch.jit.trace(ours, x, check_trace=False)):
        y = torch.randn(5, 6)
        torch.testing.assert_close(run(y), theirs(y), rtol=1e-4, atol=1e-5)
