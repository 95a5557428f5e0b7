# SPDX-License-Identifier: MIT
"""Bounds of a clamp are host numbers: a tensor through which a gradient would have to flow is refused."""

import pytest
import torch
from torch.autograd import forward_ad

import rocpy
import rocpy.torch

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch's own, in make_dual

A, B = torch.randn(4, 3), torch.randn(3, 2)
CALLS = {
    "matmul": lambda a, clamp: rocpy.matmul(a, B, epilogue="clamp", clamp=clamp),
    "Matmul": lambda a, clamp: rocpy.Matmul(a.detach(), B, epilogue="clamp", clamp=clamp).execute(),
    "grouped_matmul": lambda a, clamp: rocpy.grouped_matmul([a], [B], epilogue="clamp", clamp=clamp)[0],
    "grouped_matmul of one array": lambda a, clamp: rocpy.grouped_matmul(
        a, B[None], offsets=[0, 4], epilogue="clamp", clamp=clamp
    ),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("bound", [0, 1])
def test_a_bound_that_requires_a_gradient(call, recorded, bound):
    a = A.clone().requires_grad_(recorded)
    clamp = [-0.1, 0.2]
    clamp[bound] = torch.tensor(clamp[bound], requires_grad=True)
    with pytest.raises(rocpy.UnsupportedError, match="clamp: a bound is a tensor, and it requires grad"):
        call(a, clamp)
    expected = (A @ B).clamp(-0.1, 0.2)
    with torch.no_grad():
        torch.testing.assert_close(call(a, clamp), expected)
    torch.testing.assert_close(call(A, [torch.tensor(-0.1), torch.tensor(0.2)]), expected)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_bound_of_a_transform_or_with_a_tangent(call):
    with pytest.raises(
        rocpy.UnsupportedError, match="(clamp: a bound is a tensor, and|a: it is wrapped by) a torch.func"
    ):
        torch.func.grad(lambda high: call(A, (-0.1, high)).sum())(torch.tensor(0.2))
    with forward_ad.dual_level():
        high = forward_ad.make_dual(torch.tensor(0.2), torch.tensor(1.0))
        with pytest.raises(rocpy.UnsupportedError, match="clamp: a bound is a tensor"):
            call(A, (-0.1, high))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_numbers_compile(backend):
    a = A.clone().requires_grad_()
    compiled = torch.compile(CALLS["matmul"], backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(a, (-0.1, 0.2)), (A @ B).clamp(-0.1, 0.2))


def test_a_bound_in_a_compiled_function():
    def clamped(a, high):
        return rocpy.torch.matmul(a, B, epilogue="clamp", clamp=(0, high))

    message = r"UnsupportedError\(.clamp: a bound is a tensor, and torch\.compile is recording"
    with pytest.raises(torch._dynamo.exc.Unsupported, match=message):
        torch.compile(clamped, backend="eager", fullgraph=True)(A, torch.tensor(0.2))
    for high in (0.2, 0.5):  # outside of any graph
        torch.testing.assert_close(
            torch.compile(clamped, backend="eager")(A, torch.tensor(high)), (A @ B).clamp(0, high)
        )
