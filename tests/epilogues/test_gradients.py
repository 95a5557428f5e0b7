# SPDX-License-Identifier: MIT
"""Gradients of custom epilogues: against torch's own, in training, compiled, under transforms."""

import fp_environment
import numpy as np
import pytest

import rocpy
from rocpy import epilogues

pytestmark = pytest.mark.torch


@pytest.fixture
def rt(torch):
    import rocpy.torch

    return rocpy.torch


def functions():
    import torch

    F = torch.nn.functional
    return [
        lambda x, b: F.silu(x + b) * 0.5 + b,
        lambda x, b: torch.where(x > b, x * b, torch.exp(-x * x)),
        lambda x, b: F.gelu(x) / (1 + b * b),
        lambda x, b: F.gelu(x * b, approximate="tanh"),
        lambda x, b: torch.clamp(x, -0.5, 0.5) * b,
        lambda x, b: torch.maximum(x, b) + torch.minimum(x, b * 2),
        lambda x, b: torch.maximum(x, x) * b,
        lambda x, b: torch.sqrt(torch.abs(x) + 1) * torch.rsqrt(b * b + 1),
        lambda x, b: torch.erf(x) * torch.tanh(b) + torch.log(1 + x * x) - torch.sigmoid(x),
        lambda x, b: torch.relu(x) * b - (x * b).floor(),
        lambda x, b: (x * b, x - b),
        lambda x, b: x**3 / b,
        lambda x, b: x.float().double() * b,
        lambda x, b: torch.clamp(x, b, b + 1),
    ]


@pytest.mark.parametrize("place", range(14))
@pytest.mark.parametrize("shape", [(6,), (4, 1), (4, 6), ()])
def test_against_autograd(torch, place, shape):
    function = functions()[place]
    gradient = rocpy.epilogue(function).vjp()
    torch.manual_seed(place)
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    b = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    results = function(x, b)
    results = results if isinstance(results, tuple) else (results,)
    given = [torch.randn_like(one) for one in results]
    expected = torch.autograd.grad(results, [x, b], given, allow_unused=True)
    found = gradient(x.detach(), {"b": b.detach()}, given)
    again = gradient(x.detach().numpy(), {"b": b.detach().numpy()}, [one.numpy() for one in given])
    for name, value in zip(("x", "b"), expected, strict=True):
        if name not in found:
            assert value is None or not value.any()
            continue
        torch.testing.assert_close(
            found[name], value, rtol=1e-6 if place == 12 else 1e-10, atol=1e-7 if place == 12 else 1e-12
        )
        np.testing.assert_allclose(again[name], found[name], rtol=1e-9, atol=1e-11)


BOUNDS = [
    (lambda x, low, high: torch_clamp(x, low, high), (0.5, -0.5)),
    (lambda x, low, high: torch_clamp(x, low, high), (-0.5, 0.5)),
    (lambda x, low, high: torch_clamp(x, low, high), (0.5, 0.5)),
    (lambda x, low, high: torch_clamp(x, low, high), (float("nan"), 0.5)),
    (lambda x, low, high: torch_clamp(x, low, high), (-0.5, float("nan"))),
    (lambda x, low, high: torch_clamp(x, low, high), (float("-inf"), float("inf"))),
    (lambda x, low, high: torch_clamp(x, min=low) + high, (0.0, 0.5)),
    (lambda x, low, high: torch_clamp(x, min=low) + high, (float("inf"), 0.5)),
    (lambda x, low, high: torch_clamp(x, max=high) + low, (0.0, float("-inf"))),
    (lambda x, low, high: torch_clamp(x, max=high) + low, (0.0, 0.5)),
    (lambda x, low, high: torch_clamp(x, min=-0.5) * torch_clamp(x, max=0.5) + low * high, (0.0, 0.5)),
    (lambda x, low, high: x.clamp_min(low) * x.clamp_max(high), (-0.5, 0.5)),
    (lambda x, low, high: x.clamp_min(low) * x.clamp_max(high), (float("nan"), 0.0)),
    (lambda x, low, high: x.minimum(low) * x.maximum(high), (0.5, 0.5)),
    (lambda x, low, high: x.minimum(low) * x.maximum(high), (float("inf"), float("-inf"))),
]


