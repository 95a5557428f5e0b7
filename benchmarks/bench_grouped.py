# SPDX-License-Identifier: MIT
"""Groups of rows, each with a weight of its own, in one call, against one product for each group."""

import sys
from functools import partial

import numpy as np
from harness import Entry, Groups, Session, main
from peers import normal, to_torch, torch_with

import rocpy

# Tokens, experts, K, N: a layer of a mixture of experts at prefill and at decode, and groups of almost nothing.
SHAPES = ((512, 8, 1024, 1024), (16, 64, 256, 256), (64, 64, 16, 16))


def groups(*, quick: bool) -> Groups:
    for shape in ((24, 6, 16, 16),) if quick else SHAPES:
        for spread in ("even", "uneven"):
            yield case_of(shape, spread), partial(one, shape=shape, spread=spread)


def case_of(shape: tuple[int, int, int, int], spread: str) -> str:
    """Return the name of a group."""
    tokens, experts, k, n = shape
    return f"{tokens} rows in {experts} {spread} groups, {k}x{n} float32"


def one(session: Session, shape: tuple[int, int, int, int], spread: str) -> None:
    tokens, experts, k, n = shape
    share = np.ones(experts) if spread == "even" else np.random.default_rng(0).exponential(size=experts)
    offsets = np.rint(np.cumsum(share) / share.sum() * tokens).astype(np.int32)
    a, b = normal("a", tokens, k), normal("b", experts, k, n, scale=k**-0.5)
    torch = torch_with(session)
    if torch is not None:
        a, b = to_torch(torch, a), to_torch(torch, b)
    names = {
        "rocpy": rocpy,
        "a": a,
        "b": b,
        "offsets": offsets,
        "groups": list(enumerate(zip([0, *offsets[:-1].tolist()], offsets.tolist(), strict=True))),
    }
    entries = [
        Entry("rocpy loop", "[rocpy.matmul(a[low:high], b[g]) for g, (low, high) in groups]", names),
        Entry("rocpy grouped_matmul", "rocpy.grouped_matmul(a, b, offsets=offsets)", names),
    ]
    if torch is not None:
        entries.append(Entry("torch loop", "[a[low:high] @ b[g] for g, (low, high) in groups]", names))
    session.compare(
        case_of(shape, spread),
        entries,
        against="rocpy loop",
        flops=2.0 * tokens * n * k,
        shape=shape,
        sizes=spread,
    )


if __name__ == "__main__":
    sys.exit(main("grouped", groups))
