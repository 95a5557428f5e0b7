# SPDX-License-Identifier: MIT
"""The aux of a gradient epilogue has the result's shape and type, whoever computes the product."""

from __future__ import annotations

import pytest

import rocpy
from rocpy.errors import InvalidProblemError, RocpyError

torch = pytest.importorskip("torch")
pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch
EPILOGUES = [row.name for row in rocpy.blaslt.EPILOGUES.values() if row.aux == "load"]
float32 = torch.float32
# Shapes of a and b, shape and type of an aux that does not fit, what is said of it.
CASES = [
    ((3, 4), (4, 5), (7, 3, 5), float32, r"aux: got shape \(7, 3, 5\), expected the result's shape \(3, 5\)"),
    ((3, 4), (4, 5), (5,), float32, r"aux: got shape \(5,\)"),
    ((3, 4), (4, 5), (), float32, r"aux: got shape \(\)"),
    ((4,), (4, 1), (2, 1), float32, r"aux: got shape \(2, 1\), expected the result's shape \(1,\)"),
    ((3, 4), (4, 5), (3, 5), torch.float64, "aux is float64 and the result is float32; they must be equal"),
    ((3, 4), (4, 5), (3, 5), torch.int32, "aux is int32 and the result is float32"),
    ((3, 4), (4, 5), (3, 5), torch.bool, "aux is bool and the result is float32"),
]


def call(a, b, aux, epilogue, **more):
    return rocpy.matmul(a, b, epilogue=epilogue, aux=aux, **more)


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize(("a", "b", "aux", "dtype", "message"), CASES)
def test_it_is_refused_where_autograd_records(a, b, aux, dtype, message, epilogue):
    left, right = torch.randn(a, requires_grad=True), torch.randn(b)
    values = torch.ones(aux, dtype=dtype)
    with pytest.raises(InvalidProblemError, match=f"^{message}"):
        call(left, right, values, epilogue)
    with pytest.raises(RocpyError, match="^aux"):  # bool is no type of products
        call(left.detach(), right, values, epilogue)
    with pytest.raises(InvalidProblemError, match=f"^{message}"):
        torch.func.grad(lambda x: call(x, right, values, epilogue)[0].sum())(left.detach())


@pytest.mark.parametrize("mapped", [(0, None, 0), (0, None, None), (None, 0, None)], ids=str)
@pytest.mark.parametrize("epilogue", ["drelu", "dgelu_erf_bgrad"])
@pytest.mark.parametrize(("a", "b", "aux", "dtype", "message"), CASES)
def test_it_is_refused_under_vmap(a, b, aux, dtype, message, epilogue, mapped):
    shapes = zip((a, b, aux), mapped, strict=True)
    left, right, values = (torch.ones(shape if axis is None else (2, *shape)) for shape, axis in shapes)
    with pytest.raises(InvalidProblemError, match=f"^{message}"):
        torch.vmap(lambda *x: call(*x, epilogue), in_dims=mapped)(left, right, values.to(dtype))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("a", "b", "aux", "dtype", "message"), CASES)
def test_it_is_refused_by_the_compiler(a, b, aux, dtype, message, dynamic):
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    left, right = torch.randn(a, requires_grad=True), torch.randn(b)
    with pytest.raises(RuntimeError, match=message.split("\\(")[0]):  # extents may be symbols
        compiled(left, right, torch.ones(aux, dtype=dtype), "drelu")


@pytest.mark.parametrize(
    ("epilogue", "more", "message"),
    [
        ("drelu", {"clamp": (0, 1)}, "clamp: epilogue 'drelu' takes no bounds"),
        ("bgrada", {"aux": torch.ones(3, 5)}, "aux: epilogue 'bgrada' takes no aux"),
        ("sigmoid", {"aux": torch.ones(3, 5)}, "aux: epilogue 'sigmoid' takes no aux"),
        ("clamp", {}, "epilogue 'clamp' needs clamp="),
        ("dgelu", {}, "epilogue 'dgelu' needs aux="),
        ("sigmoid", {"bias": torch.ones(5)}, "bias: epilogue 'sigmoid' takes no bias; use epilogue='sigmoid_bias'"),
    ],
)
def test_operands_of_other_epilogues_are_refused(epilogue, more, message):
    a, b = torch.randn(3, 4, requires_grad=True), torch.randn(4, 5)
    if epilogue == "drelu":
        more = more | {"aux": torch.ones(3, 5)}
    for operand in (a, a.detach()):
        with pytest.raises(InvalidProblemError, match=f"^{message}"):
            rocpy.matmul(operand, b, epilogue=epilogue, **more)
    with pytest.raises(InvalidProblemError, match=f"^{message}"):
        torch.vmap(lambda x: rocpy.matmul(x, b, epilogue=epilogue, **more))(a.detach().expand(2, 3, 4))
