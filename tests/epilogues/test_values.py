# SPDX-License-Identifier: MIT
"""Values of an epilogue's functions: torch's and numpy's own, whichever way a product is computed."""

import math

import numpy as np
import pytest

import rocpy

pytestmark = pytest.mark.torch
INF = math.inf


def applied(epilogue, x, **inputs):
    """Return an epilogue's result for a product that is x."""
    one = x.new_ones(1, 1)
    return rocpy.matmul(x, one, epilogue=epilogue, epilogue_inputs=inputs)


WHERE = [
    lambda torch, x, y: x.where(x > 0, y),
    lambda torch, x, y: x.where(condition=x > 0, other=y),
    lambda torch, x, y: y.where(x > 0, x),
    lambda torch, x, y: x.where(x > 0, -1.0),
    lambda torch, x, y: torch.tensor(3.0).where(x > 0, x + 0 * y),
    lambda torch, x, y: torch.where(x > 0, x, y),
    lambda torch, x, y: torch.where(x > 0, input=x, other=y),
]


@pytest.mark.parametrize("index", range(len(WHERE)))
def test_where_is_a_method_and_a_function(torch, index):
    x, y = torch.tensor([[-3.0], [2.0]]), torch.tensor([[10.0], [20.0]])
    epilogue = rocpy.epilogue(lambda x, y: WHERE[index](torch, x, y))
    for d in (applied(epilogue, x, y=y), epilogue.evaluate(x, y=y)):
        torch.testing.assert_close(d, WHERE[index](torch, x, y))


FAR = [INF, -INF, 3e38, -3e38, 2000.0, -2000.0, math.nan]


def gates(torch):
    F = torch.nn.functional
    return [F.gelu, lambda x: F.gelu(x, approximate="tanh"), F.silu]


@pytest.mark.parametrize("index", range(3))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gates_have_their_limits_when_they_are_composed(torch, index, dtype):
    gate = gates(torch)[index]
    x = torch.tensor(FAR, dtype=getattr(torch, dtype))[:, None]
    limits = torch.where(x > 0, x, torch.where(x < 0, -0.0, x))
    i = torch.zeros(1, dtype=torch.int32)
    for function in (
        lambda x, i: gate(x).to(torch.bfloat16),
        lambda x, i: gate(x) + i,
        lambda x, i: (gate(x), x.to(torch.int32)),
        lambda x, i: gate(x).to(torch.float64),
    ):
        epilogue = rocpy.epilogue(function)
        for operand in (x, x.clone().requires_grad_()):
            d = applied(epilogue, operand, i=i)
            d = d[0] if isinstance(d, tuple) else d
            torch.testing.assert_close(d.detach().double(), limits.double(), rtol=1e-2, atol=0, equal_nan=True)


@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_a_formula_has_its_own_limits(torch, bias):
    """Of x * sigmoid(x) that is NaN at minus infinity, which is where silu is 0."""
    x, bias = torch.tensor([FAR]), torch.tensor([bias])
    for function in (
        lambda x, bias: (x + bias) * torch.sigmoid(x + bias),
        lambda x, bias: torch.sigmoid(x + bias) * (x + bias),
        lambda x, bias: x * torch.sigmoid(x) + 0 * bias,
    ):
        d = rocpy.matmul(torch.ones(1, 1), x, epilogue=rocpy.epilogue(function), epilogue_inputs={"bias": bias})
        torch.testing.assert_close(d, function(x, bias), equal_nan=True)


@pytest.mark.parametrize("exponent", [-1, -2, -3, -4, -8, -16, -2.0])
def test_negative_powers_neither_wrap_nor_overflow(torch, exponent):
    epilogue = rocpy.epilogue(lambda x: x**exponent)
    a, b = np.array([[127]], np.int8), np.array([[127, -128, 1]], np.int8)
    expected = (a.astype(np.float64) @ b.astype(np.float64)) ** exponent
    np.testing.assert_allclose(rocpy.matmul(a, b, epilogue=epilogue), expected, rtol=1e-5, atol=1e-44)
    small = rocpy.epilogue(lambda x: x.astype(np.int8) ** exponent)
    np.testing.assert_allclose(small.evaluate(np.array([16], np.int32)), 16.0**exponent, rtol=1e-5)
    large = torch.tensor([[256.0], [-256.0], [3.0], [0.0]], requires_grad=True)
    d, torchs = applied(epilogue, large), large**exponent
    torch.testing.assert_close(d, torchs, rtol=2e-6, atol=1e-44)
    mine, theirs = (torch.autograd.grad(one.sum(), large)[0] for one in (d, torchs))
    torch.testing.assert_close(mine, theirs, rtol=2e-6, atol=1e-44)


