# SPDX-License-Identifier: MIT
"""Sorts of Python kernels on AMD GPUs: the bits of the CPU, for every size, in steps that are not quadratic."""

import functools

import numpy as np
import pytest
from device_kernels import NO_COMPILER

from rocpy import cooperative as coop

amdgpu = pytest.importorskip("rocpy.testing.amdgpu", reason="no emulator of AMD's instructions in this build")
pytestmark = pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
WARP_SIZES = {"gfx942": 64, "gfx1201": 32}
WAYS = 6


def farther(a, b):
    """Return whether a comes before b: an order of Python's, in which many keys are equal."""
    return abs(a) > abs(b)


SOURCE = """
def sorts(x, keys, places, valid, begin, end):
    i = coop.threadIdx.x
    group = {group}
    own = coop.ThreadData({items}, x.dtype)
    numbers = coop.ThreadData({items}, np.int32)
    for k in range({items}):
        own[k] = x[i * {items} + k]
        numbers[k] = i * {items} + k
    merged = coop.merge_sort_pairs(group, own, numbers, {op}, valid_items=valid)
    alone = coop.merge_sort_keys(group, own, {op})
    radix = coop.radix_sort_pairs(group, own, numbers, descending={descending}, begin_bit=begin, end_bit=end)
    striped = coop.radix_sort_keys(group, own, blocked_to_striped=True)
    ranks = coop.radix_rank(group, own, begin_bit=begin, end_bit=end)
    best = coop.topk_{side}_pairs(group, own, numbers, 5, valid_items=valid)
    for k in range({items}):
        at = i * {items} + k
        keys[0, at] = merged[0][k]
        places[0, at] = merged[1][k]
        keys[1, at] = alone[k]
        keys[2, at] = radix[0][k]
        places[2, at] = radix[1][k]
        keys[3, at] = striped[k]
        places[4, at] = ranks[k]
        if group.rank() * {items} + k < min(5, valid):
            keys[5, at] = best[0][k]
            places[5, at] = best[1][k]
"""


@functools.cache
def kernel_of(warp_size, items, op, descending, side, width=0):
    world = {"coop": coop, "np": np, "farther": farther}
    group = f"coop.this_warp({width})" if width else "coop.this_block()"
    source = SOURCE.format(group=group, items=items, op=op, descending=descending, side=side)
    exec(compile(source, "<sorts>", "exec"), world)
    return coop.jit(threads=1, warp_size=warp_size)(world["sorts"])


def keys_of(dtype, count, seed):
    """Return keys with many equal ones, the least and the greatest; of floats both zeros and infinities, NaNs too."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(count) < 0.5
    if dtype.kind in "iu":
        x = rng.integers(0, 20, count).astype(dtype)
        x[::13], x[5::13] = np.iinfo(dtype).min, np.iinfo(dtype).max
        return x
    x = np.round(rng.standard_normal(count) * 3).astype(dtype)
    x[::7], x[3::11], x[5::13] = -0.0, np.inf, -np.inf
    return x


def flat(array):
    memory = array.view(np.uint8) if array.dtype == np.bool_ else array  # of one size; the emulator takes no booleans
    return (memory, *array.shape, *array.strides)


def compare(arch, dtype="float32", items=2, op="'<'", descending=False, side="max", width=0, threads=(64,), nan=True):
    kernel = kernel_of(WARP_SIZES[arch], items, op, descending, side, width)
    name = "boolean" if dtype == "bool" else dtype
    signature = f"void({name}[::1],{name}[:,::1],int32[:,::1],int64,int64,int64)"
    code = coop.compile(kernel, signature, arch, threads=max(64, -(-max(threads) // 64) * 64))
    bits = 1 if dtype == "bool" else 8 * np.dtype(dtype).itemsize
    for count in threads:
        for valid, begin, end in ((2**40, 0, bits), (count, bits // 4, bits - bits // 8), (0, 0, 0)):
            x = keys_of(dtype, count * items, count + items)
            if nan and x.dtype.kind == "f":
                x[::17], x[2::19] = np.nan, -np.nan
            seen = [(np.zeros((WAYS, x.size), x.dtype), np.zeros((WAYS, x.size), np.int32)) for _ in range(2)]
            kernel[1, count](x, *seen[0], valid, begin, end)
            amdgpu.run(
                code.code, code.name, 1, count, *flat(x), *flat(seen[1][0]), *flat(seen[1][1]), valid, begin, end
            )
            for wanted, found in zip(*seen, strict=True):
                np.testing.assert_array_equal(wanted.view(np.uint8), found.view(np.uint8), f"{count} {valid}")
    return code


@pytest.mark.parametrize("arch", ["gfx942", pytest.param("gfx1201", marks=pytest.mark.slow)])
def test_sorts_have_the_bits_of_the_cpu(arch):
    code = compare(arch, threads=(1, 65, 200))
    assert code.info.scratch_bytes == 0


@pytest.mark.slow
def test_order_of_python():
    compare("gfx942", "float64", 1, "farther", True, "min", 16, (1, 50, 100), nan=False)


@pytest.mark.slow
@pytest.mark.parametrize("width", [0, 4, 32])
@pytest.mark.parametrize("items", [1, 3, 8])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "uint64", "float32", "float64"])
@pytest.mark.parametrize("arch", WARP_SIZES)
def test_every_type(arch, dtype, items, width):
    compare(arch, dtype, items, "'>'", descending=True, side="min", width=width, threads=(1, 31, 64, 100, 256))


@coop.jit(threads=1)
def radix_and_topk(x, out):
    i = coop.threadIdx.x
    sorted_keys = coop.merge_sort_keys(coop.this_block(), x[i])
    best = coop.topk_max_keys(coop.this_block(), x[i], 8)
    out[i] = coop.radix_rank(coop.this_block(), x[i], end_bit=8) + sorted_keys + (best if i < 8 else 0)


def test_steps_are_not_quadratic():
    code = coop.compile(radix_and_topk, "void(int32[::1],int32[::1])", "gfx942")
    steps = []
    for threads in (256, 1024):
        x = np.random.default_rng(0).integers(0, 250, threads).astype(np.int32)
        expected, seen = np.zeros_like(x), np.zeros_like(x)
        radix_and_topk[1, threads](x, expected)
        steps.append(amdgpu.run(code.code, code.name, 1, threads, *flat(x), *flat(seen)).instructions)
        np.testing.assert_array_equal(seen, expected)
    # Four times the threads, each with ten rounds of merging in place of eight and bisections that are as much longer.
    assert steps[1] < 4 * 2 * steps[0], steps
