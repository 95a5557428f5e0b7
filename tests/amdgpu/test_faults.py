# SPDX-License-Identifier: MIT
"""Kernels that are wrong, and code that is none: a typed error that says where, and never a crash."""

import contextlib
import importlib.util

import numpy as np
import pytest

if importlib.util.find_spec("ziglang") is None:
    pytest.skip("no compiler for AMD GPUs: pip install ziglang", allow_module_level=True)

from amdgpu_code import compiled, instruction_kernels, text_section
from amdgpu_kernels import KERNELS

import rocpy
from rocpy.errors import InvalidOperandError, InvalidProblemError, KernelError, KernelIndexError, UnsupportedError
from rocpy.testing import amdgpu

BOTH = pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])


def launch(arch, body, **options):
    arrays = [np.zeros(64, np.uint64) for _ in range(4)]
    return amdgpu.run(instruction_kernels([body], arch), "k0", 1, 64, *arrays, **options)


@BOTH
def test_an_access_past_the_end(arch):
    a, b, c = (np.zeros(200, np.float32) for _ in range(3))
    with pytest.raises(
        KernelIndexError, match=r"kernel add, block \(0, 0, 0\), wave \d, at 0x.*global_load.*read of 4"
    ):
        amdgpu.run(compiled(KERNELS["add"], arch), "add", 1, 256, a, b, c, np.int32(256))


@BOTH
def test_a_write_to_what_is_read_only(arch):
    a, b, c = (np.zeros(256, np.float32) for _ in range(3))
    c.flags.writeable = False
    with pytest.raises(rocpy.RocpyError):
        amdgpu.run(compiled(KERNELS["add"], arch), "add", 1, 256, a, b, c, np.int32(256))


@BOTH
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("v_mov_b32 v2, 0x10000\n ds_write_b32 v2, v3", "65536 of the group's shared memory, which has 4096"),
        ("s_trap 2", "trapped"),
        ("s_mov_b64 s[4:5], 16\n s_setpc_b64 s[4:5]", "left the code object"),
        (".long 0xffffffff", "0xffffffff 0x[0-9a-f]{8} is not a known instruction of gfx"),
        ("s_branch -1", "more than 1000 instructions"),
        ("v_mov_b32 v2, 16\n v_mov_b32 v3, 0\n global_load_ubyte v4, v[2:3], off", "which is in no allocation"),
    ],
)
def test_a_kernel_is_stopped(arch, body, message):
    if arch == "gfx1201":
        body = body.replace("ds_write_b32", "ds_store_b32").replace("global_load_ubyte", "global_load_u8")
    with pytest.raises(KernelError, match=message):
        launch(arch, body, limit=1000)


def test_a_barrier_that_a_wave_never_reaches():
    body = "v_cmp_gt_u32 vcc, 64, v0\n s_cbranch_vccz .Lpast\n s_barrier\n s_barrier\n .Lpast:"
    code = instruction_kernels([body], "gfx942")
    arrays = [np.zeros(128, np.uint64) for _ in range(4)]
    report = amdgpu.run(code, "k0", 1, 128, *arrays)  # waves that have ended are not waited for
    assert report.opcodes["s_barrier"] == 2
    body = "s_barrier_signal -1\n s_barrier_wait -1\n s_barrier_wait -1\n s_barrier_signal -1\n s_barrier_wait -1"
    assert launch("gfx1201", body).opcodes["s_barrier_signal"] == 4


def test_what_cannot_be_launched():
    code = compiled(KERNELS["add"], "gfx942")
    arrays = [np.zeros(64, np.float32) for _ in range(3)]
    with pytest.raises(InvalidProblemError, match="no kernel subtract; it has add"):
        amdgpu.run(code, "subtract", 1, 64)
    with pytest.raises(InvalidProblemError, match="takes 4 arguments, got 3"):
        amdgpu.run(code, "add", 1, 64, *arrays)
    with pytest.raises(InvalidProblemError, match="argument 3 of kernel add has 4 bytes, got 8"):
        amdgpu.run(code, "add", 1, 64, *arrays, 64)
    with pytest.raises(InvalidProblemError, match="threads"):
        amdgpu.run(code, "add", 1, 2048, *arrays, np.int32(64))
    with pytest.raises(InvalidProblemError, match="shared memory"):
        amdgpu.run(code, "add", 1, 64, *arrays, np.int32(64), shared_bytes=(64 << 10) + 1)
    larger = compiled(KERNELS["add"], "gfx950")
    amdgpu.run(larger, "add", 1, 64, *arrays, np.int32(64), shared_bytes=160 << 10)
    with pytest.raises(InvalidProblemError, match="shared memory"):
        amdgpu.run(larger, "add", 1, 64, *arrays, np.int32(64), shared_bytes=(160 << 10) + 1)
    bounded = KERNELS["add"].replace(
        "__attribute__((global))", "__attribute__((global, amdgpu_flat_work_group_size(1, 64)))"
    )
    with pytest.raises(InvalidProblemError, match="kernel add was compiled for at most 64"):
        amdgpu.run(compiled(bounded, "gfx942"), "add", 1, 128, *arrays, np.int32(64))
    with pytest.raises(InvalidOperandError, match="ELF"):
        amdgpu.run(code[:40], "add", 1, 64)
    with pytest.raises(InvalidOperandError, match="ELF"):
        amdgpu.run(b"", "add", 1, 64)
    other = bytearray(code)
    other[48] = 0x20  # the machine in the header's flags
    with pytest.raises(UnsupportedError, match="not emulated"):
        amdgpu.run(bytes(other), "add", 1, 64)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
def test_garbage_is_refused_or_stopped(arch):
    code = compiled(KERNELS["tree"], arch)
    at = code.index(text_section(code)[:64])
    length = len(text_section(code))
    rng = np.random.default_rng(3)
    for trial in range(60):
        broken = bytearray(code)
        if trial % 3 == 0:  # code of random words
            broken[at : at + length] = rng.bytes(length)
        elif trial % 3 == 1:  # code with some bits flipped
            for place in rng.integers(at, at + length, 6):
                broken[place] ^= 1 << rng.integers(8)
        else:  # a file with some bytes changed
            for place in rng.integers(4, len(code), 20):
                broken[place] = rng.integers(256)
        x, out = np.ones(300, np.float32), np.zeros(2, np.float32)
        with contextlib.suppress(rocpy.RocpyError):
            amdgpu.run(bytes(broken), "tree", 1, 256, x, out, np.int32(300), limit=20000)
