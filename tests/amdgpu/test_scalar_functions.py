# SPDX-License-Identifier: MIT
"""What GFX12 alone has: functions of scalar floats, halves of scalar registers, a wave's own number."""

import importlib.util

import numpy as np
import pytest

if importlib.util.find_spec("ziglang") is None:
    pytest.skip("no assembler for AMD GPUs: pip install ziglang", allow_module_level=True)

from amdgpu_code import instruction_kernels

from rocpy.testing import amdgpu
from rocpy.testing.tolerance import ulp

FUNCTIONS = {
    "rcp": lambda x: 1 / x,
    "rsq": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
    "exp": np.exp2,
    "log": np.log2,
}


def each_lane(text):
    """Run scalar instructions from s4 to s5 for the value of each lane."""
    step = "v_readlane_b32 s4, v2, {0}\n {1}\n v_writelane_b32 v8, s5, {0}"
    return "\n ".join(step.format(lane, text) for lane in range(32))


def run(code, kernel, *values, threads=32):
    slots = [np.zeros(threads, np.uint64) for _ in range(4)]
    for slot, value in zip(slots, values, strict=False):
        slot.view(value.dtype).reshape(threads, -1)[:, 0] = value
    amdgpu.run(code, kernel, 1, threads, *slots)
    return slots[3]


def test_functions_of_scalars():
    names = [(name, dtype) for name in FUNCTIONS for dtype in ("f32", "f16")]
    code = instruction_kernels([each_lane(f"v_s_{name}_{dtype} s5, s4") for name, dtype in names], "gfx1201")
    for number, (name, kind) in enumerate(names):
        dtype = np.dtype("float32" if kind == "f32" else "float16")
        x = np.random.default_rng(number).uniform(0.01, 9, 32).astype(dtype)
        seen = run(code, f"k{number}", x).view(dtype).reshape(32, -1)[:, 0]
        wanted = FUNCTIONS[name](x.astype(np.float64))
        # Rounded once from float64, whose own error is far below.
        assert (np.abs(seen.astype(np.float64) - wanted) <= 0.5001 * ulp(np.abs(wanted), dtype)).all(), name


def test_a_wave_knows_its_number():
    code = instruction_kernels(["s_bfe_u32 s4, ttmp8, 0x50019\n v_mov_b32 v8, s4"], "gfx1201")
    np.testing.assert_array_equal(run(code, "k0", threads=96), np.repeat([0, 1, 2], 32))
