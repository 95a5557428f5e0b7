# SPDX-License-Identifier: MIT
"""Gradients, twice, of every epilogue and layer: of complex numbers, and of products without terms or elements."""

from __future__ import annotations

import pytest

import rocpy
from rocpy.errors import UnsupportedError

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch
NAMES = ["none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid"]


def randn(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def operands(epilogue, a, b, dtype=torch.float64):
    row = rocpy.blaslt.EPILOGUES[epilogue]
    batch = torch.broadcast_shapes(a[:-2], b[:-2])
    bias = randn(b[-1], dtype=dtype) if row.bias else None
    aux = randn(*batch, a[-2], b[-1], dtype=dtype) if row.aux == "load" else None
    return randn(*a, dtype=dtype), randn(*b, dtype=dtype), bias, aux


def run(epilogue, **more):
    clamp = (-0.5, 0.5) if rocpy.blaslt.EPILOGUES[epilogue].clamp else None

    def call(a, b, bias, aux):
        result = rocpy.matmul(a, b, epilogue=epilogue, bias=bias, aux=aux, clamp=clamp, **more)
        return (result[0], *result[1].values()) if isinstance(result, tuple) else result

    return call


@pytest.mark.parametrize("epilogue", list(rocpy.blaslt.EPILOGUES))
@pytest.mark.parametrize(("a", "b"), [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5))])
def test_every_epilogue(epilogue, a, b):
    given = operands(epilogue, a, b)
    assert torch.autograd.gradcheck(run(epilogue, alpha=0.7), given, fast_mode=True)
    assert torch.autograd.gradgradcheck(run(epilogue, alpha=0.7), given, fast_mode=True)


# ---- without terms or elements ----

EMPTY = [
    ((3, 0), (0, 4)),
    ((0, 3), (3, 4)),
    ((3, 2), (2, 0)),
    ((0, 0), (0, 0)),
    ((2, 3, 0), (0, 4)),
    ((2, 3, 0), (2, 0, 4)),
    ((0, 3, 2), (2, 4)),
    ((0, 3, 2), (0, 2, 4)),
    ((2, 0, 2), (2, 4)),
    ((2, 0, 0), (0, 4)),
]


# One of each kind: of each further operand and of each further result.
QUICK = {
    "default",
    "bias",
    "clamp_bias",
    "silu",
    "gelu_aux_bias",
    "relu_aux",
    "dgelu_bgrad",
    "drelu",
    "bgrada",
    "bgradb",
}


@pytest.mark.parametrize(
    "epilogue",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in rocpy.blaslt.EPILOGUES],
)
def test_every_epilogue_of_empty_operands(epilogue):
    for a, b in EMPTY:
        given = operands(epilogue, a, b)
        results = run(epilogue)(*given)
        first = results[0] if isinstance(results, tuple) else results
        assert first.shape == torch.matmul(given[0], given[1]).shape
        tensors = [x for x in given if x is not None]
        grads = torch.autograd.grad(first.sum(), tensors, allow_unused=True)
        for x, grad in zip(tensors, grads, strict=True):
            if grad is not None:
                assert grad.shape == x.shape
        if first.numel() or epilogue == "default":
            assert torch.autograd.gradcheck(run(epilogue), given)
            assert torch.autograd.gradgradcheck(run(epilogue), given)


@pytest.mark.parametrize(
    ("a", "b"), [((0,), (0,)), ((0,), (0, 4)), ((3, 0), (0,)), ((2, 3, 0), (0,)), ((0,), (2, 0, 4))]
)
def test_empty_vectors(a, b):
    left, right = randn(*a), randn(*b)
    result = rocpy.matmul(left, right)
    close = torch.testing.assert_close
    close(result, torch.matmul(left, right))
    close(torch.autograd.grad(result.sum(), (left, right)), (torch.zeros_like(left), torch.zeros_like(right)))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("shape", [(0, 6), (2, 0, 6), (3, 0), (2, 3, 0), (0, 2, 0)])
@pytest.mark.parametrize("make", [rt.Linear, rt.MLP, rt.GatedMLP])
def test_layers_of_empty_inputs(make, shape):
    module = make(shape[-1], 5, dtype=torch.float64)
    x = randn(*shape)
    y = module(x)
    y.sum().backward()
    assert x.grad.shape == x.shape
    for p in module.parameters():
        assert p.grad.shape == p.shape
    found = torch.vmap(module)(x)
    torch.testing.assert_close(found, y)