def torch_clamp(x, *bounds, **named):
    import torch

    return torch.clamp(x, *bounds, **named)


@pytest.mark.parametrize("place", range(len(BOUNDS)))
def test_bounds_against_autograd(torch, rt, place):
    """Bounds out of order, equal, infinite or NaN have torch's gradients."""
    function, values = BOUNDS[place]
    x = torch.tensor([[-1.0, -0.5, 0.0, 0.5, 1.0]], dtype=torch.float64, requires_grad=True)
    low, high = (torch.full((5,), value, dtype=torch.float64, requires_grad=True) for value in values)
    expected = torch.autograd.grad(function(x, low, high).sum(), [x, low, high], materialize_grads=True)
    product = rt.matmul(
        torch.ones(1, 1, dtype=torch.float64), x, epilogue=rocpy.epilogue(function),
        epilogue_inputs={"low": low, "high": high},
    )  # fmt: skip
    found = torch.autograd.grad(product.sum(), [x, low, high], materialize_grads=True)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True)


# Where the factors of a slope are infinite or 0, or the operand is where a part of the function has none.
FAR = [1e-11, 1e-3, 0.01, 0.05, 0.7, -1.5, 20.0, 1e3, 1e13, 3e13, -1e18, 1e38, -1e38, -7.0, -3.0, 3.0, 6.0]


def far_functions(torch):
    F = torch.nn.functional
    return {
        "x**-1": lambda x: x**-1,
        "x**-2": lambda x: x**-2,
        "x**-3": lambda x: x**-3,
        "x**-8": lambda x: x**-8,
        "x**-16": lambda x: x**-16,
        "hardswish": lambda x: F.hardswish(x),
        "of hardswish": lambda x: F.hardswish(x) ** -2,
        "gelu": lambda x: F.gelu(x),
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "silu": lambda x: F.silu(x),
    }


FAR_NAMES = ["x**-1", "x**-2", "x**-3", "x**-8", "x**-16", "hardswish", "of hardswish", "gelu", "gelu_tanh", "silu"]


