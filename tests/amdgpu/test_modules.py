# SPDX-License-Identifier: MIT
"""Modules from files and launches that count threads, through HIP's C functions, on the emulator."""

import ctypes
import importlib.util

import numpy as np
import pytest

if importlib.util.find_spec("ziglang") is None:
    pytest.skip("no compiler for AMD GPUs: pip install ziglang", allow_module_level=True)
pytest.importorskip("rocm.bindings.hip", exc_type=ImportError)

import host_platform
from amdgpu_code import compiled, instruction_kernels
from amdgpu_kernels import KERNELS
from host_platform import error, ok

ARCHITECTURES = pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])


@pytest.fixture
def hip():
    recorder = host_platform.Recorder(host_platform.load())
    recorder.hipSetDevice(0)
    yield recorder
    recorder.hipSetDevice(0)
    recorder.hipGetLastError()


@pytest.fixture
def load(hip, tmp_path):
    """Return a function that loads a code object from a file and gives its kernel."""
    modules = []

    def kernel(code, name):
        path = tmp_path / f"code{len(modules)}.co"
        path.write_bytes(code)
        modules.append(ok(hip.hipModuleLoad(str(path).encode())))
        return ok(hip.hipModuleGetFunction(modules[-1], name.encode()))

    yield kernel
    for module in modules:
        ok(hip.hipModuleUnload(module))


def launch(hip, function, threads, block, arguments, stream=None, start=None, stop=None):
    """Call hipExtModuleLaunchKernel, which hip-python does not have, with arguments by pointer."""
    pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(one) for one in arguments))
    handles = [ctypes.c_void_p(int(one) if one is not None else None) for one in (function, stream, start, stop)]
    return hip.linked(
        "hipExtModuleLaunchKernel",
        handles[0],
        *(ctypes.c_uint(n) for n in (*threads, *block)),
        ctypes.c_size_t(0),
        handles[1],
        pointers,
        None,
        *handles[2:],
        ctypes.c_uint(0),
    )


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


# Stores 1 + v0, whose fields of ten bits are the thread's numbers in its block, by the number of the block.
NUMBERS = """
.text
.globl numbers
.p2align 8
.type numbers,@function
numbers:
  {load} s[8:9], s[0:1], 0x0
  {wait}
  s_mul_i32 s5, s4, 256
  v_and_b32 v1, 0x3ff, v0
  v_bfe_u32 v2, v0, 10, 10
  v_lshlrev_b32 v2, 5, v2
  v_lshl_add_u32 v1, v1, 2, v2
  {add} v1, s5, v1
  v_add_u32 v3, 1, v0
  {store} v1, v3, s[8:9]
  s_endpgm
.section .rodata
.p2align 6
.amdhsa_kernel numbers
  .amdhsa_next_free_vgpr 8
  .amdhsa_next_free_sgpr 16
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_user_sgpr_count 4
  .amdhsa_kernarg_size 8
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_accum_offset 8
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.kernels:
  - .name: numbers
    .symbol: numbers.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 16
    .vgpr_count: 8
    .max_flat_workgroup_size: 1024
    .args:
      - .offset: 0
        .size: 8
        .value_kind: global_buffer
        .address_space: global
amdhsa.version: [1, 2]
...
.end_amdgpu_metadata
"""


def numbers_of_threads():
    from amdgpu_code import code_object

    words = {
        "load": "s_load_dwordx2",
        "wait": "s_waitcnt lgkmcnt(0)",
        "add": "v_add_u32",
        "store": "global_store_dword",
    }
    return code_object(NUMBERS.format(**words), "gfx942")


@ARCHITECTURES
def test_a_kernel_of_a_file(hip, load, arch):
    function = load(compiled(KERNELS["add"], arch), "add")
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(1000, dtype=np.float32) for _ in range(2))
    c = np.zeros_like(a)
    arguments = [pointer(a), pointer(b), pointer(c), ctypes.c_int(1000)]
    ok(launch(hip, function, (1024, 1, 1), (256, 1, 1), arguments))
    ok(hip.hipStreamSynchronize(None))
    np.testing.assert_array_equal(c, a + b * np.float32(2))


def test_the_last_blocks_may_be_smaller(hip, load):
    """A grid of 19 threads by 3 in blocks of 8 by 2: two axes end with a smaller block."""
    function = load(numbers_of_threads(), "numbers")
    out = np.zeros(3 * 64, np.uint32)
    ok(launch(hip, function, (19, 3, 1), (8, 3, 1), [pointer(out)]))
    ok(hip.hipStreamSynchronize(None))
    y, x = np.indices((3, 19))
    wanted = np.zeros((3, 8, 8), np.uint32)
    wanted[x // 8, y, x % 8] = 1 + (x % 8 | y << 10)
    np.testing.assert_array_equal(out.reshape(3, 8, 8), wanted)
    # A block is not larger than the grid.
    out[:] = 0
    ok(launch(hip, function, (5, 1, 1), (64, 2, 1), [pointer(out)]))
    ok(hip.hipStreamSynchronize(None))
    np.testing.assert_array_equal(out, np.where(np.arange(192) < 5, np.arange(192) + 1, 0))


def test_what_was_compiled_for_whole_blocks_refuses_others(hip, load):
    function = load(compiled(KERNELS["add"], "gfx942"), "add")
    array = np.zeros(128, np.float32)
    arguments = [pointer(array)] * 3 + [ctypes.c_int(0)]
    assert error(launch(hip, function, (100, 1, 1), (64, 1, 1), arguments)) == "hipErrorInvalidValue"
    ok(launch(hip, function, (128, 1, 1), (64, 1, 1), arguments))
    ok(hip.hipStreamSynchronize(None))


def test_events_around_a_launch(hip, load):
    function = load(instruction_kernels(["s_nop 0"], "gfx942"), "k0")
    stream, start, stop = ok(hip.hipStreamCreate()), ok(hip.hipEventCreate()), ok(hip.hipEventCreate())
    ok(hip.hipSetDevice(1))
    elsewhere = ok(hip.hipEventCreate())
    ok(hip.hipSetDevice(0))
    arrays = [np.zeros(64, np.uint64) for _ in range(4)]
    packed = np.array([one.ctypes.data for one in arrays], np.uint64)
    size = ctypes.c_size_t(32)
    extra = (ctypes.c_void_p * 5)(1, packed.ctypes.data, 2, ctypes.addressof(size), 3)
    handles = [ctypes.c_void_p(int(one)) for one in (function, stream, start, stop, elsewhere)]
    shape = [ctypes.c_uint(n) for n in (64, 1, 1, 64, 1, 1)]
    none = ctypes.c_size_t(0)

    def call(first, last):
        return hip.linked(
            "hipExtModuleLaunchKernel", handles[0], *shape, none, handles[1], None, extra, first, last, ctypes.c_uint(1)
        )

    ok(call(handles[2], handles[3]))
    ok(hip.hipEventSynchronize(stop))
    assert ok(hip.hipEventElapsedTime(start, stop)) >= 0
    assert error(call(handles[4], None)) == "hipErrorInvalidHandle"
    assert error(call(None, handles[4])) == "hipErrorInvalidHandle"
    for event in (start, stop, elsewhere):
        ok(hip.hipEventDestroy(event))
    assert error(call(handles[2], None)) == "hipErrorInvalidHandle"
    ok(hip.hipStreamDestroy(stream))
