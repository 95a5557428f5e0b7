# SPDX-License-Identifier: MIT
"""Code objects of the primitives, run by the emulator of AMD's instructions, give the bits of the CPU."""

import math

import numpy as np
import pytest
from device_kernels import CALLS, NO_COMPILER, check_functions, functions, make

from rocpy import cooperative as coop
from rocpy.cooperative.amdgpu import device_library

amdgpu = pytest.importorskip("rocpy.testing.amdgpu", reason="no emulator of AMD's instructions in this build")
pytestmark = pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
WARP_SIZES = {"gfx942": 64, "gfx1201": 32}
FEW = ("sum", "scan_items", "load", "shuffle", "topk_max_keys")
# Warps of a block would write to the same places, or have too few counters.
OF_BLOCKS = {name for name, call in CALLS.items() if "coop.store" in call} | {"scan_prefix", "histogram"}


def values(dtype, count, seed):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 20, count, dtype=dtype)
    x = np.round(rng.standard_normal(count) * 8).astype(dtype) / 7  # some are equal
    x[::17] = -0.0
    return x.astype(dtype)


def flat(array):
    return (array, *array.shape, *array.strides)


def compare(name, arch, dtype="float32", width=0, threads=200, blocks=2):
    kernel = make(name, dtype, width, device_library.ARCHITECTURES[arch])
    x, n = values(dtype, 4 * threads * blocks, threads + width), threads * 4 - 3 if name in ("load", "store") else 11
    expected, seen = np.zeros_like(x), np.zeros_like(x)
    kernel[blocks, threads](x, expected, n)
    room = 64 * math.ceil(threads / 64)
    code = coop.compile(kernel, f"void({dtype}[::1],{dtype}[::1],int64)", arch, threads=room)
    amdgpu.run(code.code, code.name, blocks, threads, *flat(x), *flat(seen), n)
    differ = np.flatnonzero(seen.view(np.uint8) != expected.view(np.uint8)) // x.itemsize
    assert not differ.size, (differ[:8], seen[differ[:8]], expected[differ[:8]])


@pytest.mark.parametrize("arch", WARP_SIZES)
@pytest.mark.parametrize("name", FEW)
def test_primitive(name, arch):
    compare(name, arch)


# Cards whose instructions are those of another, and code for a whole family.
MEMBERS = ("gfx1101", "gfx1102", "gfx1103", "gfx1200", "gfx9-4-generic", "gfx11-generic", "gfx12-generic")


@pytest.mark.parametrize("arch", MEMBERS)
@pytest.mark.parametrize("name", ["sum", "scan_items"])
def test_members_of_families(name, arch):
    compare(name, arch)


@pytest.mark.parametrize("arch", WARP_SIZES)
@pytest.mark.parametrize("name", ["sum", "scan_total"])
def test_last_wave_has_fewer_lanes_than_there_are_waves(name, arch):
    compare(name, arch, threads=129)


@pytest.mark.slow
@pytest.mark.parametrize("width", [0, 8, 32])
@pytest.mark.parametrize("threads", [30, 64, 65, 100, 256, 1000])
@pytest.mark.parametrize("arch", WARP_SIZES)
@pytest.mark.parametrize("name", CALLS)
def test_every_primitive(name, arch, threads, width):
    if width and name in OF_BLOCKS:
        pytest.skip("for blocks")
    compare(name, arch, width=width, threads=threads)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "float64"])
@pytest.mark.parametrize("arch", WARP_SIZES)
@pytest.mark.parametrize("name", ["sum", "max", "reduce", "scan_items", "shuffle", "exchange", "merge_sort_keys"])
def test_types(name, arch, dtype):
    compare(name, arch, dtype)


