# SPDX-License-Identifier: MIT
"""What other parts of torch know of rocpy's operators and layers: counted, traced, quantized."""

from __future__ import annotations

import re

import pytest

import rocpy
from rocpy.errors import InvalidProblemError

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
nn = torch.nn
functional = torch.nn.functional


def close(x, y, **tolerance):
    torch.testing.assert_close(x, y, **({"rtol": 1e-5, "atol": 1e-5} | tolerance))


# ---- operations counted ----


def flops(run):
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (4,)])
def test_flops_of_layers_are_torchs(shape):
    x = torch.randn(shape)
    ours, theirs = rt.MLP(4, 8, activation="silu"), nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 4))
    with torch.no_grad():
        assert flops(lambda: ours(x)) == flops(lambda: theirs(x)) > 0
    assert flops(lambda: ours(x).sum().backward()) == flops(lambda: theirs(x).sum().backward())
    assert flops(lambda: rt.Linear(4, 8, activation="gelu")(x).sum().backward()) == flops(
        lambda: nn.Linear(4, 8)(x).sum().backward()
    )


@pytest.mark.parametrize(("a", "b"), [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((7, 1, 3, 4), (2, 4, 5)), ((4,), (4,))])
@pytest.mark.parametrize("epilogue", ["default", "gelu_aux_bias", "custom"])
def test_flops_of_products(a, b, epilogue):
    x, y = torch.randn(a), torch.randn(b)
    if epilogue == "custom":
        arguments = {"epilogue": rocpy.epilogue(lambda x: torch.tanh(x) * 2)}
    else:
        arguments = {"epilogue": epilogue}
        if "bias" in epilogue:
            arguments["bias"] = torch.randn(b[-1] if len(b) > 1 else 1)
    result = torch.matmul(x, y)
    assert flops(lambda: rocpy.matmul(x, y, **arguments)) == 2 * result.numel() * a[-1]


def test_flops_are_counted_where_only_rocpy_was_imported(run_python):
    run_python("""
        import rocpy, torch
        from torch.utils.flop_counter import FlopCounterMode
        with FlopCounterMode(display=False) as counter:
            rocpy.matmul(torch.ones(2, 3), torch.ones(3, 4))
        assert counter.get_total_flops() == 2 * 2 * 3 * 4
    """)


# ---- traced ----


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("make", [rt.MLP, rt.GatedMLP, lambda a, b: rt.Linear(a, b, activation="gelu")])
def test_jit_trace_with_its_own_check(make, training):
    module = make(4, 8).train(training)
    traced = torch.jit.trace(module, (torch.randn(3, 4),))
    x = torch.randn(5, 4)
    close(traced(x), module(x))


@pytest.mark.parametrize("make", [rt.MLP, rt.GatedMLP, lambda a, b: rt.Linear(a, b, activation="gelu")])
def test_symbolic_trace(make):
    module = nn.Sequential(make(4, 8))
    graph = torch.fx.symbolic_trace(module)
    assert any("rocpy" in str(node.target) for node in graph.graph.nodes)
    x = torch.randn(5, 4)
    close(graph(x), module(x))


def compilations(function, backend, dynamic):
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(function, fullgraph=True, backend=counter, dynamic=dynamic)
    a, b, c = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5)
    for alpha in (1.0, 2.5, -3.0, 0.0, 1e-3):
        close(compiled(a, b, c, alpha, alpha + 0.5), alpha * (a @ b) + (alpha + 0.5) * c)
    return counter.frame_count


@pytest.mark.parametrize(
    ("backend", "dynamic"),
    [("eager", None), ("aot_eager", True), pytest.param("aot_eager", None, marks=pytest.mark.slow)],
)
def test_a_changed_factor_is_compiled_no_more_often_than_torchs(backend, dynamic):
    def ours(a, b, c, alpha, beta):
        return rocpy.matmul(a, b, c, alpha=alpha, beta=beta)

    def theirs(a, b, c, alpha, beta):
        return torch.addmm(c, a, b, alpha=alpha, beta=beta)

    assert compilations(ours, backend, dynamic) <= compilations(theirs, backend, dynamic)


def test_options_under_the_compiler():
    torch._dynamo.reset()
    a, b = torch.randn(3, 4), torch.randn(4, 5)

    def run(a, b):
        return rocpy.matmul(a, b, options={"copies": "error"}) + 1

    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"with rocpy\.options"):
        torch.compile(run, fullgraph=True, backend="eager")(a, b)
    torch._dynamo.reset()
    close(torch.compile(run, backend="eager")(a, b), a @ b + 1)


# ---- other packages' weights ----


