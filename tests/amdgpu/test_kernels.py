# SPDX-License-Identifier: MIT
"""Whole kernels, compiled by clang for each architecture, run on the emulator and compared with numpy."""

import importlib.util

import ml_dtypes
import numpy as np
import pytest

if importlib.util.find_spec("ziglang") is None:
    pytest.skip("no compiler for AMD GPUs: pip install ziglang", allow_module_level=True)

from amdgpu_code import ARCHITECTURES, compiled
from amdgpu_kernels import KERNELS

import rocpy
from rocpy.testing import amdgpu

pytestmark = pytest.mark.parametrize("arch", ARCHITECTURES)


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def run(arch, name, grid, block, *arguments, **options):
    return amdgpu.run(compiled(KERNELS[name], arch), name, grid, block, *arguments, **options)


def truncated(a, b):
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


def test_add(arch, rng):
    a, b = (rng.standard_normal(1000, dtype=np.float32) for _ in range(2))
    c = np.zeros_like(a)
    report = run(arch, "add", 4, 256, a, b, c, np.int32(1000))
    np.testing.assert_array_equal(c, a + b * np.float32(2))
    assert report.opcodes["s_endpgm"] == 4 * 256 // (64 if arch.startswith("gfx9") else 32)
    assert sum(report.opcodes.values()) >= report.instructions


def test_tree_of_barriers(arch, rng):
    x, out = rng.integers(-99, 99, 5000).astype(np.float32), np.zeros(4, np.float32)
    run(arch, "tree", 4, 256, x, out, np.int32(5000))
    padded = np.append(x, np.zeros(5 * 1024 - 5000, np.float32)).reshape(5, 4, 256)
    np.testing.assert_array_equal(out, padded.sum((0, 2)))


def test_division_and_roots_are_rounded_correctly(arch, rng):
    n = 300
    x, f = rng.standard_normal(n) * 100, rng.standard_normal(n, dtype=np.float32) * 5
    out, quotient, whole = np.zeros(n), np.zeros(n, np.float32), np.zeros(n, np.int64)
    run(arch, "doubles", 5, 64, x, f, out, quotient, whole, np.uint32(n))
    np.testing.assert_array_equal(out, x / (x * x + 1) + np.sqrt(np.abs(x)))
    np.testing.assert_array_equal(quotient, f / (f + np.float32(3)))
    np.testing.assert_array_equal(whole, truncated((x * 1e6).astype(np.int64) * np.arange(n), np.int64(7)))


def test_integer_division(arch, rng):
    n = 300
    a = rng.integers(-(1 << 31), 1 << 31, n).astype(np.int32)
    b = rng.integers(1, 1000, n).astype(np.int32) * rng.choice([-1, 1], n).astype(np.int32)
    quotient, rest = np.zeros(n, np.int32), np.zeros(n, np.int32)
    run(arch, "division", 5, 64, a, b, quotient, rest, np.uint32(n))
    wanted = truncated(a.astype(np.int64), b.astype(np.int64))
    np.testing.assert_array_equal(quotient, wanted)
    np.testing.assert_array_equal(rest, a - wanted * b)


def test_atomics(arch, rng):
    n = 300
    bins, x, total = np.zeros(16, np.int32), rng.integers(0, 1000, n).astype(np.uint32), np.zeros(1, np.float32)
    run(arch, "histogram", 5, 64, bins, x, total, np.uint32(n))
    np.testing.assert_array_equal(bins, np.bincount(x & 15, minlength=16))
    assert total[0] == n


def test_memory_of_a_thread(arch, rng):
    a, out = rng.integers(0, 1000, 64 * 40).astype(np.int32), np.zeros(64, np.int32)
    run(arch, "own_memory", 1, 64, a, out, np.int32(30))
    wanted = [sum(int(a[t * 40 + (i * 7 + t) % 40]) * 3 ^ i for i in range(30)) for t in range(64)]
    np.testing.assert_array_equal(out, wanted)


def test_halves(arch, rng):
    n = 300
    a, b = (rng.standard_normal(n).astype(np.float16) for _ in range(2))
    out, f, q, p = (
        np.zeros(n, np.float16),
        np.zeros(n, np.float32),
        np.zeros(n, np.uint16),
        np.zeros((n, 2), np.float16),
    )
    run(arch, "halves", 5, 64, a, b, out, f, q, p, np.uint32(n))
    np.testing.assert_array_equal(out, a * b + np.float16(1.5))
    np.testing.assert_array_equal(f, a.astype(np.float32) - b.astype(np.float32))
    np.testing.assert_array_equal(
        q, (a.astype(np.float32) * np.float32(3.3)).astype(ml_dtypes.bfloat16).view(np.uint16)
    )
    pair = np.stack([a, b], axis=1)
    np.testing.assert_array_equal(p, pair * pair + pair)


def test_grids_and_blocks_of_three_extents(arch):
    out = np.zeros((6, 6, 8), np.uint32)
    run(arch, "grid", (2, 3, 2), (4, 2, 3), out)
    z, y, x = np.indices(out.shape)
    np.testing.assert_array_equal(out, x | y << 8 | z << 16)


def test_module_rows_run_the_same_code(arch, rng):
    a, b = (rng.standard_normal(1000, dtype=np.float32) for _ in range(2))
    c = np.zeros_like(a)
    with rocpy.Module.from_code(compiled(KERNELS["add"], arch)) as module, rocpy.Stream() as stream:
        module.kernel("add").launch(4, 256, a, b, c, np.int32(1000), stream=stream)
        stream.synchronize()
        np.testing.assert_array_equal(c, a + b * np.float32(2))
        with pytest.raises(rocpy.RocpyError, match="NotFound"):
            module.kernel("no_such_kernel")


@pytest.mark.parametrize("selected", [0, 1])
def test_a_kernel_runs_on_streams_of_its_device(arch, selected):
    """Whichever device is current: a launch makes the module's device so."""
    arrays = [np.ones(64, np.float32) for _ in range(3)]
    with rocpy.Module.from_code(compiled(KERNELS["add"], arch), device=1) as module:
        kernel = module.kernel("add")
        with rocpy.Device(selected), rocpy.Stream(device=0) as other, rocpy.Stream(device=1) as stream:
            kernel.launch(1, 64, *arrays, np.int32(64), stream=stream)
            stream.synchronize()
            assert (arrays[2] == 3).all()
            for foreign in (other, other.handle):
                with pytest.raises(rocpy.InvalidOperandError, match="stream: it belongs to device 0.* add .* device 1"):
                    kernel.launch(1, 64, *arrays, np.int32(64), stream=foreign)
            for number in (None, 0, 1, 2):  # the null stream, and HIP's numbers for it and for the thread's own
                kernel.launch(1, 64, *arrays, np.int32(64), stream=number)
