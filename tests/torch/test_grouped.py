# SPDX-License-Identifier: MIT
"""Grouped products in torch: gradients, compiled, counted; and experts that compute by them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from presented import skip_without

import rocpy

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")
from rocpy.torch.replace.experts import compute_experts  # noqa: E402

pytestmark = pytest.mark.torch
nn = torch.nn

MARKS = [1, 3, 3, 6]  # the first and the last token are no group's, the second group is empty


def leaf(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype).requires_grad_()


# Form: shapes of a, b and every bias that it takes.
FORMS = {
    "rows": ((7, 3), (3, 3, 4), [None, (4,), (3, 4)]),
    "columns": ((3, 2, 3), (3, 7), [None, (7,)]),
    "sums": ((2, 7), (7, 4), [None, (4,), (3, 4)]),
}
CASES = [(form, bias) for form, (_, _, biases) in FORMS.items() for bias in biases]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(5)


def product(a, b, bias=None, **options):
    return rocpy.grouped_matmul(a, b, offsets=MARKS, bias=bias, epilogue=None if bias is None else "bias", **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize(("form", "bias"), CASES)
def test_gradients(form, bias, dtype):
    skip_without(dtype)
    a, b, _ = FORMS[form]
    operands = [leaf(*shape, dtype=dtype) for shape in (a, b, bias) if shape is not None]
    assert torch.autograd.gradcheck(product, operands, fast_mode=True)
    assert torch.autograd.gradgradcheck(product, operands, fast_mode=True)


@pytest.mark.parametrize("offsets", [[2, 2, 7], torch.tensor([0, 2, 2, 7]), np.array([2, 2, 7], np.int32)])
def test_every_form_of_offsets(offsets):
    x, weight = leaf(7, 3), leaf(3, 3, 4)
    y = rocpy.grouped_matmul(x, weight, offsets=offsets)
    expected = torch.cat((x[:2] @ weight[0], x[2:] @ weight[2]))
    seed = torch.randn_like(y)
    for ours, theirs in zip(
        torch.autograd.grad(y, (x, weight), seed), torch.autograd.grad(expected, (x, weight), seed), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("tokens", "k"), [(0, 3), (7, 0), (0, 0)])
def test_nothing_to_multiply(tokens, k):
    x, weight = leaf(tokens, k), leaf(2, k, 4)
    rocpy.grouped_matmul(x, weight, offsets=[tokens // 2, tokens]).sum().backward()
    assert x.grad.shape == x.shape
    assert torch.equal(weight.grad, torch.zeros_like(weight))


@pytest.mark.parametrize("epilogue", ["relu", "gelu_bias", "sigmoid_bias", "clamp"])
def test_epilogues_are_recorded(epilogue):
    a, b, bias = leaf(7, 3), leaf(3, 3, 4), leaf(3, 4) if "bias" in epilogue else None
    clamp = (0.25, 0.5) if epilogue == "clamp" else None
    options = {"offsets": MARKS, "epilogue": epilogue, "clamp": clamp}
    y = rocpy.grouped_matmul(a, b, bias=bias, **options)
    with torch.no_grad():
        expected = rocpy.grouped_matmul(a, b, bias=bias, **options)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    assert not y[0].any()  # no epilogue runs where no group is
    assert torch.autograd.gradcheck(
        lambda *operands: rocpy.grouped_matmul(*operands[:2], bias=(*operands, None)[2], **options),
        [x for x in (a, b, bias) if x is not None],
    )


def test_lists_are_recorded():
    a, b = [leaf(2, 3), leaf(4, 3)], leaf(3, 5)
    first, second = rocpy.grouped_matmul(a, b, epilogue="gelu")
    expected = [nn.functional.gelu(x @ b, approximate="tanh") for x in a]
    torch.testing.assert_close([first, second], expected)
    ours = torch.autograd.grad(first.sum() + second.sum(), b)
    torch.testing.assert_close(ours, torch.autograd.grad(expected[0].sum() + expected[1].sum(), b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_gradients_in_every_type(dtype):
    x, weight, bias = leaf(7, 12, dtype=dtype), leaf(3, 12, 9, dtype=dtype), leaf(3, 9, dtype=dtype)
    y = product(x, weight, bias)
    seed = torch.randn_like(y)
    found = [y, *torch.autograd.grad(y, (x, weight, bias), seed)]
    assert all(g.dtype == dtype for g in found)
    wide = [t.detach().double().numpy() for t in (x, weight, bias, seed)]
    expected = [np.zeros(g.shape) for g in found]
    for group, (low, high) in enumerate(itertools.pairwise(MARKS)):
        rows, d = wide[0][low:high], wide[3][low:high]
        expected[0][low:high] = rows @ wide[1][group] + wide[2][group]
        expected[1][low:high] = d @ wide[1][group].T
        expected[2][group] = rows.T @ d
        expected[3][group] = d.sum(0)
    eps = torch.finfo(dtype).eps
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.detach().double().numpy(), theirs, rtol=8 * eps, atol=24 * eps)


def test_what_cannot_be_recorded_is_refused():
    a, b = leaf(7, 3), leaf(3, 3, 4)
    with pytest.raises(rocpy.UnsupportedError, match="out: not available"):
        product(a, b, out=torch.empty(7, 4, dtype=torch.float64))
    with pytest.raises(rocpy.UnsupportedError, match="bgrada"):
        rocpy.grouped_matmul(a, b, offsets=MARKS, epilogue="bgrada")
    with pytest.raises(rocpy.InvalidProblemError, match="got 2 for 3 groups"):
        rocpy.grouped_matmul(a, b, offsets=[1, 2])
    with pytest.raises(rocpy.InvalidOperandError, match=r"offsets: torch\.float32"):
        rocpy.grouped_matmul(a, b, offsets=torch.ones(3))
    with pytest.raises(rocpy.InvalidProblemError, match="adds none"):
        rocpy.grouped_matmul(a, b, offsets=MARKS, bias=leaf(4))
    with pytest.raises(rocpy.InvalidProblemError, match="past the 7"):
        rocpy.grouped_matmul(a, b, offsets=[2, 5, 8])


def test_the_operator_is_a_citizen():
    operator = torch.ops.rocpy.grouped_matmul.default
    torch.library.opcheck(operator, (leaf(7, 3), leaf(3, 3, 4), torch.tensor(MARKS), leaf(3, 4), 1.0, None))
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        product(leaf(7, 3), leaf(3, 3, 4)).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 7 * 3 * 4


def test_compiled_in_one_graph():
    torch._dynamo.reset()
    function = torch.compile(
        lambda a, b, offsets: rocpy.grouped_matmul(a, b, offsets=offsets).sin(), fullgraph=True, backend="aot_eager"
    )
    for marks in ([2, 2, 7], [0, 7, 7]):
        a, b = leaf(7, 3), leaf(3, 3, 4)
        y = function(a, b, torch.tensor(marks))
        expected = rocpy.grouped_matmul(a, b, offsets=marks).sin()
        torch.testing.assert_close(y, expected)
        torch.testing.assert_close(torch.autograd.grad(y.sum(), (a, b)), torch.autograd.grad(expected.sum(), (a, b)))
    torch._dynamo.reset()


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_offsets_of_numpy_in_a_compiled_function(dtype):
    torch._dynamo.reset()
    a, b, marks = torch.randn(7, 3), torch.randn(3, 3, 4), np.array([2, 2, 7], dtype)
    function = torch.compile(lambda a, b: rocpy.grouped_matmul(a, b, offsets=marks), backend="eager")
    torch.testing.assert_close(function(a, b), rocpy.grouped_matmul(a, b, offsets=marks))
    torch._dynamo.reset()


# ---- experts ----


class Experts(nn.Module):
    """Experts as transformers describes them, computed token by token."""

    def __init__(self, gate=True, bias=False, transposed=False, norm=False):
        super().__init__()
        self.num_experts, self.has_gate, self.has_bias, self.is_transposed = 5, gate, bias, transposed
        self.has_post_expert_norm, self.act_fn = norm, nn.SiLU()
        hidden, inside = 6, 4
        name, wide = ("gate_up_proj", 2 * inside) if gate else ("up_proj", inside)
        shapes = {name: (wide, hidden), "down_proj": (hidden, inside)}
        for key, plain in shapes.items():
            shape = plain[::-1] if transposed else plain
            setattr(self, key, nn.Parameter(torch.randn(5, *shape, dtype=torch.float64)))
            if bias:
                out = shape[-1] if transposed else shape[0]
                setattr(self, f"{key}_bias", nn.Parameter(torch.randn(5, out, dtype=torch.float64)))
        if norm:
            # Its bias gives zeros a value.
            self.post_expert_norm = nn.LayerNorm(hidden, dtype=torch.float64)
            nn.init.ones_(self.post_expert_norm.bias)

    def _apply_gate(self, x):
        gate, up = x.chunk(2, -1)
        return self.act_fn(gate) * up

    def layer(self, x, name, expert):
        weight = getattr(self, name)[expert]
        y = x @ (weight if self.is_transposed else weight.T)
        return y + getattr(self, f"{name}_bias")[expert] if self.has_bias else y

    def forward(self, states, index, weights):
        rows = []
        for token in range(states.shape[0]):
            total = states[token] * 0
            for expert, factor in zip(index[token].tolist(), weights[token], strict=True):
                if expert >= self.num_experts:
                    continue
                first = self.layer(states[token], "gate_up_proj" if self.has_gate else "up_proj", expert)
                inside = self._apply_gate(first) if self.has_gate else self.act_fn(first)
                y = self.layer(inside, "down_proj", expert)
                total = total + factor * (self.post_expert_norm(y) if self.has_post_expert_norm else y)
            rows.append(total)
        return torch.stack(rows) if rows else states * 0


@pytest.mark.parametrize("tokens", [0, 1, 9])
@pytest.mark.parametrize(
    "options",
    [{}, {"gate": False}, {"bias": True, "transposed": True}, {"norm": True}, {"bias": True, "gate": False}],
    ids=str,
)
def test_experts(options, tokens):
    module = Experts(**options)
    states, weights = leaf(tokens, 6), leaf(tokens, 2)
    # Expert 2 has no token; 5 is no expert's index, as routers give it to tokens that stay out.
    index = torch.tensor([[0, 1], [3, 4], [5, 0], [1, 5], [4, 3], [3, 0], [5, 5], [0, 3], [1, 0]])[:tokens]
    leaves = [states, weights, *module.parameters()]

    def run(function):
        y = function(states, index, weights)
        return [y, *torch.autograd.grad(y.square().sum(), leaves, allow_unused=True, materialize_grads=True)]

    with rt.counters() as counts:
        found = run(lambda *args: compute_experts(module, *args))
    for ours, theirs in zip(found, run(module), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    assert counts.grouped >= 6


@pytest.mark.parametrize("form", FORMS)
def test_boundaries_are_checked_without_data(form):
    a, b = (torch.zeros(shape, device="meta") for shape in FORMS[form][:2])
    for wrong in ([0, 2, 1, 1], [-1, 0, 1, 1], [0, 0, 0, 99]):
        with pytest.raises(rocpy.InvalidProblemError, match="^offsets: boundary"):
            rocpy.grouped_matmul(a, b, offsets=wrong)
    assert rocpy.grouped_matmul(a, b, offsets=MARKS).is_meta


def test_boundaries_lie_where_they_can_be_read():
    a, b = torch.zeros(4, 8), torch.zeros(2, 8, 5)
    with pytest.raises(rocpy.InvalidOperandError, match="^offsets is on meta and a on cpu"):
        rocpy.grouped_matmul(a, b, offsets=torch.tensor([0, 1, 4], device="meta"))
    negated = torch.tensor([0, -1, -4])._neg_view()
    expected = rocpy.grouped_matmul(a + 1, b + 1, offsets=[0, 1, 4])
    torch.testing.assert_close(rocpy.grouped_matmul(a + 1, b + 1, offsets=negated), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_experts_in_every_type(dtype):
    module = Experts()
    states, weights = torch.randn(9, 6, dtype=torch.float64), torch.rand(9, 2, dtype=torch.float64)
    index = torch.stack([torch.randperm(5)[:2] for _ in range(9)])
    states, weights = (x.to(dtype).double() for x in (states, weights))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.to(dtype))
        expected = module(states, index, weights)
        y = compute_experts(module.to(dtype), states.to(dtype), index, weights.to(dtype))
    assert y.dtype == dtype
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(y.double(), expected, rtol=0, atol=10 * eps * float(expected.abs().max()))


def traced(function):
    from torch.fx.experimental.proxy_tensor import make_fx

    return lambda *operands: make_fx(function)(*operands)(*operands)


def test_integers_in_a_graph():
    a, b = torch.full((7, 1041), 127, dtype=torch.int8), torch.full((3, 1041, 4), 127, dtype=torch.int8)

    def run(**given):
        return lambda a, b: rocpy.grouped_matmul(a, b, offsets=MARKS, **given)

    clamped = run(epilogue="clamp", clamp=(0, 2**30))
    found = traced(clamped)(a, b)
    assert found.dtype == torch.int32
    assert torch.equal(found, clamped(a, b))
    for form in (run(epilogue="clamp", clamp=(0.5, 3.5)), traced(run(epilogue="clamp", clamp=(0.5, 3.5)))):
        with pytest.raises(rocpy.InvalidProblemError, match="a bound is not an integer"):
            form(a, b)
    for form in (run(epilogue="gelu"), traced(run(epilogue="gelu"))):
        with pytest.raises(rocpy.UnsupportedError, match="epilogue '?gelu"):
            form(a, b)
