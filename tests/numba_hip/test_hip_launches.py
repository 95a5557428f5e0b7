# SPDX-License-Identifier: MIT
"""Kernels of `hip.jit` that call the primitives, launched by numba-hip on an AMD GPU: the bits are those of the CPU."""

import importlib.metadata
from pathlib import Path

import numpy as np
import pytest

try:
    importlib.metadata.version("numba-hip")
except importlib.metadata.PackageNotFoundError:
    pytest.skip("numba-hip: not installed (make numba-hip)", allow_module_level=True)
if not Path("/dev/kfd").exists():
    pytest.skip("no AMD GPU", allow_module_level=True)

import hip_kernels
from device_kernels import CALLS, make
from numba import hip

from rocpy.cooperative.amdgpu import device_library


@pytest.mark.parametrize("name", CALLS)
def test_primitive_on_hardware(name):
    x = np.random.default_rng(1).integers(0, 20, 1600).astype(np.float32)
    expected, seen = np.zeros_like(x), hip.to_device(np.zeros_like(x))
    warp_size = device_library.wave_size(hip.get_current_device().amdgpu_arch.partition(":")[0])
    n = 797 if name in ("load", "store") else 11
    make(name, "float32", 0, warp_size)[2, 200](x, expected, n)
    kernel, _ = hip_kernels.primitive(hip, name, "float32", 0)
    kernel[2, 200](hip.to_device(x), seen, n)
    np.testing.assert_array_equal(seen.copy_to_host().view(np.uint8), expected.view(np.uint8))


def test_softmax_on_hardware():
    x = np.random.default_rng(7).standard_normal((3, 300), dtype=np.float32)
    out = hip.to_device(np.zeros_like(x))
    kernel, _ = hip_kernels.softmax(hip)
    kernel[3, 128](hip.to_device(x), out)
    hip_kernels.check_softmax(x, out.copy_to_host())
