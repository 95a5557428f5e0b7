# SPDX-License-Identifier: MIT
"""What every operator that rocpy registers must have: a sample that torch's own check passes, a count of operations."""

from __future__ import annotations

import pytest

import rocpy
from rocpy.blaslt import EPILOGUES

torch = pytest.importorskip("torch")
rt = pytest.importorskip("rocpy.torch")

pytestmark = pytest.mark.torch
OPERATORS = sorted(
    name.removeprefix("rocpy::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("rocpy::")
)
squared = rocpy.epilogue(lambda x: torch.relu(x) ** 2)
biased = rocpy.epilogue(lambda x, bias: torch.relu(x + bias) ** 2)
scaled = rocpy.epilogue(lambda x, scale: (torch.tanh(x) * scale, x + 1))
halved = rocpy.epilogues.swiglu


def randn(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def layer(rows, k, n, dtype=torch.float32):
    return randn(*rows, k, dtype=dtype), randn(n, k, dtype=dtype), randn(n, dtype=dtype)


def layers():
    for rows, k, n in (((3,), 4, 5), ((2, 3), 4, 5), ((), 4, 5), ((0,), 4, 5), ((3,), 0, 5)):
        x, weight, bias = layer(rows, k, n)
        yield x, weight, bias, "relu"
        yield x.detach(), weight, None, "none"
    if rocpy.blaslt.supported("complex128"):
        yield (*layer((3,), 4, 5, torch.complex128), "silu")


def layers_with_input():
    for rows, k, n in (((3,), 4, 5), ((2, 3), 4, 5), ((3,), 0, 5)):
        yield (*layer(rows, k, n), "gelu")


def two_layers():
    for rows, k, hidden in (((3,), 4, 5), ((2, 3), 4, 5), ((0,), 4, 5), ((3,), 0, 5)):
        x, w1, b1 = layer(rows, k, hidden)
        yield x, w1, b1, randn(2, hidden), randn(2), "gelu_tanh"
        yield x, w1, None, randn(2, hidden), None, "sigmoid"


def two_custom_layers():
    for *rest, _ in two_layers():
        yield (*rest, (squared if rest[2] is None else biased).text)


def product(epilogue, a, b, dtype=torch.float32, c=None, alpha=1.0, beta=0.0):
    row = EPILOGUES[epilogue]
    bias = randn(b[-1], dtype=dtype) if row.bias else None
    aux = randn(*torch.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1], dtype=dtype) if row.aux == "load" else None
    clamp = [-0.5, 0.5] if row.clamp else None
    added = None if c is None else randn(*c, dtype=dtype)
    return randn(*a, dtype=dtype), randn(*b, dtype=dtype), added, bias, aux, epilogue, alpha, beta, clamp, None, None


def products():
    for a, b in (((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((3, 0), (0, 5)), ((0, 4), (4, 5))):
        yield product("default", a, b)
    yield product("relu_bias", (3, 4), (4, 5), torch.float64, (3, 5), 0.5, 2.0)
    if rocpy.blaslt.supported("complex128"):
        yield product("bias", (3, 4), (4, 5), torch.complex128, (5,), 1 - 2j, 1j)
    yield product("clamp", (2, 3, 4), (2, 4, 5))


def products_with_two_results():
    for epilogue in ("gelu_aux_bias", "dgelu_bgrad", "bgrada"):
        yield product(epilogue, (3, 4), (4, 5))
    yield product("gelu_aux", (2, 3, 4), (4, 5))


def custom_products():
    for a, b in (((3, 4), (4, 6)), ((2, 3, 4), (4, 6)), ((3, 0), (0, 6))):
        yield randn(*a), randn(*b), None, [randn(6)], "scale", scaled.text, 1.0, 0.0, None, None
    yield randn(3, 4), randn(4, 6), randn(3, 6), [], "", squared.text, 0.5, 2.0, None, None
    yield randn(3, 4), randn(4, 6), None, [], "", halved.text, 1.0, 0.0, None, None


def groups():
    for marks, k in (((0, 2, 5, 7), 3), ((1, 1, 1, 6), 3), ((0, 2, 5, 7), 0)):
        yield randn(7, k), randn(3, k, 4), torch.tensor(marks), randn(3, 4), 1.0, None


SAMPLES = {
    "grouped_matmul": groups,
    "linear": layers,
    "linear_aux": layers_with_input,
    "mlp": two_layers,
    "mlp_aux": two_layers,
    "custom_mlp": two_custom_layers,
    "matmul": products,
    "matmul_extra": products_with_two_results,
    "epilogue": custom_products,
}


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["first", "every"])
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_passes_torchs_check(name, every):
    """Its first sample, or all; of linear, mlp and matmul other tests check every activation and epilogue."""
    assert name in SAMPLES, f"rocpy::{name} has no sample: add one to SAMPLES"
    samples = list(SAMPLES[name]())
    assert samples
    for sample in samples if every else samples[:1]:
        torch.library.opcheck(getattr(torch.ops.rocpy, name).default, sample)


def test_no_sample_is_of_an_operator_that_is_gone():
    assert sorted(SAMPLES) == OPERATORS


@pytest.mark.parametrize("name", OPERATORS)
def test_operations_are_counted(name):
    from torch.utils.flop_counter import FlopCounterMode

    for sample in SAMPLES[name]():
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            getattr(torch.ops.rocpy, name)(*sample)
        if sample[0].numel() and sample[1].numel():
            assert counter.get_total_flops() > 0, sample
