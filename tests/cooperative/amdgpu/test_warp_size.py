# SPDX-License-Identifier: MIT
"""The warp size belongs to the kernel: the CPU and each GPU run it with the same, or refuse it."""

import numpy as np
import pytest
from device_kernels import NO_COMPILER

from rocpy import cooperative as coop
from rocpy.cooperative import arrays
from rocpy.cooperative.amdgpu import device_library
from rocpy.errors import InvalidProblemError, KernelError, KernelTypeError, UnsupportedError

amdgpu = pytest.importorskip("rocpy.testing.amdgpu", reason="no emulator of AMD's instructions in this build")
compiles = pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)
SIGNATURE = "void(int64[::1],int64[:,::1])"


def of_warps(x, out):
    i, warp = coop.threadIdx.x, coop.this_warp()
    out[0, i] = coop.sum(warp, x[i], all=True)
    out[1, i] = warp.size()
    out[2, i] = coop.shuffle(warp, x[i], "xor", 33)
    out[3, i] = coop.inclusive_sum(coop.this_warp(width=32), x[i])
    out[4, i] = coop.shuffle(warp, x[i], "rotate", 5)
    out[5, i] = coop.merge_sort_keys(warp, x[i])
    out[6, i] = coop.ballot(warp, x[i] > 30)
    out[7, i] = coop.exclusive_sum(coop.this_block(), x[i])
    coop.syncwarp()


def of_64(x, out):
    out[0, coop.threadIdx.x] = coop.sum(coop.this_warp(64), x[coop.threadIdx.x], all=True)


def of_block(x, out):
    out[0, coop.threadIdx.x] = coop.sum(coop.this_block(), x[coop.threadIdx.x], all=True)


def flat(array):
    return (array, *array.shape, *array.strides)


def expected_sums(x, width):
    return np.concatenate([np.full(len(part), part.sum()) for part in np.split(x, range(width, len(x), width))])


@compiles
@pytest.mark.parametrize(
    ("arch", "size"),
    [
        ("gfx942", 64),
        ("gfx1201", 32),
        pytest.param("gfx1100", 64, marks=pytest.mark.slow),
        pytest.param("gfx1201", 64, marks=pytest.mark.slow),
    ],
)
def test_the_same_on_the_cpu_and_on_a_gpu(arch, size):
    kernel = coop.jit(warp_size=size, threads=1)(of_warps)
    x = np.arange(100)[::-1].copy()
    expected, seen = np.zeros((8, 100), np.int64), np.zeros((8, 100), np.int64)
    kernel[1, 100](x, expected)
    np.testing.assert_array_equal(expected[0], expected_sums(x, size))
    code = coop.compile(kernel, SIGNATURE, arch, threads=128)
    assert code.info.wave_size == size
    amdgpu.run(code.code, code.name, 1, 100, *flat(x), *flat(seen))
    np.testing.assert_array_equal(seen, expected)


@compiles
@pytest.mark.parametrize(("arch", "size"), [("gfx942", 32), ("gfx1250", 64)])
def test_a_size_that_a_gpu_lacks_is_refused(arch, size):
    with pytest.raises(UnsupportedError, match=rf"warps of {size} threads, and {arch} only has.*warp_size=") as told:
        coop.compile(coop.jit(warp_size=size)(of_warps), SIGNATURE, arch, cache=False)
    assert "of_warps" in str(told.value)


@compiles
@pytest.mark.parametrize(("arch", "size"), [("gfx942", 32), ("gfx1250", 64)])
def test_a_kernel_of_blocks_alone_is_compiled_whatever_its_warps(arch, size):
    code = coop.compile(coop.jit(warp_size=size)(of_block), SIGNATURE, arch, threads=128)
    assert code.info.wave_size == device_library.wave_size(arch)


