# SPDX-License-Identifier: MIT
"""Products in graphs that torch captures on an AMD GPU, which no other machine can show."""

from __future__ import annotations

import gc

import pytest

import rocpy

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(
        not (torch.version.hip and torch.cuda.is_available()), reason="needs an AMD GPU and torch for it"
    ),
]


@pytest.fixture
def operands():
    a = torch.randn(8, 4096, device="cuda")
    return a, torch.randn(4096, 8, device="cuda")


def captured(a, b):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        d = rocpy.matmul(a, b, epilogue="relu")
    return graph, d


def test_replays_after_the_pools_were_cleared(operands):
    a, b = operands
    graph, d = captured(a, b)
    for scale in (1, -2, 3):
        a.mul_(scale)
        rocpy.plan_cache.clear()
        other = rocpy.matmul(a, b)
        graph.replay()
        torch.testing.assert_close(d, (a @ b).relu(), rtol=1e-3, atol=1e-2)
        torch.testing.assert_close(other, a @ b, rtol=1e-3, atol=1e-2)


def test_graphs_that_are_gone_give_back_what_they_were_lent(operands):
    a, b = operands

    def once():
        graph, d = captured(a, b)
        graph.replay()
        torch.testing.assert_close(d, (a @ b).relu(), rtol=1e-3, atol=1e-2)

    for _ in range(10):
        once()
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(100):
        once()
    gc.collect()
    torch.cuda.synchronize()
    assert before - torch.cuda.mem_get_info()[0] < 256 << 20