class Halves(torch.Tensor):
    """A weight kept in float16 that computes its layers itself, as quantizing packages have them."""

    @staticmethod
    def __new__(cls, half):
        return torch.Tensor._make_wrapper_subclass(cls, half.shape, dtype=torch.float32)

    def __init__(self, half):
        self.half_ = half

    def __tensor_flatten__(self):
        return ["half_"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Halves(inner["half_"])

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is functional.linear:
            x, weight, bias = (*args, None)[:3]
            y = x @ weight.half_.float().t()
            return y if bias is None else y + bias
        return super().__torch_function__(function, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return Halves(args[0].half_)
        raise NotImplementedError(function)


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_a_layer_whose_weight_another_package_took_over(activation):
    model = nn.Sequential(nn.Linear(6, 8), *([nn.GELU()] if activation else []))
    rt.replace_linear(model)
    x = torch.randn(3, 6)
    expected = model(x).detach()
    model[0].weight = nn.Parameter(Halves(model[0].weight.detach().half()), requires_grad=False)
    close(model(x).detach(), expected, rtol=1e-2, atol=1e-2)
    layer = rt.Linear(6, 8, activation=activation).eval()
    expected = layer(x).detach()
    layer.weight = nn.Parameter(Halves(layer.weight.detach().half()), requires_grad=False)
    with torch.no_grad():
        close(layer(x), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("kind", ["MLP", "Sequential"])
def test_compiled_layers_whose_weight_another_package_took_over(kind):
    model = BLOCKS[kind]()
    rt.replace_linear(model)
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            taken_over(layer)
    torch._dynamo.reset()
    x = torch.randn(3, 6)
    with torch.no_grad():
        close(torch.compile(model, backend="eager", fullgraph=True)(x), model(x))


def taken_over(layer):
    layer.weight = nn.Parameter(Halves(layer.weight.detach().half()), requires_grad=False)


def one_for_all(layer):
    layer.bias = nn.Parameter(torch.randn(1))


def a_bias_for_each_row(layer):
    layer.bias = nn.Parameter(torch.randn(3, layer.out_features))


def scaled(x):
    return torch.tanh(x) * 2


class Written(nn.Module):
    """A block whose layers are replaced in its code."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x):
        return self.b(functional.relu(self.a(x)))


BLOCKS = {
    "MLP": lambda: rt.MLP(6, 8, activation="relu"),
    "MLP with an epilogue": lambda: rt.MLP(6, 8, activation=rocpy.epilogue(scaled)),
    "Sequential": lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6)),
    "a class": Written,
}


@pytest.mark.parametrize("change", [taken_over, one_for_all, a_bias_for_each_row], ids=lambda change: change.__name__)
@pytest.mark.parametrize("layers", [(0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_whose_layers_torch_alone_computes(kind, layers, change):
    torch.manual_seed(2)
    model, x = BLOCKS[kind](), torch.randn(3, 6, requires_grad=True)
    rt.replace_linear(model)
    members = [module for module in model.modules() if isinstance(module, nn.Linear)]
    for i in layers:
        change(members[i])
    function = scaled if kind == "MLP with an epilogue" else torch.relu
    expected = functional.linear(x, members[0].weight, members[0].bias)
    expected = functional.linear(function(expected), members[1].weight, members[1].bias)
    for mode in (torch.enable_grad, torch.no_grad):
        with mode():
            close(model(x), expected)
    parameters = [x, *(p for p in model.parameters() if p.requires_grad)]
    found = torch.autograd.grad(model(x).square().sum(), parameters)
    close(found, torch.autograd.grad(expected.square().sum(), parameters), rtol=1e-4, atol=1e-5)


def test_quantize_dynamic_passes_replaced_layers_by():
    """It looks for nn.Linear itself; the report says to undo the replacement first."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    report = rt.replace_linear(model)
    x = torch.randn(3, 6)
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    assert isinstance(quantized[0], rt.Linear)
    assert any("quantize_dynamic misses replaced layers" in note for note in report.notes)
    assert f"note: {report.notes[0]}" in repr(report)
    assert report.to_dict()["notes"] == report.notes
    close(quantized(x), model(x))
    report.undo()
    quantized = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    assert not isinstance(quantized[0], nn.Linear)


# ---- what F.linear takes ----

ACTIVATIONS = [
    None,
    nn.Identity(),
    nn.ReLU(),
    nn.ReLU(inplace=True),
    nn.GELU(),
    nn.GELU("tanh"),
    nn.SiLU(),
    nn.Sigmoid(),
    functional.relu,
    functional.gelu,
    functional.silu,
    functional.sigmoid,
    torch.relu,
    torch.sigmoid,
]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda x: getattr(x, "__name__", str(x)))
def test_activations_as_modules_and_functions(activation):
    x = torch.randn(3, 6)
    layer, mlp = rt.Linear(6, 8, activation=activation), rt.MLP(6, 8, activation=activation)
    gated = rt.GatedMLP(6, 8, activation=activation)
    assert not list(layer.children())
    apply = activation or (lambda x: x)
    with torch.no_grad():
        expected = apply(functional.linear(x, layer.weight, layer.bias))
        close(layer(x), expected)
        close(rt.linear(x, layer.weight, layer.bias, activation), expected)
        hidden = apply(functional.linear(x, mlp.fc1.weight, mlp.fc1.bias))
        close(mlp(x), functional.linear(hidden, mlp.fc2.weight, mlp.fc2.bias))
        gate, up = functional.linear(x, gated.gate_up_proj.weight).chunk(2, -1)
        close(gated(x), functional.linear(apply(gate) * up, gated.down_proj.weight))


def test_activations_that_are_none_are_refused():
    with pytest.raises(InvalidProblemError, match=r"got Tanh, which is none of .*GELU"):
        rt.Linear(2, 2, activation=nn.Tanh())
    with pytest.raises(
        InvalidProblemError, match=r"tanh is a plain function; .*pass rocpy\.epilogue\(lambda x: tanh\(x\)\)$"
    ):
        rt.Linear(2, 2, activation=torch.tanh)
    with pytest.raises(InvalidProblemError, match=r"the class GELU; pass an instance, GELU\(\)"):
        rt.Linear(2, 2, activation=nn.GELU)
    with pytest.raises(InvalidProblemError, match="approximate: got 'tanh'"):
        rt.Linear(2, 2, activation=nn.ReLU(), approximate="tanh")
    assert rt.Linear(2, 2, activation=nn.GELU("tanh"), approximate="tanh").approximate == "tanh"


@pytest.mark.parametrize(
    "activation",
    [functional.gelu, nn.GELU(), nn.GELU("tanh"), nn.ReLU(), torch.sigmoid, functional.silu, nn.Identity(), nn.GELU],
    ids=lambda activation: getattr(activation, "__name__", str(activation)),
)
def test_the_epilogue_named_for_one_of_torchs_functions_computes_it(activation):
    a, b = torch.randn(8, 8, dtype=torch.float64), torch.randn(8, 8, dtype=torch.float64)
    with pytest.raises(InvalidProblemError, match="epilogue: got torch") as refused:
        rocpy.matmul(a, b, epilogue=activation)
    name = re.search(r"pass its name, '(\w+)'", str(refused.value))[1]
    apply = activation() if isinstance(activation, type) else activation
    torch.testing.assert_close(rocpy.matmul(a, b, epilogue=name), apply(a @ b))


def test_what_is_said_of_other_names_and_functions():
    with pytest.raises(InvalidProblemError, match=r"did you mean activation='gelu' with approximate='tanh'"):
        rt.Linear(2, 2, activation="gelu_tanh")
    with pytest.raises(InvalidProblemError, match=r"ELU is a callable object; .*name$"):
        rocpy.matmul(torch.ones(2, 2), torch.ones(2, 2), epilogue=nn.ELU())


@pytest.mark.parametrize("x", [(2, 4), (3, 2, 4), (5, 3, 2, 4), (4,)])
@pytest.mark.parametrize("bias", [(), (1,), (6,), (1, 6), (2, 6), (3, 2, 6), (3, 1, 6), (6, 6), (7,)])
@pytest.mark.parametrize("activation", [None, "gelu"])
def test_shapes_of_bias(x, bias, activation):
    made = [torch.randn(shape, dtype=torch.float64) for shape in (x, (6, 4), bias)]
    ours, theirs = ([t.clone().requires_grad_() for t in made] for _ in range(2))
    try:
        expected = functional.linear(*theirs)
    except RuntimeError:
        with pytest.raises(InvalidProblemError, match="bias"):
            rt.linear(*ours, activation)
        return
    expected = functional.gelu(expected) if activation else expected
    found = rt.linear(*ours, activation)
    close(found, expected)
    found.square().sum().backward()
    expected.square().sum().backward()
    for p, q in zip(ours, theirs, strict=True):
        close(p.grad, q.grad)
    with torch.no_grad():
        close(rt.linear(*ours, activation), expected)
    layer = rt.Linear(4, 6, activation=activation, dtype=torch.float64, pack=True).eval()
    layer.weight, layer.bias = nn.Parameter(made[1]), nn.Parameter(made[2])
    with torch.no_grad():
        close(layer(made[0]), expected.detach())


@pytest.mark.parametrize("x", [(2, 4), (3, 2, 4), (4,)])
@pytest.mark.parametrize("bias", [None, ()])
def test_a_weight_of_one_output(x, bias):
    rows, weight = torch.randn(x, requires_grad=True), torch.randn(4, requires_grad=True)
    added = None if bias is None else torch.randn(bias, requires_grad=True)
    expected = rows @ weight + (0 if added is None else added)
    found = rt.linear(rows, weight, added, "relu")
    close(found, expected.relu())
    operands = [rows, weight, *([] if added is None else [added])]
    close(torch.autograd.grad(found.sum(), operands), torch.autograd.grad(expected.relu().sum(), operands))
