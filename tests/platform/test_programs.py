# SPDX-License-Identifier: MIT
"""What programs ask of HIP and rocpy does not: contexts, copies of boxes, cooperative launches, occupancy."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
from amdgpu_code import compiled
from host_hip import Hip, Memcpy3DParams, PitchedPtr

INVALID, NO_MEMORY, INVALID_PITCH, INVALID_DEVICE, INVALID_CONTEXT = 1, 2, 12, 101, 201
IN_USE, INVALID_HANDLE, DESTROYED, TOO_LARGE = 216, 400, 709, 720
DEFAULT = 4  # hipMemcpyDefault
SUPPORT = Path(__file__).resolve().parents[1] / "support"

# Each block writes a number, all wait for each other, and each adds up what all wrote: as ROCm's device library waits
# where the chip has no barrier of the grid's own, and with that barrier.
KERNEL = """
struct Information {
  unsigned *grid_barrier, grid, grids;
  unsigned long before, threads;
  unsigned group_barrier[2], groups;
};
typedef __attribute__((address_space(4))) const unsigned long Words;
__attribute__((device)) static Information *information() {
  return (Information *)((Words *)__builtin_amdgcn_implicitarg_ptr())[11];
}
__attribute__((device)) static void meet(unsigned *word, unsigned members, unsigned all) {
  unsigned before = __hip_atomic_fetch_add(word, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_SYSTEM);
  if ((before & (all - 1)) == members - 1) {
    __hip_atomic_fetch_add(word, all - members, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_SYSTEM);
    return;
  }
  while ((__hip_atomic_load(word, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM) & ~(all - 1)) == (before & ~(all - 1)))
    __builtin_amdgcn_s_sleep(1);
}
__attribute__((device)) static void sync(unsigned groups) {
  __builtin_amdgcn_s_barrier();
#ifdef GLOBAL_BARRIER
  if (__builtin_amdgcn_workitem_id_x() < 64) __builtin_amdgcn_ds_gws_barrier(groups - 1, 0);
#else
  if (__builtin_amdgcn_workitem_id_x() == 0) meet(information()->group_barrier, information()->groups, 0x10000);
#endif
  __builtin_amdgcn_s_barrier();
}
extern "C" __attribute__((global)) void add_all(unsigned *values, unsigned *sums, unsigned groups) {
  unsigned group = __builtin_amdgcn_workgroup_id_x(), thread = __builtin_amdgcn_workitem_id_x();
  for (unsigned round = 1; round <= 3; ++round) {
    unsigned value = (group + 1) * round;
    if (thread == 0) __hip_atomic_store(values + group, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    sync(groups);
    if (thread == 0) {
      unsigned sum = 0;
      for (unsigned k = 0; k < groups; ++k)
        sum += __hip_atomic_load(values + k, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
      sums[group] += sum;
    }
    sync(groups);
  }
}
#ifndef GLOBAL_BARRIER
extern "C" __attribute__((global)) void of_all_devices(unsigned *values, unsigned *sums) {
  Information *info = information();
  if (__builtin_amdgcn_workitem_id_x() == 0) {
    __hip_atomic_store(values + info->grid, (unsigned)info->before + 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
    meet(info->grid_barrier, info->grids, 0x100);
    unsigned sum = 0;
    for (unsigned k = 0; k < info->grids; ++k)
      sum += __hip_atomic_load(values + k, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
    sums[info->grid] = sum + (unsigned)info->threads;
  }
}
#endif
"""


@pytest.fixture
def hip():
    made = Hip()
    yield made
    made.hipSetDevice(0)
    made.hipGetLastError()


class Code:
    """The kernels of a code object, launched with arrays and numbers."""

    def __init__(self, hip, arch, *options):
        self.hip, self.module = hip, hip.created("hipModuleLoadData", compiled(KERNEL, arch, *options))

    def function(self, name):
        return self.hip.created("hipModuleGetFunction", self.module, name)


def arguments(*values):
    """The pointers to the arguments of a launch; they keep what they point to."""
    as_c = [ctypes.c_void_p(v.ctypes.data) if isinstance(v, np.ndarray) else ctypes.c_uint(v) for v in values]
    pointers = (ctypes.c_void_p * len(as_c))(*[ctypes.addressof(value) for value in as_c])
    pointers.kept = as_c
    return pointers


def launch(hip, function, blocks, threads, *values, stream=None, shared=0):
    shape = [ctypes.c_uint(number) for number in (blocks, 1, 1, threads, 1, 1, shared)]
    return hip.hipModuleLaunchCooperativeKernel(function, *shape, stream, arguments(*values))


@pytest.mark.parametrize(("arch", "options"), [("gfx942", ()), ("gfx1100", ()), ("gfx90a", ("-DGLOBAL_BARRIER",))])
def test_blocks_of_a_cooperative_launch_wait_for_each_other(hip, arch, options):
    function = Code(hip, arch, *options).function(b"add_all")
    values, sums = np.zeros(7, np.uint32), np.zeros(7, np.uint32)
    assert launch(hip, function, 7, 128, values, sums, 7) == 0
    assert hip.hipDeviceSynchronize() == 0
    np.testing.assert_array_equal(sums, np.full(7, 28 * 6))

    # As a node of a graph too, each time from the start.
    stream, graph = hip.created("hipStreamCreate"), ctypes.c_void_p()
    assert hip.hipStreamBeginCapture(stream, 0) == 0
    assert launch(hip, function, 7, 64, values, sums, 7, stream=stream) == 0
    assert hip.hipStreamEndCapture(stream, ctypes.byref(graph)) == 0
    ready = hip.created("hipGraphInstantiate", graph, None, None, ctypes.c_size_t(0))
    for _ in range(2):
        hip.run(ready)
    np.testing.assert_array_equal(sums, np.full(7, 3 * 28 * 6))
    assert hip.hipGraphExecDestroy(ready) == hip.hipGraphDestroy(graph) == hip.hipStreamDestroy(stream) == 0


def test_what_a_cooperative_launch_refuses(hip):
    function = Code(hip, "gfx942").function(b"add_all")
    values, blocks, units = np.zeros(1, np.uint32), ctypes.c_int(), ctypes.c_int()
    size = ctypes.c_size_t(0)
    assert hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(ctypes.byref(blocks), function, 1024, size) == 0
    multiprocessors = 63  # hipDeviceAttributeMultiprocessorCount
    assert hip.hipDeviceGetAttribute(ctypes.byref(units), multiprocessors, 0) == 0
    places = blocks.value * units.value
    assert launch(hip, function, places + 1, 1024, values, values, 1) == TOO_LARGE
    assert launch(hip, function, 2 * places, 64, values, values, 1, shared=1 << 16) == TOO_LARGE
    assert launch(hip, None, 1, 64, values, values, 1) == INVALID_HANDLE
    stream = hip.created("hipStreamCreate")
    assert hip.hipStreamDestroy(stream) == 0
    assert launch(hip, function, 1, 64, values, values, 1, stream=stream) == DESTROYED
    # By the address of a host symbol that nothing was registered for.

    class Dim3(ctypes.Structure):
        _fields_ = [("of", ctypes.c_uint32 * 3)]

    one = Dim3((1, 1, 1))
    assert hip.hipLaunchCooperativeKernel(ctypes.c_void_p(8), one, one, None, 0, None) == 98


class FunctionLaunch(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_void_p),
        ("shape", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("params", ctypes.POINTER(ctypes.c_void_p)),
    ]


def test_grids_of_several_devices_wait_for_each_other(hip):
    function = Code(hip, "gfx942").function(b"of_all_devices")
    values, sums = np.zeros(3, np.uint32), np.zeros(3, np.uint32)
    streams, parts, kept = [], (FunctionLaunch * 3)(), arguments(values, sums)
    for device, part in enumerate(parts):
        assert hip.hipSetDevice(device) == 0
        streams.append(hip.created("hipStreamCreate"))
        part.function, part.stream = function.value, streams[-1].value
        part.shape[:] = (1, 1, 1, 64, 1, 1, 0)
        part.params = ctypes.cast(kept, ctypes.POINTER(ctypes.c_void_p))
    assert hip.hipModuleLaunchCooperativeKernelMultiDevice(parts, 3, 0) == 0
    for stream in streams:
        assert hip.hipStreamSynchronize(stream) == 0
    np.testing.assert_array_equal(sums, np.full(3, (1 + 65 + 129) + 192))

    many = hip.hipModuleLaunchCooperativeKernelMultiDevice
    assert many(None, 3, 0) == many(parts, 0, 0) == many(parts, 3, 4) == INVALID
    assert many(parts, 1000, 0) == INVALID_DEVICE
    parts[1].stream = parts[0].stream
    assert many(parts, 3, 0) == INVALID_DEVICE
    parts[1].stream = None
    assert many(parts, 3, 0) == INVALID_HANDLE
    for stream in streams:
        assert hip.hipStreamDestroy(stream) == 0


def test_occupancy_suggests_a_block(hip):
    function = Code(hip, "gfx942").function(b"add_all")
    grid, block, blocks = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    ask = hip.hipModuleOccupancyMaxPotentialBlockSize
    for limit in (0, 100):
        size = ctypes.c_size_t(0)
        assert ask(ctypes.byref(grid), ctypes.byref(block), function, size, limit) == 0
        assert 0 < block.value <= (limit or 1024)
        assert block.value % 64 == 0
        counted = hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
        assert counted(ctypes.byref(blocks), function, block, size, 0) == 0
        assert grid.value % blocks.value == 0
        assert counted(ctypes.byref(blocks), function, block, size, 2) == INVALID
    assert ask(None, ctypes.byref(block), function, ctypes.c_size_t(0), 0) == INVALID


def test_contexts_are_those_of_devices(hip):
    first, second, popped = (hip.created("hipDevicePrimaryCtxRetain", device) for device in (0, 1, 1))
    assert first.value != second.value == popped.value
    device = ctypes.c_int()

    def current():
        assert hip.hipCtxGetDevice(ctypes.byref(device)) == 0
        assert hip.created("hipCtxGetCurrent").value == (first, second)[device.value].value
        return device.value

    assert hip.hipCtxPopCurrent(None) == INVALID_CONTEXT  # nothing was pushed
    assert hip.hipCtxPushCurrent(second) == 0
    assert current() == 1
    assert hip.hipCtxPushCurrent(first) == 0
    assert current() == 0
    assert hip.hipCtxPopCurrent(ctypes.byref(popped)) == 0
    assert popped.value == first.value
    assert hip.hipCtxSetCurrent(second) == 0
    assert current() == 1
    assert hip.created("hipCtxCreate", 0, 0).value == first.value
    assert current() == 1  # AMD's runtime pushes it and leaves the device
    assert hip.hipCtxDestroy(first) == hip.hipCtxSetCurrent(None) == 0
    assert hip.hipCtxPopCurrent(None) == INVALID_CONTEXT
    for name in ("PushCurrent", "SetCurrent", "Destroy"):
        assert getattr(hip, f"hipCtx{name}")(ctypes.c_void_p(1)) == INVALID_CONTEXT
    assert hip.hipCtxCreate(ctypes.byref(popped), 0, 1000) == hip.hipCtxDestroy(None) == INVALID


def test_the_state_of_a_primary_context(run_python):
    # In a process of its own: whoever used the device before has made its context active.
    run_python(
        f"""
        import ctypes
        from host_hip import Hip

        hip = Hip()
        flags, active, memory = ctypes.c_uint(9), ctypes.c_int(), ctypes.c_void_p()

        def is_active(device):
            assert hip.hipDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active)) == 0
            assert flags.value == 0
            return bool(active.value)

        assert hip.hipSetDevice(5) == 0
        assert not is_active(5)
        assert hip.hipMalloc(ctypes.byref(memory), ctypes.c_size_t(64)) == 0
        assert is_active(5)
        assert hip.hipFree(memory) == 0
        assert hip.hipDevicePrimaryCtxRelease(5) == hip.hipDevicePrimaryCtxReset(5) == 0
        assert hip.hipDevicePrimaryCtxSetFlags(5, 0) == {IN_USE}
        assert hip.hipDevicePrimaryCtxGetState(1000, None, None) == {INVALID_DEVICE}
        """,
        PYTHONPATH=str(SUPPORT),
    )


def box(target, target_at, source, source_at, extent):
    """Bytes of one array, at a place in it, to another: axes are slices, rows and bytes."""
    params = Memcpy3DParams(kind=DEFAULT)
    for side, array, at in (("dst", target, target_at), ("src", source, source_at)):
        pitch = array.strides[1]
        setattr(params, side, PitchedPtr(array.ctypes.data, pitch, array.shape[2], array.strides[0] // pitch))
        getattr(params, f"{side}_pos")[:] = at[::-1]
    params.extent[:] = extent[::-1]
    return params


@pytest.mark.parametrize("is_async", [False, True])
def test_boxes_are_copied_and_filled(hip, rng, is_async):
    source = rng.integers(0, 255, (4, 6, 16), dtype=np.uint8)
    target = rng.integers(0, 255, (5, 7, 32), dtype=np.uint8)
    expected = target.copy()
    expected[2:5, 1:4, 8:18] = source[1:4, 3:6, 2:12]
    params = box(target, (2, 1, 8), source, (1, 3, 2), (3, 3, 10))
    extra = (None,) if is_async else ()
    name = "Async" if is_async else ""
    assert getattr(hip, f"hipMemcpy3D{name}")(ctypes.byref(params), *extra) == 0
    assert hip.hipDeviceSynchronize() == 0
    np.testing.assert_array_equal(target, expected)

    expected[:2, :3, :5] = 7
    extent = Extent((5, 3, 2))
    assert getattr(hip, f"hipMemset3D{name}")(params.dst, 7, extent, *extra) == 0
    assert hip.hipDeviceSynchronize() == 0
    np.testing.assert_array_equal(target, expected)
    assert hip.hipMemset3D(PitchedPtr(target.ctypes.data, 4, 4, 7), 7, extent) == INVALID  # narrower than a row

    pitched = PitchedPtr()
    assert hip.hipMalloc3D(ctypes.byref(pitched), extent) == 0
    assert (pitched.pitch, pitched.xsize, pitched.ysize) == (256, 5, 3)
    wide = box(target, (0, 0, 0), target, (0, 0, 0), (2, 3, 5))
    wide.dst = pitched
    assert hip.hipMemcpy3D(ctypes.byref(wide)) == 0
    wide.extent[2] = 3  # a slice more than there is memory for
    assert hip.hipMemcpy3D(ctypes.byref(wide)) == INVALID
    assert hip.hipFree(ctypes.c_void_p(pitched.ptr)) == 0


class Extent(ctypes.Structure):
    _fields_ = [("of", ctypes.c_size_t * 3)]


LARGEST = 2**64 - 1


@pytest.mark.parametrize(
    ("extent", "status"),
    [
        ((LARGEST, 1, 1), INVALID),
        ((LARGEST - 255, 1, 1), INVALID),
        ((LARGEST, LARGEST, LARGEST), INVALID),
        ((1, LARGEST, 1), NO_MEMORY),
        ((1, LARGEST, 4), NO_MEMORY),
        ((1, 1, LARGEST), NO_MEMORY),
        ((1 << 50, 1, 1), NO_MEMORY),
    ],
)
def test_rows_that_no_memory_has(hip, extent, status):
    pitched = PitchedPtr(8, 7, 6, 5)
    assert hip.hipMalloc3D(ctypes.byref(pitched), Extent(extent)) == status
    assert (pitched.ptr, pitched.pitch, pitched.xsize, pitched.ysize) == (8, 7, 6, 5)
    if extent[2] == 1:
        pointer, pitch = ctypes.c_void_p(8), ctypes.c_size_t(7)
        width, height = (ctypes.c_size_t(size) for size in extent[:2])
        assert hip.hipMallocPitch(ctypes.byref(pointer), ctypes.byref(pitch), width, height) == status
        assert (pointer.value, pitch.value) == (8, 7)


@pytest.mark.parametrize("extent", [(0, 1, 1), (5, 0, 1), (5, 3, 0)])
def test_rows_of_nothing(hip, extent):
    pitched = PitchedPtr(8, 7, 6, 5)
    assert hip.hipMalloc3D(ctypes.byref(pitched), Extent(extent)) == 0
    assert (pitched.ptr, pitched.pitch, pitched.xsize, pitched.ysize) == (None, 0, *extent[:2])


def test_what_a_copy_of_a_box_refuses(hip):
    source, target = np.zeros((4, 6, 16), np.uint8), np.zeros((4, 6, 16), np.uint8)
    inside = ((0, 0, 0), source, (0, 0, 0))

    def status(extent, *, change=lambda params: None, at=inside):
        params = box(target, *at, extent)
        change(params)
        return hip.hipMemcpy3D(ctypes.byref(params))

    assert status((4, 6, 16)) == status((0, 6, 16)) == status((4, 0, 16)) == status((4, 6, 0)) == 0
    assert status((1, 1, 17)) == INVALID_PITCH
    assert status((1, 1, 16), at=((0, 0, 1), source, (0, 0, 0))) == INVALID
    assert status((2, 6, 16), at=((0, 1, 0), source, (0, 0, 0))) == INVALID
    assert status((1, 1, 1), change=lambda params: setattr(params, "kind", 77)) == 21
    assert status((1, 1, 1), change=lambda params: setattr(params.src, "ptr", None)) == INVALID
    assert status((1, 1, 1), change=lambda params: setattr(params, "dst_array", 8)) == 801
    assert hip.hipMemcpy3D(None) == INVALID
    stream = hip.created("hipStreamCreate")
    assert hip.hipStreamDestroy(stream) == 0
    assert hip.hipMemcpy3DAsync(ctypes.byref(box(target, *inside, (1, 1, 1))), stream) == DESTROYED
