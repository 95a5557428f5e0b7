# SPDX-License-Identifier: MIT
"""Kernels on fibers: a switch, block sums of many items, a tree over shared memory, against numpy on one core."""

import argparse
import importlib.util
import sys
import time
import types

import numpy as np
from harness import Entry, Session, main

from rocpy import cooperative as coop
from rocpy.cooperative import _simt

THREADS = 256
ITEMS = 16


@coop.jit(threads=1)
def empty(out):
    if coop.grid(1) < 0:
        out[0] = 1


@coop.jit(threads=1)
def sum_striped(x, out):
    block = coop.this_block()
    items = coop.ThreadData(16, np.float32)
    tile = coop.blockIdx.x * coop.blockDim.x * 16
    coop.load(block, x, items, algorithm="striped", valid_items=x.shape[0] - tile, oob_default=0, offset=tile)
    total = coop.sum(block, items)
    if coop.threadIdx.x == 0:
        out[coop.blockIdx.x] = total


@coop.jit(threads=1)
def sum_single(x, out):
    i = coop.grid(1)
    total = coop.sum(coop.this_block(), x[i] if i < x.shape[0] else np.float32(0))
    if coop.threadIdx.x == 0:
        out[coop.blockIdx.x] = total


@coop.jit(threads=1)
def sum_tree(x, out):
    held = coop.shared.array(256, np.float32)
    t, i = coop.threadIdx.x, coop.grid(1)
    held[t] = x[i] if i < x.shape[0] else np.float32(0)
    step = 128
    while step:
        coop.syncthreads()
        if t < step:
            held[t] += held[t + step]
        step //= 2
    if t == 0:
        out[coop.blockIdx.x] = held[0]


def compile_ms() -> float:
    """Return the time that a new kernel with one primitive takes, what the device library adds being on disk."""
    best = float("inf")
    for _ in range(6):
        function = sum_single.function  # a copy is a kernel that nothing is known of
        kernel = coop.jit(types.FunctionType(function.__code__, function.__globals__, function.__name__))
        begin = time.perf_counter()
        coop.compile(kernel, "void(float32[::1],float32[::1])", "gfx942", cache=False)
        best = min(best, time.perf_counter() - begin)
    return best * 1e3


def run(session: Session, _arguments: argparse.Namespace) -> None:
    for fibers in (2, 64, 256):
        best = min(_simt.measure_switch_ns(fibers, 20000) for _ in range(5))
        session.note(f"switch between two of {fibers} fibers: {best:.1f} ns (best of 5)")
    if importlib.util.find_spec("ziglang"):
        session.note(f"coop.compile of a block sum for gfx942: {compile_ms():.0f} ms (best of 6)")
    names = {"threads": THREADS, "empty": empty, "striped": sum_striped, "single": sum_single, "tree": sum_tree}
    size = 100_000 if session.quick else 10_000_000
    x = np.random.default_rng(0).standard_normal(size, dtype=np.float32)
    blocks = -(-size // (THREADS * ITEMS))
    many = names | {"x": x, "blocks": blocks, "out": np.zeros(blocks, np.float32)}
    session.compare(
        f"sum of {size} float32",
        [
            Entry("numpy", "x.sum()", many),
            Entry("16 striped items a thread", "striped[blocks, threads](x, out)", many),
        ],
        against="numpy",
        gpu_threads=blocks * THREADS,
    )
    x = x[: size // 50]
    blocks = -(-len(x) // THREADS)
    few = names | {"x": x, "blocks": blocks, "out": np.zeros(blocks, np.float32)}
    session.compare(
        f"sum of {len(x)} float32, one a thread",
        [
            Entry("numpy", "x.sum()", few),
            Entry("coop.sum", "single[blocks, threads](x, out)", few),
            Entry("tree in shared memory", "tree[blocks, threads](x, out)", few),
            Entry("nothing", "empty[blocks, threads](out)", few),
        ],
        against="numpy",
        gpu_threads=blocks * THREADS,
    )


if __name__ == "__main__":
    sys.exit(main("cooperative", run))
