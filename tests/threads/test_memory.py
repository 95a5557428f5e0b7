# SPDX-License-Identifier: MIT
"""Flat memory and descriptors over many plans, weights, streams, errors and torch tensors."""

from __future__ import annotations

import os

import pytest

# The address sanitizer, where the tests run under it, keeps what was freed: a leak and its quarantine look the same.
WITHOUT_QUARANTINE = f"{os.environ.get('ASAN_OPTIONS', '')}:quarantine_size_mb=0:thread_local_quarantine_size_kb=0"

PROGRAM = """
    import gc, os, resource
    import numpy as np
    import rocpy

    def rss():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()

    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    a, b = np.ones((4, 5), np.float32), np.ones((5, 6), np.float32)
    bias, wide = np.ones(6, np.float32), np.ones((4, 10), np.float32)

    def plan():
        with rocpy.Matmul(a, b, epilogue="gelu_bias", bias=bias) as mm:
            mm.plan()
            mm.execute()

    def dropped_plan():
        mm = rocpy.Matmul(a, b)
        mm.plan()

    def replanned():
        with rocpy.Matmul(a, b) as mm:
            mm.plan()
            mm.plan(algorithms=[mm.pin(-1 + len(mm.algorithms)).to_dict()])
            mm.export()
            mm.execute(algorithm=0)

    moving = rocpy.Matmul(a, b, options={"dynamic": "m"})

    def another_m(count=[0]):
        count[0] += 1
        moving.reset_operands(a=np.ones((1 + count[0] % 50, 5), np.float32))
        moving.execute()

    def nvmath():
        from rocpy.compat.nvmath.linalg import advanced
        with advanced.Matmul(a, b) as mm:
            mm.plan(epilog=advanced.MatmulEpilog.RELU_AUX)
            mm.execute()

    def weight():
        rocpy.matmul(a, rocpy.Weight(b, bias=bias), epilogue="relu_bias")

    def function():
        rocpy.matmul(a, b, epilogue="gelu_aux")

    def new_shape(count=[0]):
        count[0] += 1
        # More shapes than the plan cache keeps, fewer than the rounds before the measurement: blocks of each size exist
        # by then.
        rocpy.matmul(np.ones((1 + count[0] % 1500, 3), np.float32), np.ones((3, 2), np.float32))

    def copied():
        rocpy.matmul(wide[:, ::2], b)

    def stream():
        with rocpy.Stream() as made:
            rocpy.matmul(a, b, stream=made)
            made.synchronize()

    def refused():
        for wrong in ((a, a), (a, b.astype(np.float64)), (a, "text")):
            try:
                rocpy.matmul(*wrong)
            except rocpy.RocpyError:
                pass
            else:
                raise SystemExit("accepted")

    def explained():
        str(rocpy.explain(a, b))

    def torch_product():
        rocpy.matmul(x, y, epilogue="relu_aux")

    work, count = NAME, COUNT
    if work is torch_product:
        import torch
        x, y = torch.ones(4, 5), torch.ones(5, 6)
    for _ in range(max(500, count // 3)):
        work()
    gc.collect()
    memory, opened = rss(), descriptors()
    for _ in range(count):
        work()
    gc.collect()
    grown = rss() - memory
    # An allocator's own reserve; a leak of 100 bytes a round is more at the quick counts.
    assert grown < max(400_000, count * 20), f"{grown} bytes over {count} rounds"
    assert descriptors() <= opened, (opened, descriptors())
"""
WORK = {
    "plan": 5_000,
    "dropped_plan": 5_000,
    "replanned": 3_000,
    "another_m": 5_000,
    "nvmath": 1_500,
    "weight": 10_000,
    "function": 10_000,
    "new_shape": 5_000,
    "copied": 10_000,
    "stream": 1_000,
    "refused": 5_000,
    "explained": 3_000,
}


# The others make the objects that these make.
QUICK = ("plan", "weight", "function", "new_shape", "copied", "stream", "refused")


def program(name, count):
    return PROGRAM.replace("NAME", name).replace("COUNT", str(count))


@pytest.mark.parametrize("name", QUICK)
def test_memory_stays_flat(run_python, name):
    run_python(program(name, WORK[name]), timeout_s=120, ASAN_OPTIONS=WITHOUT_QUARANTINE)


@pytest.mark.torch
def test_memory_stays_flat_with_torch(run_python):
    run_python(program("torch_product", 10_000), timeout_s=120, ASAN_OPTIONS=WITHOUT_QUARANTINE)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORK)
def test_memory_stays_flat_for_long(run_python, name):
    run_python(program(name, 10 * WORK[name]), timeout_s=280, ASAN_OPTIONS=WITHOUT_QUARANTINE)
