# SPDX-License-Identifier: MIT
"""Launches on an AMD GPU, with a device that is made up: what is compiled, loaded and passed."""

import itertools
import types

import numpy as np
import pytest
from device_kernels import CALLS, NO_COMPILER, check_functions, functions
from device_kernels import make as make_kernel

from rocpy import cooperative as coop
from rocpy.cooperative.amdgpu import device_library, launch
from rocpy.errors import InvalidOperandError, InvalidProblemError, UnsupportedError

pytestmark = pytest.mark.skipif(bool(NO_COMPILER), reason=NO_COMPILER)


class OnDevice:
    """An array that says it is in the memory of a device of ROCm's."""

    def __init__(self, array, index=0):
        self.array, self.index = array, index

    def __dlpack_device__(self):
        return 10, self.index

    def __dlpack__(self, **_options):
        return self.array.__dlpack__()


@pytest.fixture
def device(monkeypatch):
    """Stand in for device and module; gives what was loaded and launched."""
    seen = types.SimpleNamespace(arch="gfx942:sramecc+:xnack-", loaded=[], launched=[])

    def from_code(code, device):
        seen.loaded.append((code, device))
        launch = lambda *given, **options: seen.launched.append((given, options))  # noqa: E731
        return types.SimpleNamespace(kernel=lambda name: types.SimpleNamespace(launch=launch, name=name))

    monkeypatch.setattr(launch, "Device", lambda index: types.SimpleNamespace(arch=seen.arch, index=index))
    monkeypatch.setattr(launch, "Module", types.SimpleNamespace(from_code=from_code))
    return seen


def make():
    @coop.jit
    def scaled_sums(x, out, factor, pair):
        own = np.float32(0)
        for j in range(coop.threadIdx.x, x.shape[1], coop.blockDim.x):
            own += x[coop.blockIdx.x, j]
        total = coop.sum(coop.this_block(), own)
        if coop.threadIdx.x == 0:
            out[coop.blockIdx.x] = total * factor + pair[0]

    return scaled_sums


def test_arguments_are_flat_and_code_is_loaded_once(device):
    kernel = make()
    x, out = OnDevice(np.ones((3, 100), np.float32)), OnDevice(np.zeros(3, np.float32))
    for _ in range(2):
        kernel[3, 200](x, out, np.float32(2), (1, 2.5))
    assert len(device.loaded) == 1
    assert len(device.launched) == 2
    (grid, block, *flat), options = device.launched[0]
    assert (grid, block) == ((3, 1, 1), (200, 1, 1))
    assert options == {"shared_bytes": 0, "stream": None}
    assert [flat[0].handle, *flat[1:5]] == [x.array.ctypes.data, 3, 100, 400, 4]
    assert [flat[5].handle, *flat[6:]] == [out.array.ctypes.data, 3, 4, np.float32(2), 1, 2.5]
    info = coop.compile(kernel, "void(float32[:,::1],float32[::1],float32,Tuple((int64,float64)))", threads=256).info
    assert info.argument_bytes >= 8 * len(flat)


def test_a_launch_of_nothing_loads_nothing(device):
    make()[0, 64](OnDevice(np.ones((3, 1), np.float32)), OnDevice(np.ones(3, np.float32)), np.float32(2), (1, 2.5))
    assert not device.loaded


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (
            (OnDevice(np.ones((3, 1), np.float32)), np.ones(3, np.float32), 1.0, (1, 1)),
            InvalidOperandError,
            "out is on",
        ),
        (
            (OnDevice(np.ones((3, 1), np.float32)), OnDevice(np.ones(3, np.float32), 1), 1.0, (1, 1)),
            InvalidOperandError,
            "on device 1",
        ),
        ((OnDevice(np.ones((3, 1), np.float32)),), InvalidProblemError, "called with 1 arguments"),
    ],
)
def test_arguments_that_do_not_go_together(device, arguments, error, told):
    with pytest.raises(error, match=told):
        make()[3, 64](*arguments)


def test_a_device_that_no_code_is_made_for(device):
    device.arch = "gfx803"
    with pytest.raises(UnsupportedError, match=r"gfx803.*gfx942"):
        make()[3, 64](OnDevice(np.ones((3, 1), np.float32)), OnDevice(np.ones(3, np.float32)), 1.0, (1, 1.0))


@pytest.mark.torch
def test_the_versions_of_tensors_that_are_written_are_raised(device):
    """As on the CPU, with code that was compiled now and with code from the disk."""
    import torch

    class Tensor(torch.Tensor):
        def __dlpack_device__(self):
            return 10, 0

    def on_device(count):
        return torch.zeros(count).as_subclass(Tensor)

    def written(x, out, pair):
        out[coop.threadIdx.x] = x[coop.threadIdx.x] + pair[0][0]
        coop.atomic.add(pair[1], 0, 1)

    for kernel in (coop.jit(written), coop.jit(written)):
        x, out, pair = on_device(4), on_device(4), (on_device(1), on_device(1))
        for _ in range(2):
            kernel[1, 4, object()](x, out, pair)
        assert (x._version, out._version, pair[0]._version, pair[1]._version) == (0, 2, 0, 2)
    assert len(device.launched) == 4


@pytest.mark.torch
def test_hardware():
    """On a machine with an AMD GPU each primitive gives the bits of the CPU."""
    import torch

    if torch.version.hip is None or not torch.cuda.is_available():
        pytest.skip("needs an AMD GPU and torch for ROCm")
    arch = torch.cuda.get_device_properties(0).gcnArchName.partition(":")[0]
    sizes = [size for size in (32, 64) if device_library.has_waves_of(arch, size)]
    for name, size in itertools.product(CALLS, sizes):
        kernel = make_kernel(name, warp_size=size)
        x = torch.round(torch.randn(1024) * 8) / 7
        expected, seen = torch.zeros(1024), torch.zeros(1024, device="cuda")
        kernel[1, 200](x, expected, 11)
        kernel[1, 200](x.cuda(), seen, 11)
        assert torch.equal(seen.cpu(), expected), (name, size)


@pytest.mark.torch
def test_hardware_functions():
    """On a machine with an AMD GPU quotients and roots are rounded correctly, functions as near as on the emulator."""
    import torch

    if torch.version.hip is None or not torch.cuda.is_available():
        pytest.skip("needs an AMD GPU and torch for ROCm")
    for dtype in (torch.float32, torch.float64):
        x = torch.rand(64, dtype=dtype) * 8 + 0.01
        out = torch.zeros((9, 64), dtype=dtype, device="cuda")
        functions[1, 64](x.cuda(), out)
        check_functions(x.numpy(), out.cpu().numpy())
