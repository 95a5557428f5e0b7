# SPDX-License-Identifier: MIT
"""torch.compile with the backend rocpy and Inductor with rocpy's pass: what they fuse, and what they leave."""

from __future__ import annotations

import copy

import pytest

from rocpy.errors import InvalidOperandError

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
nn = torch.nn
F = nn.functional
EAGER = {"backend": "rocpy", "options": {"rest": "eager"}}
WAYS = [
    pytest.param(lambda: EAGER, id="eager"),
    pytest.param(lambda: {"backend": "rocpy", "options": {"rest": "inductor"}}, id="inductor", marks=pytest.mark.slow),
    pytest.param(lambda: {"options": {"pre_grad_custom_pass": rt.inductor_pass()}}, id="pass", marks=pytest.mark.slow),
]


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Spelled(nn.Module):
    """Tanh GELU spelled out."""

    def forward(self, x):
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))


class Net(nn.Module):
    """Layers among other things, with branches."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 10), nn.Linear(10, 6), nn.Linear(6, 6)
        self.spelled, self.flag = Spelled(), False

    def forward(self, x):
        if self.training and self.flag:
            return x
        hidden = F.gelu(self.a(x), approximate="tanh")
        y = self.b(hidden) + x
        y = y * torch.sigmoid(self.c(y))
        return self.spelled(self.c(y))


def net():
    torch.manual_seed(3)
    return Net()


def step(module, x, like):
    like.zero_grad()
    y = module(x)
    y.square().sum().backward()
    return [y.detach(), *(p.grad.clone() for p in like.parameters())]


@pytest.mark.parametrize("way", WAYS)
def test_an_unmodified_model(way):
    model, x = net(), torch.randn(4, 6)
    expected = step(model, x, model)
    compiled = torch.compile(model, fullgraph=True, **way())
    try:
        found = step(compiled, x, model)
    except Exception as error:
        if "compiler" in str(error).lower():
            pytest.skip(f"no C++ compiler for inductor: {type(error).__name__}")
        raise
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    with rt.counters() as counts:
        step(compiled, x, model)
    assert counts.activations == 3
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), expected[0], rtol=1e-4, atol=1e-5)
    model.flag = True  # guarded by torch's compiler
    assert torch.equal(compiled(x), x)


def test_the_name_is_known_without_importing_rocpy(run_python):
    run_python(
        """
        import sys, torch
        assert not any(name.startswith("rocpy.") for name in sys.modules)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU())
        x = torch.ones(2, 4)
        compiled = torch.compile(model, backend="rocpy", options={"rest": "eager"})
        torch.testing.assert_close(compiled(x), model(x))
        import rocpy.torch as rt
        with rt.counters() as counts:
            compiled(x)
        assert counts.activations == 1
        """
    )


def test_a_rest_that_there_is_not():
    from torch._dynamo.exc import BackendCompilerFailed

    with pytest.raises((InvalidOperandError, BackendCompilerFailed), match="'inductor' or 'eager'"):
        torch.compile(nn.Linear(2, 2), backend="rocpy", options={"rest": "later"})(torch.ones(1, 2))


def graph_of(function, *inputs):
    """Return what a function's graph became, and how many pairs were fused, after checking the results."""
    from rocpy.torch.compiler.graphs import fuse_graph

    graphs, pairs = [], []

    def backend(module, example_inputs):
        pairs.append(fuse_graph(module.graph, every_layer=True))
        module.recompile()
        graphs.append(module.graph)
        return module

    compiled = torch.compile(function, backend=backend, fullgraph=True)
    torch.manual_seed(1)
    found = compiled(*inputs)
    torch.manual_seed(1)
    torch.testing.assert_close(found, function(*inputs), rtol=1e-4, atol=1e-5, check_dtype=True)
    return graphs[0], sum(pairs)


def two_uses(x, w):
    y = F.linear(x, w)
    return F.relu(y) + y


def overwritten(x, w):
    y = F.linear(x, w)
    y.add_(1)
    return F.relu(y)


def overwritten_input(x, w):
    x = x + 0
    y = F.linear(x, w)
    x.add_(100)
    return F.relu(y) + x.sum()


def without_gradient(x, w):
    y = F.linear(x, w)
    with torch.no_grad():
        return F.relu(y)


def dropped(x, w):
    return F.relu(F.dropout(F.linear(x, w), 0.5))


def quick(x, w):
    y = F.linear(x, w)
    return y * torch.sigmoid(1.702 * y)


def slow_silu(x, w):
    y = F.linear(x, w)
    return y * torch.sigmoid(y)


def read_inside(x, w):
    y = F.linear(x, w)
    s = torch.sigmoid(y)
    return y * s, s


def integers(x, w):
    return F.relu(F.linear(x.to(torch.int32), w.to(torch.int32)))


CASES = [
    (two_uses, 0),
    (overwritten, 0),
    (overwritten_input, 1),
    (without_gradient, 0),
    (dropped, 0),
    (quick, 0),
    (slow_silu, 1),
    (read_inside, 0),
    (integers, 0),
]


