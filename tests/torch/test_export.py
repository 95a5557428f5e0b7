# SPDX-License-Identifier: MIT
"""torch.export of each public function and layer: what is saved holds operators alone, and computes the same."""

from __future__ import annotations

import contextlib
import io

import pytest

import rocpy

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::FutureWarning")]
nn = torch.nn
scaled = rocpy.epilogue(lambda x, scale: torch.tanh(x) * scale)
squared = rocpy.epilogue(lambda x: torch.relu(x) ** 2)


class Function(nn.Module):
    """A function of an input and of parameters."""

    def __init__(self, function, *shapes):
        super().__init__()
        self.function = function
        self.parameters_ = nn.ParameterList([nn.Parameter(torch.randn(shape)) for shape in shapes])

    def forward(self, x):
        return self.function(x, *self.parameters_)


def replaced():
    model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6))
    rt.replace_linear(model)
    return model


def frozen():
    model = nn.Sequential(rt.Linear(6, 8, activation="relu"), rt.MLP(8, 6)).eval()
    rt.freeze(model)
    return model


MODELS = {
    "linear": lambda: Function(lambda x, w, b: rt.linear(x, w, b, nn.GELU("tanh")), (8, 6), (8,)),
    "linear of one output": lambda: Function(rt.linear, (6,)),
    "linear with an epilogue": lambda: Function(
        lambda x, w, b, s: rt.linear(x, w, b, scaled, epilogue_inputs={"scale": s}), (8, 6), (8,), (8,)
    ),
    "matmul": lambda: Function(lambda x, w: rt.matmul(x, w, epilogue="gelu_aux")[1]["gelu_aux"], (6, 8)),
    "matmul of rocpy": lambda: Function(lambda x, w, c: rocpy.matmul(x, w, c, alpha=2.0, beta=0.5), (6, 8), (8,)),
    "an epilogue": lambda: Function(
        lambda x, w, s: rocpy.matmul(x, w, epilogue=scaled, epilogue_inputs={"scale": s}), (6, 8), (8,)
    ),
    "an epilogue with a number": lambda: Function(
        lambda x, w: rocpy.matmul(x, w, epilogue=scaled, epilogue_inputs={"scale": 2.0}), (6, 8)
    ),
    "Linear": lambda: rt.Linear(6, 8, activation="silu"),
    "Linear with an epilogue": lambda: rt.Linear(6, 8, activation=squared),
    "MLP": lambda: rt.MLP(6, 8),
    "MLP with an epilogue": lambda: rt.MLP(6, 8, activation=squared),
    "GatedMLP": lambda: rt.GatedMLP(6, 8),
    "replaced": replaced,
    "frozen": frozen,
    "packed": lambda: rt.Linear(6, 8, pack=True).eval(),
}
AROUND = {
    "plain": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}
QUICK = {
    ("linear with an epilogue", "autocast", False),
    ("an epilogue with a number", "plain", False),
    ("MLP", "no_grad", False),
}
CASES = [(name, around, strict) for name in MODELS for around in AROUND for strict in (False, True)]


@pytest.mark.parametrize(
    ("name", "around", "strict"), [pytest.param(*x, marks=[] if x in QUICK else [pytest.mark.slow]) for x in CASES]
)
def test_saved_and_loaded(name, around, strict):
    model = MODELS[name]()
    rows = torch.export.Dim("rows", min=2, max=100)
    with AROUND[around]():
        program = torch.export.export(model, (torch.randn(3, 6),), dynamic_shapes=({0: rows},), strict=strict)
    names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert any(one.startswith("rocpy.") for one in names), names
    assert not [one for one in names if any(word in one for word in ("autocast", "grad", "inference", "wrap"))], names
    stored = io.BytesIO()
    torch.export.save(program, stored)
    stored.seek(0)
    loaded = torch.export.load(stored).module()
    x = torch.randn(5, 6)
    # As a program of torch's own layers, it is run outside of what it was exported in.
    torch.testing.assert_close(loaded(x), model(x), rtol=1e-4, atol=1e-5)
