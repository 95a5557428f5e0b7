# SPDX-License-Identifier: MIT
"""``out=`` where torch's dispatcher sees the product: computed as torch's own functions do it, or refused by name."""

from __future__ import annotations

import pytest

import rocpy
from rocpy.errors import InvalidOperandError, UnsupportedError

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch
FUNCTIONS = {"rocpy": rocpy.matmul, "rocpy.torch": rt.matmul}
DOUBLED = rocpy.epilogue(lambda x: x * 2.0)
BOTH = rocpy.epilogue(lambda x: (x * 2.0, x + 1.0))


@pytest.fixture(params=FUNCTIONS)
def matmul(request):
    return FUNCTIONS[request.param]


def operands():
    return torch.full((3, 4), 1.001), torch.full((4, 5), 1.003)


def under_autocast(function):
    with torch.autocast("cpu"):
        return function()


def test_autocast_does_not_cast_what_torchs_out_does_not(matmul):
    a, b = operands()
    out, theirs = torch.zeros(3, 5), torch.zeros(3, 5)
    assert under_autocast(lambda: matmul(a, b, out=out)) is out
    under_autocast(lambda: torch.mm(a, b, out=theirs))
    torch.testing.assert_close(out, a @ b, rtol=1e-6, atol=0)
    torch.testing.assert_close(out, theirs, rtol=1e-6, atol=0)
    assert under_autocast(lambda: matmul(a, b)).dtype == torch.bfloat16


@pytest.mark.parametrize(
    "arguments",
    [
        {"epilogue": "relu_aux_bias", "bias": torch.ones(5)},
        {"epilogue": "gelu"},
        {"c": torch.ones(3, 5), "beta": 0.5},
        {"options": {"copies": "error"}},
        {"epilogue": DOUBLED},
        {"epilogue": BOTH},
    ],
    ids=" ".join,
)
def test_under_autocast_a_product_with_out_is_what_it_is_outside(matmul, arguments):
    a, b = operands()
    count = 2 if arguments.get("epilogue") is BOTH else 1
    outs = [tuple(torch.zeros(3, 5) for _ in range(count)) for _ in range(2)]
    expected, found = (out if count == 2 else out[0] for out in outs)
    outside = matmul(a, b, out=expected, **arguments)
    inside = under_autocast(lambda: matmul(a, b, out=found, **arguments))
    torch.testing.assert_close(inside, outside, rtol=0, atol=0)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_a_weight_under_autocast(matmul):
    a, b = operands()
    weight, out = rocpy.Weight(b), torch.zeros(3, 5)
    under_autocast(lambda: matmul(a, weight, out=out))
    torch.testing.assert_close(out, a @ b, rtol=1e-6, atol=0)


def test_checks_hold_under_autocast(matmul):
    x = torch.ones(3, 3)
    for out, message in [
        (x, "^out shares memory with a"),
        (x.mT, "^out shares memory with a"),
        (torch.zeros(1, 3).expand(3, 3), "^out: .*share memory"),
        (torch.zeros(3, 3, device="meta"), "^out is on meta"),
    ]:
        with pytest.raises(InvalidOperandError, match=message):
            under_autocast(lambda out=out: matmul(x, x, out=out))
    with pytest.raises(UnsupportedError, match="^out: .*records"):
        under_autocast(lambda: matmul(x.clone().requires_grad_(), x, out=torch.zeros(3, 3)))


@pytest.mark.parametrize("inside", [True, False])
def test_compiled(matmul, inside):
    a, b = operands()

    def run(a, b, out):
        if not inside:
            return matmul(a, b, out=out)
        with torch.autocast("cpu"):
            return matmul(a, b, out=out)

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    out = torch.zeros(3, 5)
    compiled(a, b, out)
    torch.testing.assert_close(out, a @ b, rtol=1e-6, atol=0)


def test_an_expanded_out_is_refused_where_torch_traces(matmul):
    from torch.fx.experimental.proxy_tensor import make_fx

    a, b = operands()
    for traced in (
        make_fx(matmul_into := lambda a, b, out: matmul(a, b, out=out)),
        torch.compile(matmul_into, backend="eager"),
    ):
        with pytest.raises(InvalidOperandError, match="^out.*share memory"):
            traced(a, b, torch.zeros(1, 5).expand(3, 5))


@pytest.mark.parametrize("epilogue", [None, "gelu", DOUBLED], ids=["none", "gelu", "custom"])
def test_transforms_refuse_it(matmul, epilogue):
    a, b = operands()

    def into(a, out):
        return matmul(a, b, epilogue=epilogue, out=out)

    transforms = [
        lambda: torch.vmap(lambda a: into(a, torch.zeros(3, 5)))(a.expand(2, 3, 4)),
        lambda: torch.vmap(into)(a.expand(2, 3, 4), torch.zeros(2, 3, 5)),
        lambda: torch.func.grad(lambda a: into(a, torch.zeros(3, 5)).sum())(a),
    ]
    for transform in transforms:
        with pytest.raises(UnsupportedError, match="^out: not available under a transform"):
            transform()


def test_symbolic_tracing_refuses_it(matmul):
    a, b = operands()
    for function in (
        lambda a: matmul(a, b, out=torch.zeros(3, 5)),
        lambda b: matmul(a, b, out=torch.zeros(3, 5)),
        lambda out: matmul(a, b, out=out),
    ):
        with pytest.raises(UnsupportedError, match="^out: not available where torch.fx"):
            torch.fx.symbolic_trace(function)
