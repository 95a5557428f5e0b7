# SPDX-License-Identifier: MIT
"""The first product of a process under each of torch's tracers: what rocpy learns of torch is no part of any graph."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

PROGRAM = """
    import warnings
    warnings.simplefilter("ignore")
    import io, torch, rocpy
    {imports}

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(4, 5))

        def forward(self, a):
            return rocpy.matmul(a, self.weight, epilogue="relu")

    model, a = Model(), torch.randn(3, 4)

    def names(graph):
        return [str(node.target) for node in graph.nodes if node.op not in ("placeholder", "output", "get_attr")]

    {body}
    torch.testing.assert_close(found(a), (a @ model.weight).relu())
    {after}
"""
EXPORT = """
    program = torch.export.export(model, (a,), strict={strict})
    assert names(program.graph) == ["rocpy.matmul.default"], names(program.graph)
    stored = io.BytesIO()
    torch.export.save(program, stored)
    stored.seek(0)
    found = torch.export.load(stored).module()
"""
BODIES = {
    "export": EXPORT.format(strict="False"),
    "export strictly": EXPORT.format(strict="True"),
    "export in inference": "model.requires_grad_(False)" + EXPORT.format(strict="False"),
    "export without gradients": "torch.set_grad_enabled(False)" + EXPORT.format(strict="False"),
    "compile": 'found = torch.compile(model, fullgraph=True, backend="aot_eager")',
    "make_fx": """
    from torch.fx.experimental.proxy_tensor import make_fx
    found = make_fx(model)(a)
    assert names(found.graph)[0] == "rocpy.matmul.default", names(found.graph)
    assert not any("grad" in name or "autocast" in name for name in names(found.graph))
    """,
    "make_fx before dispatch": """
    from torch.fx.experimental.proxy_tensor import make_fx
    found = make_fx(model, pre_dispatch=True)(a)
    assert names(found.graph) == ["rocpy.matmul.default"], names(found.graph)
    """,
    "symbolic trace": """
    found = torch.fx.symbolic_trace(model)
    assert names(found.graph) == ["rocpy.matmul.default"], names(found.graph)
    """,
    "jit trace": """
    found = torch.jit.trace(model, (a,))
    assert "rocpy::matmul" in str(found.inlined_graph)
    assert "autocast" not in str(found.inlined_graph)
    """,
}
# Afterwards the shortcuts are found as ever.
AFTER = """
    from rocpy._producers import torch_tensors
    with torch.no_grad():
        for _ in range(3):
            rocpy.matmul(a, torch.randn(4, 5))
    assert torch_tensors.shortcuts() == (True,) * 3, torch_tensors.shortcuts()
"""


@pytest.mark.parametrize(
    "imports", ["", pytest.param("import rocpy.torch", marks=pytest.mark.slow)], ids=["rocpy", "rocpy.torch"]
)
@pytest.mark.parametrize(
    "tracer",
    [pytest.param(name, marks=pytest.mark.slow if name != "make_fx" else []) for name in BODIES],
    ids=list(BODIES),
)
def test_the_graph_holds_the_product_alone(run_python, tracer, imports):
    program = PROGRAM.format(imports=imports, body=BODIES[tracer].strip(), after=AFTER.strip())
    run_python(program, timeout_s=240)
