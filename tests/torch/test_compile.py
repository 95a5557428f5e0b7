# SPDX-License-Identifier: MIT
"""torch.compile and torch.export: one graph, no break, one compilation for all batch sizes, the same numbers."""

from __future__ import annotations

import pytest

import rocpy

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")
modules = pytest.importorskip("compiled_modules")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        rt.Linear(6, 12, activation="gelu", approximate="tanh"),
        rt.MLP(12, 16, activation="silu"),
        rt.GatedMLP(12, 8),
        rt.Linear(12, 4, activation="relu"),
    )


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_five_batch_sizes_compile_once(backend):
    module = model()
    modules.compiled_once(module, module, backend)


def test_no_graph_break():
    found = torch._dynamo.explain(model())(torch.randn(3, 6))
    assert found.graph_break_count == 0
    assert found.graph_count == 1


def test_inference_compiles():
    module = model().eval()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = torch.randn(3, 6)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), module(x))


def test_autocast_compiles():
    module = model()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = torch.randn(3, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, z = compiled(x), module(x)
    assert y.dtype == z.dtype == torch.bfloat16
    torch.testing.assert_close(y, z, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", ["rocpy", "rocpy.torch"])
def test_matmul_compiles(name):
    matmul = rocpy.matmul if name == "rocpy" else rt.matmul
    weight = rocpy.Weight(torch.randn(5, 4), bias=torch.randn(4))

    def run(a, b, bias):
        d, aux = matmul(a, b, epilogue="gelu_aux_bias", bias=bias)
        back = matmul(d, b.t(), alpha=0.5)
        grad, sums = matmul(d, b.t() @ b, epilogue="dgelu_bgrad", aux=aux)
        return matmul(back, weight, epilogue="relu_bias"), grad, sums["bgrad"]

    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (3, 7):
        operands = [torch.randn(*shape, requires_grad=True) for shape in ((rows, 5), (5, 6), (6,))]
        found, expected = compiled(*operands), run(*operands)
        torch.testing.assert_close(found, expected)
        gradients = [torch.autograd.grad(sum(x.sum() for x in r), operands) for r in (found, expected)]
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("more", [{"beta": 1.0}, {"stream": 0}, {"autotune": False}], ids=str)
def test_a_refusal_is_shown_as_it_is_without_a_compiler(more):
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    (name,) = more
    with pytest.raises(torch._dynamo.exc.Unsupported, match=rf"(InvalidProblem|Unsupported)Error\(.{name}(:| =) "):
        torch.compile(lambda a: rocpy.matmul(a, b, **more), fullgraph=True, backend="eager")(a)


def test_a_refusal_is_caught_in_a_compiled_function():
    def run(a, b):
        try:
            return rocpy.matmul(a, b, stream=0)
        except rocpy.UnsupportedError:
            return a @ b

    a, b = torch.randn(3, 4), torch.randn(4, 5)
    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="eager")(a, b), a @ b)


def test_matmul_compiles_where_only_rocpy_was_imported(run_python):
    run_python("""
        import warnings
        warnings.simplefilter("ignore")
        import rocpy, torch
        a, b = torch.randn(3, 4), torch.randn(4, 5)
        compiled = torch.compile(lambda a, b: rocpy.matmul(a, b, epilogue="relu"), fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(a, b), (a @ b).relu())
    """)


@pytest.mark.parametrize("strict", [True, False])
def test_export(strict, tmp_path):
    module = model().eval()
    rows = torch.export.Dim("rows")
    program = torch.export.export(module, (torch.randn(3, 6),), dynamic_shapes=({0: rows},), strict=strict)
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert {"rocpy.linear.default", "rocpy.mlp.default"} & names
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    x = torch.randn(9, 6)
    torch.testing.assert_close(loaded(x), module(x))


def test_activation_checkpointing():
    from torch.utils.checkpoint import checkpoint

    module = model()
    x = torch.randn(3, 6, requires_grad=True)
    expected = modules.step(module, x)
    module.zero_grad()
    y = checkpoint(module, x, use_reentrant=False)
    y.square().sum().backward()
    torch.testing.assert_close([y.detach(), *(p.grad for p in module.parameters())], expected)
