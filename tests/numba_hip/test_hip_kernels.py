# SPDX-License-Identifier: MIT
"""Kernels of `hip.jit` that call the primitives: compiled with no GPU, taken apart, and run on the emulator."""

import functools
import importlib.metadata
import io
import re

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

try:
    importlib.metadata.version("numba-hip")
except importlib.metadata.PackageNotFoundError:
    pytest.skip("numba-hip: not installed (make numba-hip)", allow_module_level=True)

import hip_kernels
import hip_offline
from amdgpu_code import text_section
from device_kernels import BY_DPP, CALLS, make

from rocpy import cooperative as coop
from rocpy.cooperative.amdgpu import code_object, device_library
from rocpy.errors import UnsupportedError
from rocpy.testing import amdgpu

WARP_SIZES = {"gfx942": 64, "gfx1201": 32}
DPP = re.compile(r"row_sh[lr]:")
FEW = ("sum", "reduce", "scan_items", "load", "ballot")
OF_BLOCKS = {name for name, call in CALLS.items() if "coop.store" in call} | {"scan_prefix", "histogram"}


@functools.cache
def compiled(arch, kernel, *arguments):
    """Return the code object of a kernel, its name in it, and its instructions; it has no scratch and calls nothing."""
    code, entry = hip_offline.compile_kernel(arch, getattr(hip_kernels, kernel), *arguments)
    info = code_object.kernel_info(code, entry)
    lines = [text for _, _, text in amdgpu.decode(arch, text_section(code))]
    assert info.scratch_bytes == 0, info
    assert info.wave_size == device_library.ARCHITECTURES[arch]
    assert not [line for line in lines if line.startswith(("s_swappc", "s_call"))]
    return code, entry, lines


def run(arch, kernel, arguments, grid, block, *given):
    code, entry, _ = compiled(arch, kernel, *arguments)
    flat = [part for each in given for part in (record(each) if isinstance(each, np.ndarray) else (each,))]
    amdgpu.run(code, entry, grid, block, *flat)


def record(array):
    """Return an array as numba-hip's kernels take one: owners, numbers, address, extents and strides."""
    return (0, 0, array.size, array.itemsize, array, *array.shape, *array.strides)


def values(dtype, count, seed):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 20, count, dtype=dtype)
    x = np.round(rng.standard_normal(count) * 8).astype(dtype) / 7  # some are equal
    x[::17] = -0.0
    return x.astype(dtype)


def compare(name, arch, dtype="float32", width=0, threads=200, blocks=2):
    """Run a primitive on the emulator and, the same source, on the CPU: the bits are the same."""
    x, n = values(dtype, 4 * threads * blocks, threads + width), threads * 4 - 3 if name in ("load", "store") else 11
    expected, seen = np.zeros_like(x), np.zeros_like(x)
    make(name, dtype, width, WARP_SIZES[arch])[blocks, threads](x, expected, n)
    run(arch, "primitive", (name, dtype, width), blocks, threads, x, seen, n)
    differ = np.flatnonzero(seen.view(np.uint8) != expected.view(np.uint8)) // x.itemsize
    assert not differ.size, (differ[:8], seen[differ[:8]], expected[differ[:8]])


@pytest.mark.parametrize("name", CALLS)
def test_primitive(name):
    compare(name, "gfx942")
    if name in BY_DPP:
        _, _, lines = compiled("gfx942", "primitive", name, "float32", 0)
        assert len([line for line in lines if DPP.search(line)]) >= 4, lines


@pytest.mark.parametrize("name", FEW)
def test_primitive_on_waves_of_32(name):
    compare(name, "gfx1201")


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float64"])
def test_types(dtype):
    compare("scan_items", "gfx942", dtype)


def test_warps():
    compare("sum", "gfx942", width=16)


@pytest.mark.slow
@pytest.mark.parametrize("arch", WARP_SIZES)
@pytest.mark.parametrize("width", [0, 8])
@pytest.mark.parametrize("name", CALLS)
def test_every_primitive(name, arch, width):
    if width and name in OF_BLOCKS:
        pytest.skip("for blocks")
    compare(name, arch, width=width, threads=100)


@pytest.mark.parametrize("arch", WARP_SIZES)
def test_softmax(arch):
    x = np.random.default_rng(7).standard_normal((3, 300), dtype=np.float32) * 5
    out = np.zeros_like(x)
    run(arch, "softmax", (), 3, 128, x, out)
    hip_kernels.check_softmax(x, out)


def test_an_operator_serves_several_functions_of_a_kernel():
    x = np.random.default_rng(3).integers(0, 500, 256).astype(np.int32)
    out = np.zeros_like(x)
    run("gfx942", "shared_operator", (), 1, 256, x, out)
    np.testing.assert_array_equal(out, x.max() + 1000 * np.repeat(x[::-1].reshape(-1, 8).max(1), 8))


def test_a_mistake_is_told_in_the_primitives_words():
    with pytest.raises(Exception, match="pass one element of it"):
        hip_offline.compile_kernel("gfx942", hip_kernels.wrong)


def test_parts_are_compiled_for_the_object_version_of_the_whole():
    code, _, _ = compiled("gfx942", "primitive", "sum", "float32", 0)
    assert hip_offline.OBJECT_VERSION == 6 != device_library.OBJECT_VERSION
    assert ELFFile(io.BytesIO(code)).header["e_ident"]["EI_ABIVERSION"] == 4  # ELF's number for 6


def test_kernels_of_coop_jit_run_here_and_say_what_compiling_them_needs():
    kernel, x = make("sum"), np.ones(64, np.float32)
    out = np.zeros_like(x)
    kernel[1, 64](x, out, 0)
    assert out[0] == 64
    with pytest.raises(UnsupportedError, match="llvmlite 0.50 brings with Numba 0.68"):
        coop.compile(kernel, "void(float32[::1],float32[::1],int64)")