@pytest.mark.parametrize("name", FAR_NAMES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_far_operands_against_autograd(torch, rt, name, dtype):
    """Of the gradient's own expression, of a product, and of torch's recorded operations."""
    function = far_functions(torch)[name]
    x = torch.tensor(FAR, dtype=getattr(torch, dtype))[:, None]
    epilogue = rocpy.epilogue(function)
    a = x.clone().requires_grad_()
    wide = x.detach().double().clone().requires_grad_()
    expected = torch.autograd.grad(function(wide).sum(), wide)[0].to(x.dtype)
    product = rt.matmul(a, x.new_ones(1, 1), epilogue=epilogue)
    for slope in (
        epilogue.vjp()(x, {}, [torch.ones_like(x)])["x"],
        torch.from_numpy(epilogue.vjp()(x.numpy(), {}, [np.ones_like(x.numpy())])["x"]),
        torch.autograd.grad(product.sum(), a)[0],
        torch.autograd.grad(epilogue.evaluate(a).sum(), a)[0],
    ):
        torch.testing.assert_close(slope, expected, rtol=2e-5, atol=1e-44 if "**" in name else 1e-7)


def later(torch, function, x):
    """Return gradients where torch is asked for them around, or after, a transformation or a tracer of the function."""
    vmap, grad, sets = torch.func.vmap, torch.func.grad, x[None]

    def of(called):
        leaf = sets.clone().requires_grad_()
        return torch.autograd.grad(called(leaf).sum(), leaf)[0][0]

    yield "around vmap", of(vmap(function))
    yield "grad of vmap", grad(lambda v: vmap(function)(v).sum())(sets)[0]
    yield "vmap of grad", vmap(grad(lambda v: function(v).sum()))(sets)[0]
    yield "of make_fx", of(torch.fx.experimental.proxy_tensor.make_fx(function)(sets))
    yield "of jit.trace", of(torch.jit.trace(function, (sets,), check_trace=False))


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
@pytest.mark.parametrize("exponent", [-1, -2, -3, -8, -16])
def test_powers_that_are_differentiated_later(torch, exponent):
    """Neither an entry of a batch nor an example of a graph requires a gradient, and there is one all the same."""
    x = torch.tensor(FAR)
    evaluate = rocpy.epilogue(lambda x: x**exponent).evaluate
    wide = exponent * x.double() ** (exponent - 1)
    for name, slope in later(torch, lambda v: evaluate(v), x):
        torch.testing.assert_close(slope, wide.float(), rtol=2e-5, atol=1e-44, msg=lambda text, name=name: name + text)
    rows = x[None].clone().requires_grad_()
    (slope,) = torch.autograd.grad(torch.func.vmap(evaluate)(rows).sum(), rows, create_graph=True)
    curve = (exponent * (exponent - 1) * x.double() ** (exponent - 2)).float()
    torch.testing.assert_close(torch.autograd.grad(slope.sum(), rows)[0][0], curve, rtol=2e-5, atol=1e-44)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu", "hardswish"])
def test_slopes_of_gates_have_their_limits(torch, name):
    x = torch.tensor([float("inf"), -float("inf"), float("nan")])
    slope = rocpy.epilogue(far_functions(torch)[name]).vjp()(x, {}, [torch.ones_like(x)])["x"]
    np.testing.assert_array_equal(slope, [1, 0, np.nan])


WIDTHS = [
    lambda x, s: (x * s)[..., 0::2] * s,
    lambda x, s: (x * s)[..., 0::2] + (x + s * s)[..., 1::2] * (s * s),
    lambda x, s: (x[..., 0::2] * s, (x * s)[..., 1::2]),
]


@pytest.mark.parametrize("place", range(len(WIDTHS)))
@pytest.mark.parametrize("shape", [(), (4, 1), (1,)])
def test_an_input_of_all_columns_and_of_half_of_them(torch, rt, place, shape):
    function = WIDTHS[place]
    a, b = (torch.randn(size, dtype=torch.float64, requires_grad=True) for size in ((4, 3), (3, 6)))
    s = torch.randn(shape, dtype=torch.float64, requires_grad=True)

    def total(results):
        return sum(one.sum() for one in results) if isinstance(results, tuple) else results.sum()

    expected = torch.autograd.grad(total(function(a @ b, s)), [a, b, s])
    product = rt.matmul(a, b, epilogue=rocpy.epilogue(function), epilogue_inputs={"s": s})
    for mine, theirs in zip(torch.autograd.grad(total(product), [a, b, s]), expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    x = rocpy.Buffer((4, 6), "float64")
    x.copy_from((a @ b).detach().numpy())
    slopes = rocpy.epilogue(function).vjp()(x, {"s": s.detach().numpy()}, [1.0] * (1 + (place == 2)), ["s"])
    np.testing.assert_allclose(slopes["s"].to_numpy(), expected[2].numpy())


def test_one_number_for_all_elements_of_half_the_columns(torch):
    x = np.arange(8.0).reshape(2, 4)
    for function in (lambda x: x[..., 0::2], lambda x: x[..., 1::2] * 3.0):
        slope = rocpy.epilogue(function).vjp()(x, {}, [2.0])["x"]
        again = rocpy.epilogue(function).vjp()(torch.from_numpy(x), {}, [np.full((2, 2), 2.0)])["x"]
        np.testing.assert_array_equal(slope, again)


@pytest.mark.parametrize("like", ["int32", "int8", "uint8", "bool", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(5,), ()])
def test_casts_to_whole_numbers_have_no_gradient(torch, rt, like, shape):
    functions = [
        lambda x, b, m: (x * b).type_as(m) * 0.5 + x + 0 * b,
        lambda x, b, m: (x * b).to(m.dtype) * 0.5 + x + 0 * b,
        lambda x, b, m: (x * b).to(getattr(torch, like)) * 0.5 + x + 0 * b + 0 * m,
    ]
    for function in functions:
        a, w = (torch.randn(size, requires_grad=True) for size in ((3, 4), (4, 5)))
        b, m = torch.randn(5, requires_grad=True), torch.ones(shape, dtype=getattr(torch, like))
        expected = torch.autograd.grad(function(a @ w, b, m).sum(), [a, w, b])
        product = rt.matmul(a, w, epilogue=rocpy.epilogue(function), epilogue_inputs={"b": b, "m": m})
        for mine, theirs in zip(torch.autograd.grad(product.sum(), [a, w, b]), expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-2 if like == "float16" else 1e-5, atol=1e-2)


@pytest.mark.parametrize("environment", ["up", "down", "zero", "ftz", "daz", "ftz+daz"])
@pytest.mark.parametrize("factor", [1.0, 1e-39])
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_sums_are_taken_in_the_default_environment(torch, environment, factor, framework):
    x, g = (np.random.default_rng(seed).standard_normal((64, 64)).astype("f4") for seed in (0, 1))
    g, s = (g * np.float32(factor)).astype("f4"), x[0].copy()
    if framework == "torch":
        x, g, s = (torch.from_numpy(one) for one in (x, g, s))
    gradient = rocpy.epilogue(lambda x, s: np.tanh(x) * s).vjp()
    expected = gradient(x, {"s": s}, [g])
    with fp_environment.environment(environment):
        found = gradient(x, {"s": s}, [g])
    for name, value in expected.items():
        np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(value))


def test_what_is_saved():
    assert epilogues.residual_add.vjp().saved == ()
    assert epilogues.softcap.vjp().saved == ("x", "cap")
    assert rocpy.epilogue(lambda x, s: x * s + 1).vjp().saved == ("x", "s")
    assert str(rocpy.epilogue(lambda x, grad: x * 2 + grad).vjp().expression).startswith("f_gradient(x, grad, grad_)")


def test_whole_numbers_have_no_gradient(torch):
    gradient = rocpy.epilogue(lambda x, mask: x * mask).vjp()
    found = gradient(torch.ones(2, 2), {"mask": torch.tensor([True, False])}, [torch.ones(2, 2)])
    assert set(found) == {"x"}
    with pytest.raises(rocpy.InvalidProblemError, match="got 0 gradients, expected 1"):
        gradient(torch.ones(2, 2), {"mask": torch.ones(2)}, [])


@pytest.fixture
def tensors(torch):
    torch.manual_seed(0)

    def made(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)

    return {"a": made(4, 5), "b": made(5, 6), "bias": made(6), "full": made(4, 6), "batch": made(3, 4, 5)}


def gated(torch):
    return rocpy.epilogue(lambda x, bias, full: torch.nn.functional.silu(x + bias) * 0.5 + full)


def test_gradcheck(torch, rt, tensors):
    epilogue = gated(torch)

    def f(a, b, bias, full):
        return rocpy.matmul(a, b, epilogue=epilogue, epilogue_inputs={"bias": bias, "full": full})

    operands = tuple(tensors[name] for name in ("a", "b", "bias", "full"))
    assert "EpilogueFunction" in str(f(*operands).grad_fn)
    assert torch.autograd.gradcheck(f, operands)
    assert torch.autograd.gradgradcheck(f, operands)
    assert torch.autograd.gradcheck(f, (tensors["batch"], *operands[1:]))
    weights = tensors["batch"].detach()[:, :1].expand(3, 6, 5).mT.contiguous().requires_grad_()
    assert torch.autograd.gradcheck(f, (tensors["batch"], weights, *operands[2:]))
    fixed = tuple(one.detach() for one in operands[:3])
    assert torch.autograd.gradcheck(lambda full: f(*fixed, full), (operands[3],))


def test_gradcheck_of_more(torch, rt, tensors):
    two = rocpy.epilogue(lambda x, bias: (torch.tanh(x * bias), x))
    a, b, bias, c = (tensors[name] for name in ("a", "b", "bias", "full"))

    def f(a, b, c, bias):
        return rocpy.matmul(a, b, c, alpha=2.0, beta=0.5, epilogue=two, epilogue_inputs={"bias": bias})

    assert torch.autograd.gradcheck(f, (a, b, c, bias))
    assert torch.autograd.gradcheck(lambda *x: f(*x)[1], (a, b, c, bias))
    vector = a[0].detach().clone().requires_grad_()
    for left, right in ((vector, b), (a, vector)):
        inputs = {"bias": 0.5}
        assert torch.autograd.gradcheck(
            lambda x, y, inputs=inputs: rocpy.matmul(x, y, epilogue=two, epilogue_inputs=inputs), (left, right)
        )
    assert torch.autograd.gradcheck(lambda a, b: rocpy.matmul(a, b, epilogue=epilogues.swiglu), (a, b))


def test_refusals(torch, rt, tensors):
    epilogue, a, b = gated(torch), tensors["a"], tensors["b"]
    with pytest.raises(rocpy.InvalidProblemError, match="needs 'bias', 'full'"):
        rocpy.matmul(a, b, epilogue=epilogue)
    with pytest.raises(rocpy.InvalidOperandError, match=r"epilogue_inputs\['bias'\]"):
        rocpy.matmul(a, b, epilogue=epilogue, epilogue_inputs={"bias": np.ones(6), "full": 1.0})
    with pytest.raises(rocpy.UnsupportedError, match="out"):
        rocpy.matmul(a, b, epilogue=epilogue, epilogue_inputs={"bias": 1.0, "full": 1.0}, out=torch.empty(4, 6))
    with pytest.raises(rocpy.InvalidProblemError, match="does not broadcast"):
        rocpy.matmul(a, b, epilogue=epilogue, epilogue_inputs={"bias": tensors["a"], "full": 1.0})


def test_autocast_and_vmap(torch, rt, tensors):
    epilogue = gated(torch)
    a, b, bias, full = (tensors[name].detach().float() for name in ("a", "b", "bias", "full"))
    inputs = {"bias": bias.requires_grad_(), "full": full}
    with torch.autocast("cpu"):
        y = rocpy.matmul(a, b, epilogue=epilogue, epilogue_inputs=inputs)
    assert y.dtype == torch.float32  # the product is bfloat16, the bias is not
    torch.testing.assert_close(y, epilogue((a.bfloat16() @ b.bfloat16()).float(), bias, full), rtol=2e-2, atol=2e-2)
    batch = tensors["batch"].detach().float()
    mapped = torch.vmap(lambda one: rocpy.matmul(one, b, epilogue=epilogue, epilogue_inputs=inputs))(batch)
    torch.testing.assert_close(mapped, epilogue(batch @ b, bias, full))


def test_opcheck_and_meta(torch, rt, tensors):
    epilogue = gated(torch)
    arguments = (tensors["a"], tensors["b"], None, [tensors["bias"], tensors["full"]], "bias,full", epilogue.text)
    torch.library.opcheck(torch.ops.rocpy.epilogue.default, (*arguments, 1.0, 0.0, None, None))
    meta = rocpy.matmul(torch.empty(4, 5, device="meta"), torch.empty(5, 6, device="meta"), epilogue=epilogues.swiglu)
    assert (meta.shape, meta.device.type) == ((4, 3), "meta")


def test_compiled(torch, rt, tensors):
    epilogue = gated(torch)

    def f(a, b, bias, full):
        return rt.matmul(a, b, epilogue=epilogue, epilogue_inputs={"bias": bias, "full": full})

    operands = tuple(tensors[name] for name in ("a", "b", "bias", "full"))
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    expected, found = f(*operands), compiled(*operands)
    torch.testing.assert_close(found, expected)
    for mine, theirs in zip(
        torch.autograd.grad(found.sum(), operands), torch.autograd.grad(expected.sum(), operands), strict=True
    ):
        torch.testing.assert_close(mine, theirs)
