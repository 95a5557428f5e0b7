# SPDX-License-Identifier: MIT
"""Kernels as loops over the threads of a block give the same bits as threads that take turns and as fibers."""

import subprocess
import sys
import textwrap
import types

import numpy as np
import pytest

from rocpy import cooperative as coop
from rocpy.cooperative.cpu import entry
from rocpy.cooperative.cpu.machine_code import Form
from rocpy.errors import KernelError

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


def _kernel(function, monkeypatch, form, block=BLOCKS[0]):
    """Return a kernel of its own that is compiled into the form, the first of the blocks that it runs."""
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__)
    kernel = coop.jit(debug=form is Form.FIBERS)(copy)
    with monkeypatch.context() as patched:
        if form is Form.TURNS:
            patched.setattr(entry, "work_item_loops", lambda module, name: None)
        _bits(kernel, block)
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


def unused_shared_array(x, out):
    held = coop.shared.array(100000, np.float64)
    out[coop.blockIdx.x, 0] = held.shape[0]


def shared_array_before_an_exception(x, out):
    held = coop.shared.array(100000, np.float64)
    held[0] = x[0]
    if coop.threadIdx.x >= 0:
        raise ValueError("later")


def shared_array_used_after_a_barrier(x, out):
    held = coop.shared.array(100000, np.float64)
    coop.syncthreads()
    held[coop.threadIdx.x] = x[0]
    out[coop.blockIdx.x, 0] = held[coop.threadIdx.x]


def shared_array_of_one_thread(x, out):
    if coop.threadIdx.x == 9:
        held = coop.shared.array(100000, np.float64)
        held[0] = x[0]
        out[coop.blockIdx.x, 0] = held[0]


def exception_after_a_collective(x, out):
    block = coop.this_block()
    total = coop.sum(block, x[block.rank()], all=True)
    if block.rank() == 5:
        raise ValueError("rank", block.rank(), total)


FAILING = [
    unused_shared_array,
    shared_array_before_an_exception,
    shared_array_used_after_a_barrier,
    shared_array_of_one_thread,
    exception_after_a_collective,
]


@pytest.mark.parametrize("function", FAILING, ids=lambda each: each.__name__)
def test_loops_fail_as_threads_one_by_one_do(function, monkeypatch):
    seen = []
    for form in (Form.LOOPS, Form.TURNS):
        with pytest.raises((KernelError, ValueError)) as raised:
            _kernel(function, monkeypatch, form, 64)
        seen.append((type(raised.value), raised.value.args, getattr(raised.value, "__notes__", None)))
    assert seen[0] == seen[1]


SPECIAL = ["100%20", "a, !b", 'q"%1', "atomic @rocpy_simt_barrier("]


@pytest.mark.parametrize(
    "folder", [" ".join(SPECIAL), *(pytest.param(name, marks=pytest.mark.slow) for name in SPECIAL)]
)
def test_paths_of_kernels_do_not_matter(folder, tmp_path):
    (tmp_path / folder).mkdir()
    path = tmp_path / folder / "run%2.py"
    path.write_text(
        textwrap.dedent("""
        import numpy as np
        from rocpy import cooperative as coop

        @coop.jit
        def kernel(x, out):
            i = coop.threadIdx.x
            total = coop.sum(coop.this_block(), x[i], all=True)
            coop.syncthreads()
            out[i] = total + i

        out = np.zeros(8)
        kernel[1, 8](np.arange(8.0), out)
        assert out.tolist() == list(range(28, 36)), out
        print({each[1].name for each in kernel.launcher._compiled.values()})
        """)
    )
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout == "{'LOOPS'}\n", done.stderr


@pytest.mark.parametrize("count", [120, pytest.param(400, marks=pytest.mark.slow)])
def test_values_that_depend_on_hundreds_of_others(monkeypatch, count):
    source = ["def long_chain(x, out):", "    i = coop.threadIdx.x", "    h = np.uint64(i + 1)"]
    source += ["    h = (h ^ (h >> np.uint64(13))) * np.uint64(0x9E3779B97F4A7C15)"] * count
    source += ["    coop.syncthreads()", "    out[coop.blockIdx.x, i] = h >> np.uint64(40)"]
    names = {"coop": coop, "np": np}
    exec("\n".join(source), names)
    loops, turns = (_kernel(names["long_chain"], monkeypatch, form) for form in (Form.LOOPS, Form.TURNS))
    assert _bits(loops, 200) == _bits(turns, 200)


def test_arrays_of_threads_fill_the_stack_that_was_asked_for():
    @coop.jit
    def kernel(out):
        held = coop.local.array(8150, np.float64)
        for k in range(8150):
            held[k] = k + coop.threadIdx.x
        out[coop.threadIdx.x] = held[out.shape[0]]

    out = np.zeros(4)
    kernel[1, 4](out)
    np.testing.assert_array_equal(out, 4 + np.arange(4))
