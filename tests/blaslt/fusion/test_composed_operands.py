# SPDX-License-Identifier: MIT
"""Operands of composed products: in the other byte order, and without axes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import rocpy

F8 = ml_dtypes.float8_e4m3fn
SCALES = {"scale_a": np.full((4, 2), 127, np.uint8), "scale_b": np.full((2, 5), 127, np.uint8)}


def ones(*shape, dtype="f8"):
    return np.ones(shape, dtype)


def planned(*operands, **keywords):
    """Return a product's outputs by a plan that is executed twice."""
    with rocpy.Matmul(*operands, **keywords) as mm:
        mm.plan()
        mm.execute()
        return mm.execute()


def swapped(operand):
    """Return an operand in the other byte order."""
    return operand.astype(operand.dtype.newbyteorder())


CASES = {
    "bias": ((ones(4, 3), ones(3, 5)), {"epilogue": "clamp_bias", "clamp": (-0.5, 0.7), "bias": ones(5)}),
    "c": ((ones(4, 3), ones(3, 5), ones(4, 5)), {"epilogue": "clamp", "clamp": (-0.5, 5.1), "beta": 2.0}),
    "c of few axes": ((ones(4, 3), ones(3, 5), ones(5)), {"epilogue": "clamp", "clamp": (-0.5, 5.1)}),
    "a, b and aux": ((ones(4, 3), ones(3, 5)), {"epilogue": "dgelu_erf", "aux": ones(4, 5)}),
    "int8": (
        (ones(4, 3, dtype="i1"), ones(3, 5, dtype="i1")),
        {"epilogue": "relu_aux_bias", "bias": ones(5, dtype="i4")},
    ),
    "int8 to float32": (
        (ones(4, 3, dtype="i1"), ones(3, 5, dtype="i1"), ones(4, 5, dtype="f4")),
        {"epilogue": "gelu_erf_bias", "bias": ones(5, dtype="f4"), "dtype": "float32",
         "scale_a": ones(4, 1, dtype="f4"), "scale_b": np.float32(2.0)},
    ),
    "MX, amax": (
        (ones(4, 64, dtype=F8), ones(64, 5, dtype=F8)),
        {"epilogue": "bias", "bias": ones(5, dtype="f4"), "amax": True, "dtype": "float32", **SCALES},
    ),
    "MX, sums": (
        (ones(4, 64, dtype=F8), ones(64, 5, dtype=F8), ones(4, 5, dtype="f4")),
        {"epilogue": "bgrada", "dtype": "float32", **SCALES},
    ),
    "float16 to float32": (
        (ones(4, 3, dtype="f2"), ones(3, 5, dtype="f2"), ones(4, 5, dtype="f4")),
        {"epilogue": "bgradb", "dtype": "float32"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("compute", [rocpy.matmul, planned], ids=["matmul", "Matmul"])
@pytest.mark.parametrize("name", CASES)
def test_operands_of_the_other_byte_order_have_the_values_of_those_in_native_order(name, compute):
    operands, keywords = CASES[name]
    expected = compute(*operands, **keywords)
    other = {key: swapped(value) if isinstance(value, np.ndarray) else value for key, value in keywords.items()}
    got = compute(*map(swapped, operands), **other)
    pairs = [(got, expected)]
    if isinstance(expected, tuple):
        pairs = [(got[0], expected[0]), *((got[1][key], value) for key, value in expected[1].items())]
    for result, native in pairs:
        assert result.dtype == native.dtype
        np.testing.assert_array_equal(result, native)


@pytest.mark.torch
def test_arrays_of_the_other_byte_order_are_read_beside_tensors():
    import torch

    a, b = (torch.ones(shape, dtype=torch.float64) for shape in ((4, 3), (3, 5)))
    d = rocpy.matmul(a, b, epilogue="clamp_bias", clamp=(-0.5, 4.1), bias=np.arange(5, dtype=">f8"))
    torch.testing.assert_close(d, torch.tensor([3.0, 4, 4.1, 4.1, 4.1], dtype=torch.float64).expand(4, 5))


def test_groups_take_a_bias_of_the_other_byte_order():
    bias = np.arange(10, dtype=">f8").reshape(2, 5)
    d = rocpy.grouped_matmul(
        ones(4, 3), ones(2, 3, 5), offsets=[0, 2, 4], epilogue="clamp_bias", clamp=(-0.5, 6.1), bias=bias
    )
    np.testing.assert_array_equal(d, np.repeat(np.clip(3.0 + bias, -0.5, 6.1), 2, 0))


@pytest.mark.parametrize("compute", [rocpy.matmul, planned], ids=["matmul", "Matmul"])
@pytest.mark.parametrize("beta", [None, 0, 2.0])
@pytest.mark.parametrize("epilogue", ["relu_aux", "clamp_aux", "clamp_aux_bias", "gelu_erf", "bgradb"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_an_addend_of_one_scaled_number_is_added_everywhere(shape, epilogue, beta, compute):
    more = {"clamp": (-10.0, 10.0)} if "clamp" in epilogue else {}
    more |= {"bias": np.zeros(5, np.float32)} if "bias" in epilogue else {}
    result = compute(
        ones(3, 4, dtype=F8),
        ones(4, 5, dtype=F8),
        ones(*shape, dtype=F8),
        scale_a=1.0,
        scale_b=1.0,
        scale_c=2.0,
        beta=beta,
        dtype="float8_e4m3fn",
        epilogue=epilogue,
        **more,
    )
    d = result[0] if isinstance(result, tuple) else result
    added = 4.0 + 2.0 * (1.0 if beta is None else beta)
    np.testing.assert_array_equal(d.astype(float), np.full((3, 5), added))
