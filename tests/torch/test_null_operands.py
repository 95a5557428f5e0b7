# SPDX-License-Identifier: MIT
"""Products of operands without memory: torch's empty tensors have a null address, which hipBLASLt refuses."""

from __future__ import annotations

import numpy as np
import pytest

import rocpy
from rocpy.testing import ORACLES, evaluate
from rocpy.testing.runner import check_outputs

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch


def by_matmul(a, b, **options):
    return rocpy.matmul(a, b, **options)


def by_plan(a, b, **options):
    with rocpy.Matmul(a, b, **options) as planned:
        return planned.execute()


def by_weight(a, b, **options):
    return rocpy.matmul(a, rocpy.Weight(b), **options)


@pytest.mark.parametrize("product", [by_matmul, by_plan, by_weight])
@pytest.mark.parametrize("epilogue", ORACLES)
def test_nothing_along_k(product, epilogue):
    oracle = ORACLES[epilogue]
    for batch in ((), (2,), (2, 1, 2)):
        a, b = np.empty((*batch, 3, 0), np.float32), np.empty((0, 4), np.float32)
        options = {}
        if oracle.bias:
            options["bias"] = np.arange(4, dtype=np.float32)
        if oracle.aux_in:
            options["aux"] = np.ones((*batch, 3, 4), np.float32)
        tensors = {name: torch.from_numpy(value) for name, value in options.items()}
        if oracle.takes_clamp:
            options["clamp"] = tensors["clamp"] = (0.5, 2.5)
        empty, nothing = torch.empty(a.shape), torch.empty(b.shape)
        assert empty.data_ptr() == nothing.data_ptr() == 0
        outputs = product(empty, nothing, epilogue=epilogue, **tensors)
        for name, found in check_outputs(evaluate(a, b, epilogue=epilogue, **options), outputs, np.float32).items():
            assert found.ok, f"{name}: {found.message}"


@pytest.mark.parametrize("product", [by_matmul, by_plan])
def test_no_blocks_along_k(product):
    a, scale_a = rocpy.quantize_mx(torch.empty(3, 0), "float8_e4m3fn")
    b, scale_b = rocpy.quantize_mx(torch.empty(0, 4), "float8_e4m3fn", axis=-2)
    assert scale_a.data_ptr() == scale_b.data_ptr() == 0
    bias = torch.arange(4, dtype=torch.float32)
    result = product(a, b, scale_a=scale_a, scale_b=scale_b, epilogue="bias", bias=bias, dtype="float32")
    assert torch.equal(result, bias.expand(3, 4))
