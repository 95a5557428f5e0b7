# SPDX-License-Identifier: MIT
"""Activations in a product have their limits at infinities, and large values stay what they are."""

from __future__ import annotations

import pytest

import rocpy
from rocpy.blaslt.engine.program import available

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not available(), reason="elsewhere torch's function or the library's is applied"),
]
INF = float("inf")
FORMS = [("silu", "none", "silu"), ("gelu", "none", "gelu_erf"), ("gelu", "tanh", "gelu")]


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("activation", "approximate", "epilogue"), FORMS)
@pytest.mark.parametrize("columns", [1, 37])
def test_limits(activation, approximate, epilogue, dtype, records, columns):
    dtype = getattr(torch, dtype)
    large = 0.9 * torch.finfo(dtype).max
    x = torch.tensor([[INF], [large], [-large], [-INF]], dtype=dtype, requires_grad=records)
    weight = torch.ones(columns, 1, dtype=dtype)
    expected = torch.tensor([[INF], [large], [-0.0], [-0.0]], dtype=dtype).expand(4, columns)
    layer = rt.Linear(1, columns, activation=activation, approximate=approximate, dtype=dtype)
    torch.nn.init.ones_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    for result in (
        rt.linear(x, weight, activation=activation, approximate=approximate),
        rocpy.matmul(x, weight.mT, epilogue=epilogue),
        layer(x),
    ):
        assert torch.equal(result, expected)
        assert torch.equal(result.signbit(), expected.signbit())