@pytest.mark.parametrize("exponent", [0, 1])
def test_powers_of_truth_values_are_whole_numbers(torch, exponent):
    epilogue = rocpy.epilogue(lambda x, p: (x + (p**exponent + p**exponent)).to(torch.int32))
    one, p = torch.ones(2, 2, dtype=torch.int8), torch.tensor([[True, False], [False, True]])
    d = rocpy.matmul(one, one, epilogue=epilogue, epilogue_inputs={"p": p})
    torch.testing.assert_close(d, epilogue(one.int() @ one.int(), p))


@pytest.mark.parametrize("exponent", [-1, -2, -3, -4, -7, -16])
def test_negative_powers_are_reciprocals_of_powers(torch, exponent):
    epilogue = rocpy.epilogue(lambda x: x**exponent)
    x = np.linspace(0.7, 19, 500, dtype=np.float32)
    power = rocpy.epilogue(lambda x: x**-exponent).evaluate(x)
    np.testing.assert_array_equal(epilogue.evaluate(x), 1 / power)
    # Where the power is no normal number, and the result may be one.
    x = np.array([0, -0.0, 1e-45, 7e-20, -1e-19, 1e-13, -3, 2e2, -1e20, 1e38, np.inf, -np.inf, np.nan], np.float32)
    with np.errstate(all="ignore"):
        exact = (x.astype(np.float64) ** exponent).astype(np.float32)
    np.testing.assert_allclose(epilogue.evaluate(x), exact, rtol=1e-6, atol=1e-44)
    tensor = torch.from_numpy(x).requires_grad_()
    (tensor**exponent).sum().backward()
    slope = epilogue.vjp()(x, {}, [np.ones_like(x)])["x"]
    np.testing.assert_allclose(slope, tensor.grad.numpy(), rtol=2e-6, atol=1e-37)


@pytest.mark.parametrize("exponent", [0, 2, -2, 0.5, -0.5])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_float_powers_are_float64(torch, exponent, dtype):
    x = torch.tensor([[100.0], [5.0]]).to(getattr(torch, dtype))
    x = x * 1e30 if x.is_floating_point() else x
    for epilogue in (
        rocpy.epilogue(lambda x: torch.float_power(x, exponent)),
        rocpy.epilogue(lambda x: np.float_power(x, exponent)),
    ):
        d = applied(epilogue, x)
        assert d.dtype == torch.float64
        torch.testing.assert_close(d, x.double() ** exponent)


@pytest.mark.parametrize("value", [2.5, 2, -1.0, True])
@pytest.mark.parametrize("dtype", ["int32", "int8", "bfloat16", "float32"])
def test_a_masked_fill_has_the_type_of_what_it_fills(torch, value, dtype):
    def filled(x):
        return x.to(getattr(torch, dtype)).masked_fill(x > 0, value)

    x = torch.tensor([[3.0], [-2.0]])
    d = applied(rocpy.epilogue(filled), x)
    assert d.dtype == getattr(torch, dtype)
    torch.testing.assert_close(d, filled(x))


@pytest.mark.parametrize("bounds", [(), (-2.0, 2.0), (-1, 3)])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_hardtanh_has_the_type_of_its_operand(torch, bounds, dtype):
    def clipped(x):
        return torch.nn.functional.hardtanh(x.to(getattr(torch, dtype)), *bounds)

    x = torch.tensor([[3.0], [-2.0], [0.0]])
    torch.testing.assert_close(applied(rocpy.epilogue(clipped), x), clipped(x))


@pytest.mark.parametrize("bounds", [(-0.0, 1.0), (0.0, 1e19), (-1e30, 1e30), (-(2.0**63), 2.0**63), (-1.0, -0.0)])
@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
def test_bounds_that_no_integer_is(torch, bounds, dtype):
    x = torch.tensor([[3.0], [-2.0], [0.5]])
    epilogue = rocpy.epilogue(lambda x: torch.nn.functional.hardtanh(x.to(getattr(torch, dtype)), *bounds))
    d = applied(epilogue, x)
    assert d.dtype == getattr(torch, dtype)
    expected = torch.nn.functional.hardtanh(x.to(d.dtype).double(), *bounds)
    assert (d == expected).all()
    if d.is_floating_point():
        assert (d.signbit() == expected.signbit()).all()


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, -2.0])
def test_lerp_reaches_both_ends(torch, weight):
    x, end = torch.tensor([[1e8], [3.0]]), torch.tensor([1.0])
    number = rocpy.epilogue(lambda x, end: torch.lerp(x, end, weight))
    array = rocpy.epilogue(lambda x, end, weight: x.lerp(end, weight))
    expected = torch.lerp(x, end, weight)
    w = torch.tensor([weight])
    for d in (
        applied(number, x, end=end),
        applied(array, x, end=end, weight=w),
        applied(array, x, end=end, weight=weight),
    ):
        torch.testing.assert_close(d, expected, rtol=0, atol=0)