@pytest.mark.parametrize("mapped", [(0, None, None), (0, 0, 0), (None, 0, None)])
def test_empty_layers_under_vmap(mapped):
    shapes = [(3, 0), (5, 0), (5,)]
    given = [torch.randn((2, *own) if axis == 0 else own) for own, axis in zip(shapes, mapped, strict=True)]
    found = torch.vmap(rt.linear, in_dims=mapped)(*given)
    torch.testing.assert_close(found, torch.vmap(torch.nn.functional.linear, in_dims=mapped)(*given))


def test_custom_epilogues_of_empty_products():
    epilogue = rocpy.epilogue(lambda x, scale: torch.tanh(x) * scale)
    for a, b in EMPTY:
        left, right, scale = randn(*a), randn(*b), randn(b[-1])
        y = rocpy.matmul(left, right, epilogue=epilogue, epilogue_inputs={"scale": scale})
        grads = torch.autograd.grad(y.sum(), (left, right, scale))
        assert [grad.shape for grad in grads] == [left.shape, right.shape, scale.shape]


# ---- complex numbers ----

needs_complex = pytest.mark.skipif(
    not rocpy.blaslt.supported("complex128"), reason="this release of hipBLASLt has no complex products"
)


@needs_complex
@pytest.mark.parametrize("epilogue", list(rocpy.blaslt.EPILOGUES))
@pytest.mark.parametrize(("a", "b"), [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((3, 0), (0, 5))])
def test_complex_products(epilogue, a, b):
    given = operands(epilogue, a, b, torch.complex128)
    try:
        run(epilogue)(*given)
    except UnsupportedError:
        assert epilogue not in ("default", "bias", "bgrada", "bgradb")
        return
    if a[-1] == 0:
        return
    assert torch.autograd.gradcheck(run(epilogue), given)
    assert torch.autograd.gradgradcheck(run(epilogue), given)


@needs_complex
def test_complex_factors():
    a, b, c = (randn(*shape, dtype=torch.complex128) for shape in ((3, 4), (4, 5), (3, 5)))

    def scaled(a, b, c):
        return rocpy.matmul(a, b, c, alpha=0.5 - 2j, beta=1j)

    assert torch.autograd.gradcheck(scaled, (a, b, c))
    assert torch.autograd.gradgradcheck(scaled, (a, b, c))
    with pytest.raises(rocpy.InvalidOperandError, match="alpha"):
        rocpy.matmul(a.real, b.real, alpha=1j)
    with pytest.raises(rocpy.InvalidOperandError, match="alpha"):
        rocpy.matmul(a.real.to("meta"), b.real.to("meta"), alpha=1j)