@pytest.mark.parametrize("arch", WARP_SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_numbers(arch, dtype):
    x = np.random.default_rng(5).uniform(0.01, 8, 64).astype(dtype)
    out = np.zeros((9, 64), dtype)
    code = coop.compile(functions, f"void({dtype}[::1],{dtype}[:,::1])", arch, threads=64)
    amdgpu.run(code.code, code.name, 1, 64, *flat(x), *flat(out))
    check_functions(x, out)


@coop.jit
def atomics(a, plane, signed, unsigned, i, j):
    coop.atomic.add(a, signed, 1)
    coop.atomic.add(a, unsigned, 10)
    coop.atomic.max(a, -1, 7)
    coop.atomic.cas(a, -2, 0, 5)
    coop.atomic.add(plane, (i, j), 1)


@pytest.mark.parametrize("arch", WARP_SIZES)
def test_a_negative_index_of_an_atomic_operation_counts_from_the_end(arch):
    around, plane = np.zeros(12, np.int64), np.zeros((2, 3), np.int64)
    code = coop.compile(atomics, "void(int64[::1],int64[:,::1],int64,uint64,int64,int64)", arch, threads=64)
    amdgpu.run(code.code, code.name, 1, 4, *flat(around[4:8]), *flat(plane), -4, np.uint64(1), -1, -3)
    assert around.tolist() == [0, 0, 0, 0, 4, 40, 5, 7, 0, 0, 0, 0]
    assert plane.tolist() == [[0, 0, 0], [4, 0, 0]]


@pytest.mark.parametrize("width", [0, 16])
@pytest.mark.parametrize("arch", WARP_SIZES)
def test_rotation_by_any_distance(arch, width):
    @coop.jit(warp_size=device_library.ARCHITECTURES[arch])
    def rotate(out, distance, unsigned):
        group, i = coop.this_warp(width) if width else coop.this_block(), coop.threadIdx.x
        out[0, i] = coop.shuffle(group, i, "rotate", distance)
        out[1, i] = coop.shuffle(group, i, "rotate", unsigned)

    size, threads = width or 48, 48
    code = coop.compile(rotate, "void(int64[:,::1],int64,uint64)", arch, threads=64)
    for distance, unsigned in ((2**63 - 1, 2**64 - 1), (-(2**63), 2**63)):
        out = np.zeros((2, threads), np.int64)
        amdgpu.run(code.code, code.name, 1, threads, *flat(out), distance, np.uint64(unsigned))
        for row, by in zip(out, (distance, unsigned), strict=True):
            assert row.tolist() == [i // size * size + (i + by) % size for i in range(threads)]


def _exponents(limits):
    return limits.minexp - limits.nmant, limits.maxexp


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_divisions_at_the_ends_of_the_range(dtype):
    @coop.jit
    def kernel(x, y, out):
        i = coop.grid(1)
        out[i] = x[i] / y[i]

    limits = np.finfo(dtype)
    magnitudes = [1.0, 1e-3, limits.max, limits.tiny, limits.smallest_subnormal, limits.max / 2, limits.tiny * 3, 0.0]
    exponents = [(i, sign) for i in (0.25, 0.5, 0.75) for sign in (-1, 1)]
    magnitudes += [2.0 ** (sign * int(i * limits.maxexp)) * 1.3 for i, sign in exponents] + [np.inf, np.nan]
    signed = np.array([*magnitudes, *(-each for each in magnitudes)], dtype)
    x, y = (each.ravel() for each in np.meshgrid(signed, signed))
    rng = np.random.default_rng(0)  # quotients that are subnormal, then of any size
    some = rng.uniform(1, 2, (2, 2048)).astype(dtype)
    with np.errstate(all="ignore"):
        x = np.concatenate([x, some[0] * limits.tiny, np.ldexp(some[0], rng.integers(*_exponents(limits), 2048))])
        y = np.concatenate([y, some[1] * 512, np.ldexp(some[1], rng.integers(*_exponents(limits), 2048))])
    expected, seen = np.zeros_like(x), np.zeros_like(x)
    kernel[len(x) // 32, 32](x, y, expected)
    code = coop.compile(kernel, f"void({dtype}[::1],{dtype}[::1],{dtype}[::1])", "gfx942", threads=64)
    amdgpu.run(code.code, code.name, len(x) // 32, 32, *flat(x), *flat(y), *flat(seen))
    np.testing.assert_array_equal(seen, expected)
    numbers = ~np.isnan(expected)
    assert (np.signbit(seen) == np.signbit(expected))[numbers].all()
