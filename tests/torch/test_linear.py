# SPDX-License-Identifier: MIT
"""rocpy.torch.linear: results against float64, gradients, second derivatives, what is saved."""

from __future__ import annotations

import numpy as np
import pytest

import rocpy
from rocpy.errors import InvalidProblemError, RocpyError, UnsupportedError
from rocpy.testing import bounds, compare, evaluate
from rocpy.testing.runner import dtype_of, to_numpy

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch

ACTIVATIONS = [
    (None, "none", "bias"),
    ("relu", "none", "relu_bias"),
    ("gelu", "none", "gelu_erf_bias"),
    ("gelu", "tanh", "gelu_bias"),
    ("silu", "none", "silu_bias"),
    ("sigmoid", "none", "sigmoid_bias"),
]
IDS = ["none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid"]
every_activation = pytest.mark.parametrize(("activation", "approximate", "epilogue"), ACTIVATIONS, ids=IDS)


def operands(*shape, n=5, dtype=torch.float64, bias=True):
    generator = torch.Generator().manual_seed(7)
    made = [
        torch.randn(*shape, generator=generator, dtype=torch.float64),
        torch.randn(n, shape[-1], generator=generator, dtype=torch.float64),
        torch.randn(n, generator=generator, dtype=torch.float64),
    ]
    made = [x.to(dtype).requires_grad_() for x in made]
    return made if bias else [*made[:2], None]


def theirs(x, weight, bias, activation, approximate):
    functional = torch.nn.functional
    y = functional.linear(x, weight, bias)
    if activation is None:
        return y
    if activation == "gelu":
        return functional.gelu(y, approximate=approximate)
    return getattr(torch if activation != "silu" else functional, activation)(y)


def by_operator(x, weight, bias, activation, approximate):
    name = "gelu_tanh" if approximate == "tanh" else activation or "none"
    return torch.ops.rocpy.linear(x, weight, bias, name)


@every_activation
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("grad", [False, True])
def test_result_is_within_bounds(activation, approximate, epilogue, dtype, grad):
    x, weight, bias = operands(3, 7, 40, n=33, dtype=getattr(torch, dtype))
    with torch.set_grad_enabled(grad):
        y = rt.linear(x, weight, bias, activation, approximate=approximate)
    assert y.requires_grad is grad
    x, weight, bias = (to_numpy(tensor.detach()) for tensor in (x, weight, bias))
    expected = evaluate(x, weight.T, epilogue=epilogue, bias=bias)
    limit = bounds(expected, dtype_of(dtype))["result"]
    if not (epilogue in ("bias", "relu_bias", "gelu_bias") or (epilogue == "silu_bias" and not grad)):
        # The product is rounded before torch's function, whose own error is of the order of its argument's rounding.
        eps = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
        limit = limit + 2 * eps * np.abs(expected.pre.reshape(expected.shape))
    found = compare(to_numpy(y.detach()), expected.result, limit)
    assert found.ok, found.message


@every_activation
@pytest.mark.parametrize("form", [rt.linear, by_operator], ids=["function", "operator"])
@pytest.mark.parametrize("shape", [(4, 6), (6,), (2, 3, 6)])
@pytest.mark.parametrize("bias", [True, False])
def test_gradients(activation, approximate, epilogue, form, shape, bias):
    x, weight, b = operands(*shape, bias=bias)

    def run(x, weight, b):
        if form is by_operator:
            return form(x, weight, b, activation, approximate)
        return form(x, weight, b, activation, approximate=approximate)

    assert torch.autograd.gradcheck(run, (x, weight, b))


@every_activation
@pytest.mark.parametrize("form", ["function", "operator"])
def test_second_derivatives(activation, approximate, epilogue, form):
    x, weight, bias = operands(3, 4)

    def run(x, weight, bias):
        if form == "operator":
            return by_operator(x, weight, bias, activation, approximate)
        return rt.linear(x, weight, bias, activation, approximate=approximate)

    assert torch.autograd.gradgradcheck(run, (x, weight, bias))


@every_activation
@pytest.mark.parametrize("needed", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_only_the_gradients_that_are_needed(activation, approximate, epilogue, needed):
    ours, reference = operands(4, 6), operands(4, 6)
    for i in range(3):
        for tensors in (ours, reference):
            tensors[i].requires_grad_(i in needed)
    rt.linear(*ours, activation, approximate=approximate).square().sum().backward()
    theirs(*reference, activation, approximate).square().sum().backward()
    for i in range(3):
        assert (ours[i].grad is not None) is (i in needed)
        if i in needed:
            torch.testing.assert_close(ours[i].grad, reference[i].grad, rtol=1e-12, atol=1e-12)


class Saved:
    """Counts what autograd keeps, each storage once, leaves left out."""

    def __init__(self):
        self.sizes = {}
        self.count = 0

    def __enter__(self):
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, lambda x: x)
        self.hooks.__enter__()
        return self

    def __exit__(self, *error):
        self.hooks.__exit__(*error)

    def pack(self, x):
        self.count += 1
        self.sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    @property
    def bytes(self):
        return sum(self.sizes.values())


@every_activation
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("needed", [(0, 1, 2), (0,), (1, 2), (2,)])
def test_saves_no_more_than_torch(activation, approximate, epilogue, dtype, needed):
    x, weight, bias = operands(16, 64, n=32, dtype=dtype)
    for i, tensor in enumerate((x, weight, bias)):
        tensor.requires_grad_(i in needed)
    with Saved() as ours:
        y = rt.linear(x, weight, bias, activation, approximate=approximate)
    with Saved() as reference:
        z = theirs(x, weight, bias, activation, approximate)
    assert ours.count > 0 or (activation is None and needed == (2,))
    assert ours.bytes <= reference.bytes
    assert ours.count <= reference.count
    del y, z