@compiles
def test_array_forms_are_for_waves_of_any_size():
    scanner = arrays._scanner("+", np.dtype(np.float32), False, False)
    for arch, lanes in (("gfx942", 64), ("gfx1250", 32)):
        code = coop.compile(scanner, "void(float32[:,::1],float32[::1],float32[:,::1])", arch, threads=256)
        assert code.info.wave_size == lanes


@compiles
def test_native_is_what_a_gpu_has():
    kernel = coop.jit(warp_size="native", threads=1)(of_64)
    assert coop.compile(kernel, SIGNATURE, "gfx942", threads=128).info.wave_size == 64
    for arch in ("gfx1201", "gfx1250"):
        with pytest.raises(KernelTypeError, match="width is 64, and the warps of this kernel have 32"):
            coop.compile(kernel, SIGNATURE, arch, cache=False)
    out = np.zeros((1, 100), np.int64)
    kernel[1, 100](np.arange(100), out)  # the CPU's warps are of 64
    np.testing.assert_array_equal(out[0], expected_sums(np.arange(100), 64))


@pytest.mark.parametrize("debug", [False, True])
def test_a_width_beyond_the_kernels_warps_is_refused(debug):
    kernel = coop.jit(warp_size=32, debug=debug)(of_64)
    with pytest.raises(KernelTypeError, match=r"width is 64, and the warps of this kernel have 32.*test_warp_size\.py"):
        kernel[1, 64](np.arange(64), np.zeros((1, 64), np.int64))


def test_one_function_in_kernels_of_different_warps():
    def whole(value):
        return coop.sum(coop.this_warp(), value, all=True)

    def kernel(x, out):
        out[0, coop.threadIdx.x] = whole(x[coop.threadIdx.x])

    x = np.arange(96)
    for size in (32, 64):
        out = np.zeros((1, 96), np.int64)
        coop.jit(warp_size=size, threads=1)(kernel)[1, 96](x, out)
        np.testing.assert_array_equal(out[0], expected_sums(x, size))


def test_a_width_that_only_a_launch_knows_is_checked_there():
    @coop.jit(warp_size=32, threads=1)
    def kernel(width, out):
        out[0] = coop.sum(coop.this_warp(width), 1)

    out = np.zeros(1, np.int64)
    kernel[1, 64](16, out)
    assert out[0] == 16
    for width in (64, 3, -2):
        with pytest.raises(KernelError, match="powers of two up to the warp size, 32"):
            kernel[1, 64](width, out)


@pytest.mark.parametrize("size", [16, 128, 0, True, "own", 64.5])
def test_sizes_that_are_none(size):
    with pytest.raises(InvalidProblemError, match="warp_size is"):
        coop.jit(warp_size=size)(of_block)


@compiles
@pytest.mark.parametrize(
    ("arch", "options"),
    [("gfx1100", ("-DCOOP_WARP_SIZE=64",)), ("gfx1100", ("-mwavefrontsize64",)), ("gfx942", ("-DCOOP_WARP_SIZE=32",))],
)
def test_the_header_refuses_waves_of_another_size(arch, options, monkeypatch):
    source = (
        '#include "rocpy_coop.h"\n__attribute__((device)) float f(float x) { return rocpy::block_sum<float, 256>(x); }'
    )
    monkeypatch.setattr(device_library, "wave_options", lambda *_: options)
    with pytest.raises(device_library.LibraryError, match="wavefrontsize"):
        device_library.bitcode(source, arch)


@compiles
def test_the_header_refuses_a_width_beyond_the_wave():
    source = '#include "rocpy_coop.h"\n__attribute__((device)) float f(float x) {{ return rocpy::{}; }}'
    for call in ("warp_reduce<float, 64>(x, rocpy::Plus{})", "sum(rocpy::Tile<64>{}, x)"):
        text = source.replace("{{", "{").replace("}}", "}").replace("{}; }", f"{call}; }}", 1)
        with pytest.raises(device_library.LibraryError, match="at most a wave"):
            device_library.bitcode(text, "gfx1100")
        assert device_library.bitcode(text, "gfx1100", 64)
