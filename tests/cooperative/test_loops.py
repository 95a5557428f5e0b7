# SPDX-License-Identifier: MIT
"""Kernels as loops over the threads of a block give the same bits as threads that take turns and as fibers."""

import types

import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.cooperative.cpu import entry
from rocpy.cooperative.cpu.machine_code import Form

BLOCKS = [1, 2, 63, 64, 200, (3, 5), (1, 7, 3), (32, 2, 2)]
PAIR = np.dtype([("key", np.int32), ("value", np.float64)])


def ranks_and_extents(x, out):
    t, b = coop.threadIdx, coop.blockIdx
    at = b.x * out.shape[1] + (t.z * coop.blockDim.y + t.y) * coop.blockDim.x + t.x
    out[b.x, at % out.shape[1]] = x[at] + 1000 * t.y + 100000 * t.z + coop.blockDim.y + coop.gridDim.x


def sums_of_items(x, out):
    block, rank = coop.this_block(), coop.this_block().rank()
    items = coop.ThreadData(4, np.float32)
    tile = coop.blockIdx.x * block.size() * 4
    coop.load(block, x, items, algorithm="striped", valid_items=x.shape[0] - tile, oob_default=0, offset=tile)
    out[coop.blockIdx.x, rank] = coop.sum(block, items, all=True) + items[rank % 4]


def collectives_of_growing_elements(x, out):
    block = coop.this_block()
    rank = block.rank()
    value = x[coop.blockIdx.x * block.size() + rank]
    narrow = coop.shuffle(block, np.int8(rank % 100), "rotate", 1)
    wide = coop.inclusive_sum(block, np.float64(value))
    complex_one = coop.broadcast(block, np.complex128(value + 1j * rank), 0)
    again = coop.max(block, np.int16(rank), all=True)
    out[coop.blockIdx.x, rank] = narrow + wide + complex_one.imag + complex_one.real + again


def values_over_many_waits(x, out):
    block = coop.this_block()
    rank, n = block.rank(), block.size()
    held = coop.shared.array(1024, np.float64)
    own = coop.ThreadData(5, np.float64)
    truth, small, number = rank % 3 == 0, np.uint8(rank), x[rank]
    held[rank] = number
    coop.syncthreads()
    for k in range(5):
        own[(k + rank) % 5] = held[(rank + k) % n] * k
    coop.syncthreads()
    held[rank] = own[rank % 5] if truth else small
    coop.syncthreads()
    total = 0.0
    for k in range(rank % 7):
        total += held[(rank * 3 + k) % n] + own[k % 5]
    out[coop.blockIdx.x, rank] = total + number


def branches_and_loops(x, out):
    block = coop.this_block()
    rank = block.rank()
    i = coop.blockIdx.x * block.size() + rank
    count = 0
    n = np.int64(abs(x[i]) * 10) + 1
    while n != 1 and count < 50:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        count += 1
    if coop.any(block, count > 40):
        out[coop.blockIdx.x, rank] = -count
        return
    out[coop.blockIdx.x, rank] = count / (1 + rank) if rank % 2 else np.sin(x[i])


def structured(x, out):
    block = coop.this_block()
    rank = block.rank()
    held = coop.shared.array(1024, PAIR)
    held[rank].key = rank * 7 % 5
    held[rank].value = x[rank]
    coop.syncthreads()
    other = held[(rank + 1) % block.size()]
    key, value = other.key, other.value
    coop.syncthreads()
    held[rank].key += key
    held[rank].value *= value
    out[coop.blockIdx.x, rank] = held[rank].value + held[rank].key


KERNELS = [
    ranks_and_extents,
    sums_of_items,
    collectives_of_growing_elements,
    values_over_many_waits,
    branches_and_loops,
    structured,
]


def _kernel(function, monkeypatch, form):
    """Return a kernel of its own that is compiled into the form, the first of the blocks that it runs."""
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__)
    kernel = coop.jit(debug=form is Form.FIBERS)(copy)
    with monkeypatch.context() as patched:
        if form is Form.TURNS:
            patched.setattr(entry, "work_item_loops", lambda module, name: None)
        _bits(kernel, BLOCKS[0])
    return kernel


def _bits(kernel, block):
    threads = int(np.prod(block))
    x = np.random.default_rng(1).standard_normal(6 * threads * 4).astype(np.float32)
    out = np.zeros((6, threads), np.float64)
    kernel[6, block](x, out)
    return out.tobytes()


@pytest.mark.parametrize("function", KERNELS, ids=lambda each: each.__name__)
def test_loops_give_the_bits_of_threads_one_by_one(function, monkeypatch):
    loops, turns, fibers = (_kernel(function, monkeypatch, form) for form in (Form.LOOPS, Form.TURNS, Form.FIBERS))
    assert {each[1] for each in loops.launcher._compiled.values()} == {Form.LOOPS}
    for block in BLOCKS:
        bits = _bits(loops, block)
        assert bits == _bits(turns, block), block
        assert bits == _bits(fibers, block), block