def test_autograd_sees_a_saved_tensor_that_was_written():
    x, weight, bias = operands(4, 6)
    y = rt.linear(x, weight, bias, "gelu")
    with torch.no_grad():
        weight.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("shape", [(0, 6), (3, 0, 6), (4, 0), (0, 0)])
@every_activation
def test_empty_extents(shape, activation, approximate, epilogue):
    ours, reference = operands(*shape), operands(*shape)
    y = rt.linear(*ours, activation, approximate=approximate)
    z = theirs(*reference, activation, approximate)
    torch.testing.assert_close(y, z)
    y.sum().backward()
    z.sum().backward()
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t().contiguous().t(),
        lambda x: x[::2, :],
        lambda x: x[:1].expand(5, -1),
        lambda x: x[:, :1].expand(-1, 6),
        lambda x: x.flip(0),
        lambda x: x.unsqueeze(1).expand(-1, 3, -1),
        lambda x: x.as_strided((3, 6), (2, 1)),
    ],
)
def test_views_go_in(view):
    x, weight, bias = operands(4, 6)
    other = x.detach().clone().requires_grad_()
    y, z = rt.linear(view(x), weight, bias, "relu"), theirs(view(other), weight, bias, "relu", "none")
    torch.testing.assert_close(y, z, rtol=1e-12, atol=1e-12)
    # The gradient of a sum is an expanded scalar, which no library takes as it lies.
    y.sum().backward()
    z.sum().backward()
    torch.testing.assert_close(x.grad, other.grad, rtol=1e-12, atol=1e-12)


def test_a_gradient_of_any_layout():
    for make in (lambda y: torch.ones(()).to(y).expand_as(y), lambda y: torch.randn(5, 4).to(y).t()):
        x, weight, bias = operands(4, 6)
        y = rt.linear(x, weight, bias, "gelu")
        grad = make(y)
        found = torch.autograd.grad(y, (x, weight, bias), grad)
        wanted = torch.autograd.grad(theirs(x, weight, bias, "gelu", "none"), (x, weight, bias), grad)
        for ours, reference in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, reference, rtol=1e-12, atol=1e-12)


def test_modes():
    x, weight, bias = operands(4, 6)
    with torch.no_grad():
        assert not rt.linear(x, weight, bias).requires_grad
    with torch.inference_mode():
        y = rt.linear(x, weight, bias, "gelu")
    torch.testing.assert_close(y.clone(), theirs(x, weight, bias, "gelu", "none").detach())
    assert not rt.linear(x.detach(), weight.detach(), bias.detach()).requires_grad


def test_mistakes_are_told():
    x, weight, bias = operands(4, 6)
    with pytest.raises(InvalidProblemError, match="activation: got 'gellu'.*relu"):
        rt.linear(x, weight, bias, "gellu")
    with pytest.raises(InvalidProblemError, match="approximate: got 'tanh'.*gelu"):
        rt.linear(x, weight, bias, "relu", approximate="tanh")
    with pytest.raises(InvalidProblemError, match="last axis has 6 elements"):
        rt.linear(x, weight.t(), None)
    with pytest.raises(InvalidProblemError, match="float32.*float64"):
        rt.linear(x.float(), weight)
    with pytest.raises(InvalidProblemError, match="6 elements.*the layer takes 5"):
        rt.linear(x, bias)
    with pytest.raises(InvalidProblemError, match="weight: got shape"):
        rt.linear(x, weight.unsqueeze(0))
    with pytest.raises(InvalidProblemError, match="bias: got shape .*length N = 5"):
        rt.linear(x, weight, x)
    with pytest.raises(InvalidProblemError, match="bias: got shape .*scalar"):
        rt.linear(x, weight[0], bias)
    with pytest.raises(RocpyError):
        rt.linear(x.to_sparse().detach(), weight.detach())


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_forward_mode_is_refused():
    x, weight, bias = (tensor.detach() for tensor in operands(4, 6))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises((NotImplementedError, RuntimeError)):
            rt.linear(dual, weight, bias)


# ---- operands of 8 bits, whose products need what layers do not take ----

EIGHT = {
    "linear": lambda x, activation: rt.linear(x, x, activation=activation),
    "layer": lambda x, activation: of_weight(rt.Linear(16, 16, False, activation=activation), x)(x),
    "packed": lambda x, activation: of_weight(rt.Linear(16, 16, False, activation, pack=True), x).eval()(x),
    "mlp": lambda x, activation: of_weight(rt.MLP(16, 16, activation=activation, bias=False), x)(x),
}


def of_weight(module, weight):
    """Return a layer, or a block of layers, with another weight."""
    for layer in module.modules():
        if isinstance(layer, rt.Linear):
            layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    return module


@pytest.mark.parametrize("activation", [None, "relu", "gelu", rocpy.epilogue(lambda x: 2 * x)], ids=str)
@pytest.mark.parametrize("call", EIGHT)
def test_a_layer_has_no_scales_for_eight_bit_floats(call, activation):
    x = torch.ones(16, 16).to(torch.float8_e4m3fn)
    with torch.no_grad(), pytest.raises(InvalidProblemError, match="float8_e4m3fn.*cast both to float16 or wider, or"):
        EIGHT[call](x, activation)


@pytest.mark.parametrize("activation", ["gelu", "silu", "sigmoid"])
@pytest.mark.parametrize("call", EIGHT)
def test_an_activation_of_int8_operands_is_refused_by_name(call, activation):
    x = torch.ones(16, 16, dtype=torch.int8)
    with torch.no_grad():
        with pytest.raises(UnsupportedError, match=f"^activation: {activation} of int8 .*cast input and weight"):
            EIGHT[call](x, activation)
        assert rt.linear(x, x, activation="relu").dtype == torch.int32
