# SPDX-License-Identifier: MIT
"""Reductions of two ranks: which are bitwise identical to gloo's, and which are RCCL's."""

import datetime as dt
import threading

import pytest
from rccl_ranks import good
from torch_ranks import on_groups

pytestmark = pytest.mark.torch

FLOATS = ["float32", "float64", "float16", "bfloat16"]
INTEGERS = ["int8", "uint8", "int32", "int64"]


def inputs(torch, dtype):
    """Two ranks' elements: all kinds of values of the type, among them NaN, infinities, zeros and subnormal numbers."""
    seeded = torch.Generator().manual_seed(7)
    kind = getattr(torch, dtype)
    if not kind.is_floating_point:
        limits = torch.iinfo(kind)
        return [torch.randint(limits.min, limits.max, (5000,), dtype=kind, generator=seeded) for _ in range(2)]
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[kind.itemsize]
    limits = torch.iinfo(bits)
    every = [torch.randint(limits.min, limits.max, (5000,), dtype=bits, generator=seeded).view(kind) for _ in range(2)]
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0, -1.0], dtype=kind)
    pairs = torch.cartesian_prod(special, special)
    near = [torch.randn(5000, generator=seeded).to(kind) for _ in range(2)]
    return [torch.cat([every[rank], near[rank], pairs[:, rank]]) for rank in range(2)]


def gloo(torch, tensors, operator):
    """What gloo makes of them, on threads."""
    import torch.distributed as dist

    store, results = dist.HashStore(), [tensor.clone() for tensor in tensors]

    def run(rank):
        group = dist.ProcessGroupGloo(store, rank, 2, dt.timedelta(seconds=20))
        opts = dist.AllreduceOptions()
        opts.reduceOp = operator
        group.allreduce([results[rank]], opts).wait()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def reduced(torch, tensors, operator):
    """What this backend makes of them."""
    import torch.distributed as dist

    def body(group, rank):
        opts, x = dist.AllreduceOptions(), tensors[rank].clone()
        opts.reduceOp = operator
        group.allreduce([x], opts).wait()
        return x

    return good(on_groups(2, body))


def same_bits(torch, a, b):
    """Whether all elements are the same; NaN has many encodings."""
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    is_nan = a.isnan() & b.isnan()
    return bool((is_nan | (a.view(torch.uint8).view(len(a), -1) == b.view(torch.uint8).view(len(b), -1)).all(1)).all())


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("operator", ["SUM", "PRODUCT"])
def test_sums_and_products_are_those_of_gloo(torch, dtype, operator):
    import torch.distributed as dist

    if not dist.is_gloo_available():
        pytest.skip("torch was built without gloo")
    op = getattr(dist.ReduceOp, operator)
    tensors = inputs(torch, dtype)
    expected = gloo(torch, tensors, op)[0]
    for result in reduced(torch, tensors, op):
        assert same_bits(torch, result, expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_max_and_min_ignore_nan(torch, dtype):
    import torch.distributed as dist

    nan, kind = float("nan"), getattr(torch, dtype)
    tensors = [torch.tensor(values, dtype=kind) for values in ([nan, 1.0, 2.0, nan], [3.0, nan, 1.0, nan])]
    for op, expected in ((dist.ReduceOp.MAX, [3.0, 1.0, 2.0]), (dist.ReduceOp.MIN, [3.0, 1.0, 1.0])):
        for result in reduced(torch, tensors, op):
            assert result[:3].tolist() == expected
            assert bool(result[3].isnan())


def test_averages_round_each_product(torch):
    import torch.distributed as dist

    for dtype, value, expected in ((torch.float16, 2.0**-24, 0.0), (torch.float32, 3e38, 3e38)):
        x = torch.tensor([value], dtype=dtype)
        for result in reduced(torch, [x, x], dist.ReduceOp.AVG):
            assert torch.equal(result, torch.tensor([expected], dtype=dtype))