@needs_complex
@pytest.mark.parametrize("name", ["none", "silu", "sigmoid"])
@pytest.mark.parametrize("bias", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", ["function", "operator", "layer", "replaced"])
def test_complex_layers(name, bias, form):
    x, weight = randn(2, 3, 4, dtype=torch.complex128), randn(5, 4, dtype=torch.complex128)
    added = randn(5, dtype=torch.complex128) if bias else None
    activation = None if name == "none" else name
    if form == "function":

        def call(x, weight, added):
            return rt.linear(x, weight, added, activation)
    elif form == "operator":

        def call(x, weight, added):
            return torch.ops.rocpy.linear(x, weight, added, name)
    else:
        layer = rt.Linear(4, 5, bias, activation, dtype=torch.complex128)
        if form == "replaced":
            if activation == "silu":
                pytest.skip("torch has no gradient of silu of complex numbers")
            function = {"none": torch.nn.Identity(), "sigmoid": torch.nn.Sigmoid()}[name]
            layer = torch.nn.Sequential(torch.nn.Linear(4, 5, bias, dtype=torch.complex128), function)
            rt.replace_linear(layer)

        def call(x, weight, added):
            prefix = "0." if form == "replaced" else ""
            state = {f"{prefix}weight": weight} | ({} if added is None else {f"{prefix}bias": added})
            return torch.func.functional_call(layer, state, (x,))

    assert torch.autograd.gradcheck(call, (x, weight, added))
    assert torch.autograd.gradgradcheck(call, (x, weight, added))
    with torch.no_grad():
        torch.testing.assert_close(call(x, weight, added), call(x.detach(), weight, added))


@needs_complex
@pytest.mark.parametrize("activation", [None, "silu", "sigmoid"])
@pytest.mark.parametrize("make", [rt.MLP, rt.GatedMLP])
def test_complex_blocks(make, activation):
    module = make(4, 5, activation=activation, dtype=torch.complex128)
    x = randn(3, 4, dtype=torch.complex128)
    assert torch.autograd.gradcheck(module, (x,))
    assert torch.autograd.gradgradcheck(module, (x,))
    names, parameters = zip(*module.named_parameters(), strict=True)

    def call(*parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (x.detach(),))

    assert torch.autograd.gradcheck(call, tuple(p.detach().requires_grad_() for p in parameters))


@needs_complex
@pytest.mark.parametrize("name", ["none", "silu", "sigmoid"])
def test_opcheck_complex(name):
    x, weight, bias = (randn(*shape, dtype=torch.complex128) for shape in ((3, 4), (5, 4), (5,)))
    torch.library.opcheck(torch.ops.rocpy.linear.default, (x, weight, bias, name))
    torch.library.opcheck(
        torch.ops.rocpy.matmul.default,
        (x, weight.detach().mT.contiguous().requires_grad_(), None, bias, None, "bias", 1 - 2j, 0.0, None, None, None),
    )


IN_PLACE = [
    (epilogue, axes, dtype)
    for epilogue in ("default", "gelu", "silu", "silu_bias", "gelu_erf", "gelu_aux_bias", "bias of rows")
    for axes in (1, 2, 3)
    for dtype in ("float32", "float64")
    if axes > 1 or epilogue != "bias of rows"  # a vector has no rows
]


@pytest.mark.usefixtures("without_programs")  # so that gelu_erf is composed
@pytest.mark.parametrize(("epilogue", "axes", "dtype"), IN_PLACE)
def test_recorded_results_are_no_views_and_may_be_changed_in_place(epilogue, axes, dtype):
    kind = getattr(torch, dtype)
    rows = torch.randn((2, 3, 8)[-axes:], dtype=kind, requires_grad=True)
    right = torch.randn(8, 5, dtype=kind, requires_grad=True)
    by_rows = epilogue == "bias of rows"
    arguments = {"epilogue": "bias" if by_rows else epilogue}
    if "bias" in epilogue:
        arguments["bias"] = torch.randn((3, 1) if by_rows else 5, dtype=kind, requires_grad=True)
    result = rocpy.matmul(rows, right, **arguments)
    result = result[0] if isinstance(result, tuple) else result
    assert not result._is_view()
    before = result.detach().clone()
    result.mul_(2)
    torch.testing.assert_close(result.detach(), 2 * before)
    result.abs().sum().backward()
    assert rows.grad.shape == rows.shape
    assert right.grad.abs().max() > 0


@pytest.mark.parametrize(("dtype", "x"), [(torch.float32, -95.0), (torch.float64, -740.0)], ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_recorded_sigmoids_are_those_of_plain_products(dtype, x, biased):
    a, one, bias = torch.full((1, 1), x, dtype=dtype), torch.ones(1, 1, dtype=dtype), torch.zeros(1, dtype=dtype)
    more = {"bias": bias, "epilogue": "sigmoid_bias"} if biased else {"epilogue": "sigmoid"}
    expected = rocpy.matmul(a, one, **more)
    assert expected.item() > 0
    leaf = a.clone().requires_grad_()
    found = rocpy.matmul(leaf, one, **more)
    assert torch.equal(found.detach(), expected)
    found.sum().backward()
    assert torch.equal(leaf.grad, expected * (1 - expected))
    assert torch.equal(torch.vmap(lambda a: rocpy.matmul(a, one, **more))(leaf[None])[0], expected)


@rocpy.epilogue
def _doubled(x):
    return 2 * x


@pytest.mark.parametrize("form", ["product", "batch", "activation", "custom", "groups"])
@pytest.mark.parametrize("scale", [2.0**20, 2.0**-30], ids=["large", "small"])
def test_a_gradient_beyond_the_range_of_float16(form, scale):
    """The gradient of a float32 result may be; those of the float16 operands are not."""
    value = 2.0**-14 if scale > 1 else 2.0**13
    a, b = torch.ones(8, 4), torch.full((4, 8), value)
    if form in ("batch", "groups"):
        a, b = a.expand(1, 8, 4), b.expand(1, 4, 8)
    a, b = (x.to(torch.float16).requires_grad_() for x in (a, b))
    if form == "groups":
        y = rocpy.grouped_matmul(a[0], b, offsets=torch.tensor([8]), dtype="float32")
    else:
        epilogue = {"activation": "relu", "custom": _doubled}.get(form)
        y = rocpy.matmul(a, b, epilogue=epilogue, dtype="float32")
    of_a, of_b = torch.autograd.grad((y * scale).sum(), (a, b))
    factor = 2 if form == "custom" else 1
    assert of_a.dtype == of_b.dtype == torch.float16
    assert (of_a == 8 * value * scale * factor).all()
    assert (of_b == torch.tensor(8 * scale * factor).to(torch.float16)).all()