@pytest.mark.parametrize("narrow", ["bfloat16", "float16"])
@pytest.mark.parametrize("other", ["float32", "float64"])
@pytest.mark.parametrize("grad", [False, True])
def test_the_product_is_not_rounded_before_the_function(torch, narrow, other, grad):
    dtype, one = getattr(torch, narrow), 1.0078125
    a = torch.tensor([[one, 1.0]], dtype=dtype, requires_grad=grad)
    b = torch.tensor([[one], [0.0]], dtype=dtype)
    y = torch.zeros(1, dtype=getattr(torch, other))
    plain = rocpy.epilogue(lambda x, y: x + y)
    pairs = rocpy.epilogue(lambda x, y: x[..., 0::2] + 0 * x[..., 1::2] + y)
    for left, right, epilogue in ((a, b, plain), (a[0], b, plain), (a, b[:, 0], plain), (a, b.expand(2, 2), pairs)):
        d = rocpy.matmul(left, right, epilogue=epilogue, epilogue_inputs={"y": y})
        assert (d.dtype, d.item()) == (y.dtype, one * one)
    rounded = rocpy.matmul(a[0], b, epilogue=rocpy.epilogue(lambda x: x * 3))
    assert (rounded.dtype, rounded.item()) == (dtype, torch.tensor(one * one * 3).to(dtype).item())
    if grad:
        (found,) = torch.autograd.grad(d.sum() + rounded.sum(), a)
        torch.testing.assert_close(found, 4 * b.mT)


# ---- numbers beside arrays ----


def functions_of_two(torch):
    return {
        "add": lambda x, s: x + s, "sub": lambda x, s: x - s, "mul": lambda x, s: x * s, "div": lambda x, s: x / s,
        "rsub": lambda x, s: s - x, "rdiv": lambda x, s: s / x, "minimum": lambda x, s: np.minimum(x, s),
        "maximum": lambda x, s: np.maximum(s, x), "equal": lambda x, s: np.where(x == s, x, 2),
        "less": lambda x, s: np.where(s < x, x, 2), "where": lambda x, s: np.where(x > 2, s, x),
        "clamp": lambda x, s: np.clip(x, s, 5), "clamped": lambda x, s: np.clip(s, x, 5),
        "bound": lambda x, s: np.clip(x, s, x), "both": lambda x, s: np.clip(s, x, s),
        "upper": lambda x, s: np.clip(s, s, x), "logical": lambda x, s: np.where(np.logical_and(x, s), x, 0),
        "power": lambda x, s: (x - s) ** 2, "alone": lambda x, s: x + s * s, "rounded": lambda x, s: np.floor(-s) + x,
    }  # fmt: skip


NAMES = (
    "add sub mul div rsub rdiv minimum maximum equal less where clamp clamped bound both upper logical power "
    "alone rounded"
)


@pytest.mark.parametrize("value", [True, 2, 1.0])
@pytest.mark.parametrize("name", NAMES.split())
def test_numbers_beside_tensors_are_computed_as_beside_arrays(torch, name, value):
    epilogue = rocpy.epilogue(functions_of_two(torch)[name])
    for x in (torch.tensor([[3, 1], [-2, 7]], dtype=torch.int8), torch.tensor([[3.5, 1.0], [-2.0, 7.0]])):
        identity = torch.eye(2).to(x.dtype)
        d = rocpy.matmul(x, identity, epilogue=epilogue, epilogue_inputs={"s": value})
        n = rocpy.matmul(x.numpy(), identity.numpy(), epilogue=epilogue, epilogue_inputs={"s": value})
        e = epilogue.evaluate(x if x.is_floating_point() else x.to(torch.int32), s=value)
        for one in (d, e):
            assert str(one.dtype).removeprefix("torch.") == str(n.dtype)
            np.testing.assert_allclose(one.numpy(), n, rtol=1e-6)
