# SPDX-License-Identifier: MIT
"""Three kernels in Python that models need: row softmax, layer norm and the top-k of logits, each against torch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from rocpy import cooperative as coop

THREADS = 64
ITEMS = 16  # per thread; a row has at most THREADS * ITEMS
K = 8


@coop.jit(cache=True)
def softmax(x, out):
    """Softmax of each row: one block per row, whose items stay in registers."""
    block, row, n = coop.this_block(), coop.blockIdx.x, x.shape[1]
    items = coop.ThreadData(ITEMS, np.float32)
    coop.load(block, x[row], items, algorithm="striped", valid_items=n, oob_default=-np.inf)
    greatest = coop.max(block, items, all=True)
    for k in range(ITEMS):
        items[k] = np.exp(items[k] - greatest)
    total = coop.sum(block, items, all=True)
    for k in range(ITEMS):
        items[k] /= total
    coop.store(block, out[row], items, algorithm="striped", valid_items=n)


@coop.jit(cache=True)
def layer_norm(x, weight, bias, epsilon, out):
    """Layer norm of each row: the mean first, then the squares of the differences from it, without cancellation."""
    block, row, n = coop.this_block(), coop.blockIdx.x, x.shape[1]
    mean = np.float32(0)
    for j in range(coop.threadIdx.x, n, coop.blockDim.x):
        mean += x[row, j]
    mean = coop.sum(block, mean, all=True) / np.float32(n)
    squares = np.float32(0)
    for j in range(coop.threadIdx.x, n, coop.blockDim.x):
        squares += (x[row, j] - mean) ** 2
    scale = np.float32(1) / np.sqrt(coop.sum(block, squares, all=True) / np.float32(n) + np.float32(epsilon))
    for j in range(coop.threadIdx.x, n, coop.blockDim.x):
        out[row, j] = (x[row, j] - mean) * scale * weight[j] + bias[j]


@coop.jit(cache=True)
def top_logits(logits, best, places):
    """The K greatest of each row, tile by tile: the best so far are merged with each new tile."""
    block, row, n = coop.this_block(), coop.blockIdx.x, logits.shape[1]
    size, rank = coop.blockDim.x, coop.threadIdx.x
    held, where = coop.ThreadData(2, np.float32), coop.ThreadData(2, np.int32)
    kept, place = np.float32(-np.inf), np.int32(-1)
    for tile in range(0, n, size):
        i = tile + rank
        # The earlier ones first: of equal logits the one with the lower index wins.
        held[0], where[0] = kept, place
        held[1], where[1] = (logits[row, i], np.int32(i)) if i < n else (np.float32(-np.inf), np.int32(n))
        held = coop.exchange(block, held, "striped_to_blocked")
        where = coop.exchange(block, where, "striped_to_blocked")
        keys, values = coop.topk_max_pairs(block, held, where, K)
        keys = coop.exchange(block, keys, "blocked_to_striped")
        values = coop.exchange(block, values, "blocked_to_striped")
        if rank < K:
            kept, place = keys[0], values[0]
    if rank < K:
        best[row, rank], places[row, rank] = kept, place


def agreement(rows: int = 64, columns: int = 1000, vocabulary: int = 3000, seed: int = 0) -> dict[str, float]:
    """Return, for each kernel, its largest difference from torch relative to what float32 allows."""
    import torch

    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.standard_normal((rows, columns), dtype=np.float32) * 3)
    weight, bias = (torch.from_numpy(rng.standard_normal(columns, dtype=np.float32)) for _ in range(2))
    out = torch.empty_like(x)
    epsilon = float(np.finfo(np.float32).eps)

    def ratio(seen: Any, expected: Any, bound: Any) -> float:
        return float(((seen.double() - expected).abs() / bound).max())

    softmax[rows, THREADS](x, out)
    expected = torch.softmax(x.double(), -1)
    # The exponent is wrong by half a unit of x's span, exp by two of its own, the sum by one a level of the tree.
    span = (x.amax(-1, keepdim=True) - x).double()
    found = {"softmax": ratio(out, expected, expected * epsilon * (span + ITEMS + 10) + 1e-45)}

    layer_norm[rows, THREADS](x, weight, bias, 1e-5, out)
    expected = torch.nn.functional.layer_norm(x.double(), (columns,), weight.double(), bias.double(), 1e-5)
    steps = columns // THREADS + 16
    magnitude = (expected - bias).abs() + bias.abs() + weight.abs()
    found["layer_norm"] = ratio(out, expected, magnitude * epsilon * steps)

    logits = torch.from_numpy(rng.standard_normal((rows, vocabulary), dtype=np.float32))
    best, places = torch.empty((rows, K)), torch.empty((rows, K), dtype=torch.int32)
    top_logits[rows, THREADS](logits, best, places)
    wanted = torch.topk(logits, K)
    found["top_logits"] = 0.0 if torch.equal(best, wanted.values) and torch.equal(places, wanted.indices.int()) else 2.0
    return found


def main() -> int:
    """Print the difference of each kernel from torch, relative to its bound."""
    worst = 0.0
    for name, ratio in agreement().items():
        worst = max(worst, ratio)
        print(f"{name}: {ratio:.2f} of the bound")
    print("all within their bounds" if worst <= 1 else "a result is out of its bound")
    return 0 if worst <= 1 else 1


if __name__ == "__main__":
    sys.exit(main())