@pytest.mark.parametrize(("function", "pairs"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_pairs_of_a_graph(function, pairs):
    torch.manual_seed(0)
    x, w = torch.randn(4, 6), torch.randn(6, 6, requires_grad=True)
    _, found = graph_of(function, x, w)
    assert found == pairs
    if function is without_gradient:
        torch._dynamo.reset()
        assert not torch.compile(function, **EAGER)(x, w).requires_grad


def test_a_layer_behind_a_pair_joins_it():
    a, b = torch.randn(8, 6, requires_grad=True), torch.randn(6, 8, requires_grad=True)
    graph, pairs = graph_of(lambda x: F.linear(F.relu(F.linear(x, a)), b), torch.randn(3, 6))
    assert pairs == 1
    assert targets(graph) == [torch.ops.rocpy.mlp.default]


def scaled(h, w2, b2):
    w2.mul_(2)


def scaled_by_operator(h, w2, b2):
    w2 *= 2


def scaled_by_function(h, w2, b2):
    torch.mul(w2, 2, out=w2)


def assigned(h, w2, b2):
    w2[0] = 5.0


def view_written(h, w2, b2):
    w2.t()[1:].zero_()


def bias_written(h, w2, b2):
    b2.add_(1)


def rectified(h, w2, b2):
    F.relu(w2, inplace=True)


def rectified_by_position(h, w2, b2):
    F.relu(w2, True)


def renormed(h, w2, b2):
    F.embedding(torch.tensor([0]), w2, max_norm=0.1)


def statistics(h, w2, b2):
    F.batch_norm(torch.arange(6.0).view(2, 3), b2, torch.ones(3), training=True)


def nothing(h, w2, b2):
    pass


WRITES = (
    *(scaled, scaled_by_operator, scaled_by_function, assigned, view_written, bias_written),
    *(rectified, rectified_by_position, renormed, statistics),
)


def targets(graph):
    return [node.target for node in graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("change", [*WRITES, nothing], ids=lambda change: change.__name__)
def test_a_layer_reads_its_weight_after_what_changes_it(change):
    from rocpy.torch.compiler.graphs import fuse_graph

    def run(x, w1, w2, b2):
        h = torch.relu(F.linear(x, w1))
        change(h, w2, b2)
        return F.linear(h, w2, b2)

    def backend(module, example_inputs):
        fuse_graph(module.graph, every_layer=True)
        module.recompile()
        graphs.append(module.graph)
        return module

    torch.manual_seed(0)
    x, w1, w2, b2 = torch.randn(5, 4), torch.randn(8, 4), torch.randn(3, 8), torch.randn(3)
    expected = run(x, w1, w2.clone(), b2.clone())
    graphs = []
    found = torch.compile(run, backend=backend)(x, w1, w2.clone(), b2.clone())
    torch.testing.assert_close(found, expected)
    joined = [torch.ops.rocpy.mlp.default in targets(graph) for graph in graphs]
    assert any(joined) == (change is nothing)


@pytest.mark.parametrize("aliases", ["the same", "its view"])
def test_a_weight_changed_through_another_argument(aliases):
    def run(x, w1, w2, other):
        h = torch.relu(F.linear(x, w1))
        other.mul_(2)
        return F.linear(h, w2)

    def operands():
        torch.manual_seed(0)
        x, w1, w2 = torch.randn(5, 4), torch.randn(8, 4), torch.randn(8, 8)
        return x, w1, w2, w2 if aliases == "the same" else w2.t()

    torch.testing.assert_close(torch.compile(run, **EAGER)(*operands()), run(*operands()))


@pytest.mark.parametrize("between", [F.linear, lambda x, a: torch.tanh(x) + 1], ids=["layer", "sum"])
def test_what_changes_nothing_may_be_between_joined_layers(between):
    a, b = torch.randn(8, 6), torch.randn(6, 8)

    def run(x):
        h = F.relu(F.linear(x, a))
        other = between(x, a)
        return F.linear(h, b), other

    graph, _ = graph_of(run, torch.randn(3, 6))
    assert torch.ops.rocpy.mlp.default in targets(graph)


@pytest.mark.parametrize("way", WAYS)
def test_modules_that_change_a_weight_between_layers(way):
    class Changing(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3, bias=False)
            self.requires_grad_(False)

        def forward(self, x):
            h = torch.relu(self.a(x))
            self.b.weight.mul_(2)
            return self.b(h)

    model, x = Changing(), torch.randn(5, 4)
    expected = copy.deepcopy(model)(x)
    rt.replace_linear(model, fuse=False)
    torch.testing.assert_close(torch.compile(model, **way())(x), expected)


def test_autocast_inside_a_graph():
    model = nn.Sequential(nn.Linear(6, 10), nn.GELU(), nn.Linear(10, 6), Spelled())

    def run(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    x = torch.randn(5, 6)
    compiled = torch.compile(run, fullgraph=True, **EAGER)
    found = compiled(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, run(x), rtol=5e-2, atol=2e-2)
    with rt.counters() as counts:
        compiled(x)
    # What is spelled out computes in types of its own there.
    assert counts.activations == 1
