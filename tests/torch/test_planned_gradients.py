# SPDX-License-Identifier: MIT
"""A planned product drops no gradient: its operands are asked at each execution, not only when they were passed."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

import rocpy
from rocpy.compat import nvmath

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch's own, in make_dual

A, B = torch.ones(4, 5), torch.full((5, 3), 2.0)


def _scaled(accumulator, factor):
    return accumulator * factor


def _a():
    a = A.clone()
    return rocpy.Matmul(a, B), a


def _b_of_a_batch():
    b = B.repeat(2, 1, 1)
    return rocpy.Matmul(A.repeat(2, 1, 1), b), b


def _c():
    c = torch.ones(4, 3)
    return rocpy.Matmul(A, B, c, beta=1.0), c


def _bias():
    bias = torch.zeros(3)
    return rocpy.Matmul(A, B, epilogue="relu_bias", bias=bias), bias


def _copied():
    a = torch.ones(4, 10)[:, ::2]
    return rocpy.Matmul(a, B), a


def _reset():
    a = A.clone()
    product = rocpy.Matmul(A, B)
    product.execute()
    product.reset_operands(a=a)
    return product, a


def _view():
    base = torch.ones(8, 5)
    return rocpy.Matmul(base[2:6], B), base


def _of_numpy_beside_it():
    b = B.clone()
    return rocpy.Matmul(A.numpy(), b), b


def _operand_of_a_function():
    a = A.clone()
    return rocpy.Matmul(a, B, epilogue=rocpy.epilogue(_scaled), epilogue_inputs={"factor": 2.0}), a


def _input_of_a_function():
    factor = torch.ones(3)
    return rocpy.Matmul(A, B, epilogue=rocpy.epilogue(_scaled), epilogue_inputs={"factor": factor}), factor


def _nvmath(a, b):
    product = nvmath.linalg.advanced.Matmul(a, b)
    product.plan()
    return product


def _of_nvmath():
    a = A.clone()
    return _nvmath(a, B), a


def _vector_of_nvmath():  # of which rocpy has a view
    b = torch.ones(5)
    return _nvmath(A, b), b


@pytest.mark.parametrize("executed", [False, True], ids=["not executed before", "executed before"])
@pytest.mark.parametrize(
    "made",
    [
        _a,
        _b_of_a_batch,
        _c,
        _bias,
        _copied,
        _reset,
        _view,
        _of_numpy_beside_it,
        _operand_of_a_function,
        _input_of_a_function,
        _of_nvmath,
        _vector_of_nvmath,
    ],
)
def test_a_gradient_is_refused_where_autograd_records(made, executed):
    product, recorded = made()
    expected = product.execute() if executed else None
    if not recorded.requires_grad and recorded.is_leaf:
        recorded.requires_grad_()
    for _ in range(2):
        with pytest.raises(rocpy.UnsupportedError, match="requires grad"):
            product.execute()
    with torch.no_grad():
        result = product.execute()
    assert expected is None or torch.equal(torch.as_tensor(result), torch.as_tensor(expected))
    with torch.inference_mode():
        product.execute()
    recorded.requires_grad_(False)
    if not recorded._is_view():
        product.execute()


def test_measuring_takes_part_in_no_gradient():
    weight = torch.nn.Parameter(B.clone())
    with torch.no_grad():
        product = rocpy.Matmul(A, weight)
    assert product.autotune(budget_ms=20).trials
    with pytest.raises(rocpy.UnsupportedError, match="b: it requires grad"):
        product.execute()
    with pytest.raises(rocpy.UnsupportedError, match="dispatch mode"):
        make_fx(lambda x: product.autotune(budget_ms=20) and x)(torch.ones(4, 3))


def test_what_required_a_gradient_when_it_was_planned_without_grad_mode():
    a = A.clone().requires_grad_()
    with torch.no_grad():
        product = rocpy.Matmul(a, B)
        product.plan()
        product.execute()
    with pytest.raises(rocpy.UnsupportedError, match="a: it requires grad"):
        product.execute()
    with torch.enable_grad(), torch.no_grad():
        torch.testing.assert_close(product.execute(), torch.full((4, 3), 10.0))


def test_scales_are_asked_too():
    a, b = A.to(torch.float8_e4m3fn), B.to(torch.float8_e4m3fn)
    scale = torch.ones(())
    product = rocpy.Matmul(a, b, scale_a=scale, scale_b=1.0)
    product.execute()
    scale.requires_grad_()
    with pytest.raises(rocpy.UnsupportedError, match="scale_a: it requires grad"):
        product.execute()


def test_a_tangent_is_refused():
    a = A.clone()
    product = rocpy.Matmul(a, B)
    product.execute()
    with forward_ad.dual_level():
        product.execute()
        a.mul_(forward_ad.make_dual(torch.ones(4, 5), torch.ones(4, 5)))
        with pytest.raises(rocpy.UnsupportedError, match="a: it carries a forward-mode tangent"):
            product.execute()
    torch.testing.assert_close(product.execute(), torch.full((4, 3), 10.0))


@pytest.mark.parametrize("how", [{}, {"pre_dispatch": True}, {"tracing_mode": "fake"}], ids=str)
def test_a_graph_would_keep_the_result_as_a_constant(how):
    product = rocpy.Matmul(A, B)
    product.execute()
    with pytest.raises(rocpy.UnsupportedError, match="dispatch mode"):
        make_fx(lambda x: x + product.execute(), **how)(torch.ones(4, 3))
    if not how.get("tracing_mode"):
        graph = make_fx(lambda x: rocpy.matmul(x, B), **how)(A).graph
        assert "rocpy.matmul.default" in [str(node.target) for node in graph.nodes]
    product.execute()


def test_transforms_and_autocast_take_it_as_it_was_planned():
    product = rocpy.Matmul(A, B)
    expected = product.execute()
    torch.testing.assert_close(
        torch.vmap(lambda x: x + product.execute())(torch.ones(2, 4, 3)), expected + torch.ones(2, 4, 3)
    )
    torch.testing.assert_close(torch.func.grad(lambda x: (x * product.execute()).sum())(torch.ones(4, 3)), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(product.execute(), expected)
