# SPDX-License-Identifier: MIT
"""Launches that AMD's runtime refuses are refused with its statuses, by each call that launches."""

import contextlib
import ctypes
import threading

import numpy as np
import pytest
from amdgpu_code import compiled
from host_hip import Hip

INVALID, INVALID_CONFIGURATION, INVALID_HANDLE, OUT_OF_RESOURCES, LAUNCH_FAILURE, TOO_LARGE = 1, 9, 400, 701, 719, 720
MAX_SHARED, MAX_GRID_Y, MAX_GRID_Z = 74, 30, 31  # of hipDeviceAttribute_t
BOUND = 256
KERNELS = f"""
extern "C" __attribute__((device)) int factor = 3;
extern "C" __attribute__((global)) void put(unsigned *out, unsigned value) {{ out[0] = value; }}
extern "C" __attribute__((global)) void multiply(unsigned *out) {{ out[0] *= factor; }}
extern "C" __attribute__((global)) void nothing() {{}}
extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, {BOUND}))) void bounded() {{}}
"""


class Dim3(ctypes.Structure):
    _fields_ = [("of", ctypes.c_uint32 * 3)]


class Wrapper(ctypes.Structure):
    _fields_ = [
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("image", ctypes.c_char_p),
        ("unused", ctypes.c_void_p),
    ]


class FunctionLaunch(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_void_p),
        ("shape", ctypes.c_uint * 7),
        ("stream", ctypes.c_void_p),
        ("params", ctypes.c_void_p),
    ]


class Code:
    """The kernels as a module and as what hipcc's programs register."""

    def __init__(self, hip):
        self.hip, self.image = hip, compiled(KERNELS, "gfx942")
        self.module = hip.created("hipModuleLoadData", self.image)
        register = getattr(hip, "__hipRegisterFatBinary")
        register.restype = ctypes.c_void_p
        self.wrapper = Wrapper(0x48495046, 1, self.image, None)
        self.binary = ctypes.c_void_p(register(ctypes.byref(self.wrapper)))
        self.symbols = {name: ctypes.create_string_buffer(1) for name in (b"put", b"multiply", b"nothing", b"bounded")}
        for name, symbol in self.symbols.items():
            getattr(hip, "__hipRegisterFunction")(self.binary, symbol, name, name, -1, *[None] * 5)
        self.variable = ctypes.create_string_buffer(4)
        getattr(hip, "__hipRegisterVar")(self.binary, self.variable, b"factor", b"factor", 0, ctypes.c_size_t(4), 0, 0)

    def close(self):
        getattr(self.hip, "__hipUnregisterFatBinary")(self.binary)
        assert self.hip.hipModuleUnload(self.module) == 0

    def function(self, name):
        return self.hip.created("hipModuleGetFunction", self.module, name)


@pytest.fixture(scope="module")
def code():
    hip = Hip()
    made = Code(hip)
    yield made
    made.close()
    hip.hipGetLastError()


def by_module(code, name, grid, block, shared, stream, params=None, extra=None):
    shape = [ctypes.c_uint(one) for one in (*grid, *block, shared)]
    return code.hip.hipModuleLaunchKernel(code.function(name), *shape, stream, params, extra)


def by_threads(code, name, grid, block, shared, stream, params=None, extra=None):
    threads = [blocks * threads for blocks, threads in zip(grid, block, strict=True)] if all(block) else grid
    shape = [ctypes.c_uint(one) for one in (*threads, *block)]
    none = ctypes.c_void_p()
    return code.hip.hipExtModuleLaunchKernel(
        code.function(name), *shape, ctypes.c_size_t(shared), stream, params, extra, none, none, 0
    )


def cooperatively(code, name, grid, block, shared, stream, params=None):
    shape = [ctypes.c_uint(one) for one in (*grid, *block, shared)]
    return code.hip.hipModuleLaunchCooperativeKernel(code.function(name), *shape, stream, params)


def dim3(values):
    return Dim3((ctypes.c_uint32 * 3)(*values))


def by_symbol(code, name, grid, block, shared, stream, params=None):
    size = ctypes.c_size_t(shared)
    return code.hip.hipLaunchKernel(code.symbols[name], dim3(grid), dim3(block), params, size, stream)


def cooperatively_by_symbol(code, name, grid, block, shared, stream, params=None):
    size = ctypes.c_uint(shared)
    return code.hip.hipLaunchCooperativeKernel(code.symbols[name], dim3(grid), dim3(block), params, size, stream)


def on_several(code, name, grid, block, shared, stream, params=None):
    created = code.hip.created("hipStreamCreate") if stream is None else None
    part = FunctionLaunch(code.function(name).value, (*grid, *block, shared), (created or stream).value, params)
    status = code.hip.hipModuleLaunchCooperativeKernelMultiDevice(ctypes.byref(part), 1, 0)
    if created is not None:
        assert code.hip.hipStreamDestroy(created) == 0
    return status


# The statuses for an empty grid, an empty or too large block, and too much shared memory: HIP's test
# hipLaunchErrorCodeMatrix.
LAUNCHES = {
    by_module: (INVALID, INVALID, INVALID),
    by_threads: (INVALID, INVALID_CONFIGURATION, INVALID),
    cooperatively: (INVALID, INVALID, INVALID),
    by_symbol: (INVALID_CONFIGURATION, INVALID_CONFIGURATION, INVALID),
    cooperatively_by_symbol: (INVALID_CONFIGURATION, INVALID_CONFIGURATION, TOO_LARGE),
    on_several: (INVALID_CONFIGURATION, INVALID_CONFIGURATION, INVALID),
}
LAUNCH = pytest.mark.parametrize("launch", LAUNCHES, ids=lambda launch: launch.__name__)


def attribute(hip, number):
    value = ctypes.c_int()
    assert hip.hipDeviceGetAttribute(ctypes.byref(value), number, 0) == 0
    return value.value


@LAUNCH
def test_shapes_that_cannot_be(code, launch):
    of_grid, of_block, of_shared = LAUNCHES[launch]
    one, most = (1, 1, 1), attribute(code.hip, MAX_SHARED)
    assert launch(code, b"nothing", one, (1024, 1, 1), most, None) == 0
    for grid in ((0, 1, 1), (1, 0, 1), (1, 1, 0)):
        assert launch(code, b"nothing", grid, one, 0, None) == of_grid, grid
    for block in (
        (0, 1, 1),
        (1, 0, 1),
        (1, 1, 0),
        (1025, 1, 1),
        (1, 1025, 1),
        (1, 1, 1025),
        (11, 11, 11),
        (1 << 16, 1 << 16, 1),
    ):
        assert launch(code, b"nothing", one, block, 0, None) == of_block, block
    for shared in (most + 1, 160 << 10, 1 << 30):
        assert launch(code, b"nothing", one, one, shared, None) == of_shared, shared
    assert code.hip.hipDeviceSynchronize() == 0


@pytest.mark.parametrize("launch", [by_threads, by_symbol], ids=lambda launch: launch.__name__)
def test_shared_memory_beyond_32_bits(code, launch):
    assert launch(code, b"nothing", (1, 1, 1), (1, 1, 1), 1 << 32, None) == INVALID


@pytest.mark.parametrize("launch", [by_module, by_symbol], ids=lambda launch: launch.__name__)
def test_grids_beyond_the_maximum_that_is_reported(code, launch):
    y, z = (attribute(code.hip, number) + 1 for number in (MAX_GRID_Y, MAX_GRID_Z))
    assert y == z == 65537
    for grid in ((1, y, 1), (1, 1, z), (1 << 31, 1, 1)):
        assert launch(code, b"nothing", grid, (1, 1, 1), 0, None) == LAUNCHES[launch][0]
    threads_of_32_bits = (1 << 30, 1, 1)
    assert launch(code, b"nothing", threads_of_32_bits, (64, 1, 1), 0, None) == LAUNCHES[launch][0]


@LAUNCH
def test_a_launch_bound_holds(code, launch):
    assert launch(code, b"bounded", (1, 1, 1), (BOUND, 1, 1), 0, None) == 0
    for block in ((BOUND + 1, 1, 1), (BOUND, 2, 1), (1, 1, 1024)):
        assert launch(code, b"bounded", (1, 1, 1), block, 0, None) == LAUNCH_FAILURE
    assert code.hip.hipDeviceSynchronize() == 0
    most = ctypes.c_int()
    for name, threads in ((b"bounded", BOUND), (b"nothing", 1024)):
        assert code.hip.hipFuncGetAttribute(ctypes.byref(most), 0, code.function(name)) == 0
        assert most.value == threads


@LAUNCH
def test_the_stream_is_of_the_current_device(code, launch):
    hip = code.hip
    assert hip.hipSetDevice(1) == 0
    stream = hip.created("hipStreamCreate")
    assert hip.hipSetDevice(0) == 0
    assert launch(code, b"nothing", (1, 1, 1), (64, 1, 1), 0, stream) == INVALID_HANDLE
    if launch is not on_several:
        # What is captured becomes a node, wherever.
        graph = ctypes.c_void_p()
        assert hip.hipStreamBeginCapture(stream, 0) == 0
        assert launch(code, b"nothing", (1, 1, 1), (64, 1, 1), 0, stream) == 0
        assert hip.hipStreamEndCapture(stream, ctypes.byref(graph)) == hip.hipGraphDestroy(graph) == 0
        assert hip.hipSetDevice(1) == 0
        assert launch(code, b"nothing", (1, 1, 1), (64, 1, 1), 0, stream) == 0
        assert hip.hipStreamSynchronize(stream) == hip.hipSetDevice(0) == 0
    assert hip.hipStreamDestroy(stream) == 0


def test_launches_on_several_devices_have_one_shape_and_their_order(code):
    hip, parts = code.hip, (FunctionLaunch * 2)()
    launch = hip.hipModuleLaunchCooperativeKernelMultiDevice
    for device, part in enumerate(parts):
        assert hip.hipSetDevice(device) == 0
        part.function, part.stream = code.function(b"nothing").value, hip.created("hipStreamCreate").value
        part.shape[:] = (1, 1, 1, 64, 1, 1, 0)
    assert hip.hipSetDevice(0) == 0
    assert launch(parts, 2, 0) == 0
    for axis in range(7):
        parts[1].shape[axis] += 1
        assert launch(parts, 2, 0) == INVALID, axis
        parts[1].shape[axis] -= 1
    parts[0].stream, parts[1].stream = parts[1].stream, parts[0].stream
    assert launch(parts, 2, 0) == INVALID_HANDLE
    for part in parts:
        assert hip.hipStreamDestroy(ctypes.c_void_p(part.stream)) == 0


@pytest.mark.parametrize("launch", [by_module, by_threads], ids=lambda launch: launch.__name__)
def test_arguments_as_bytes_have_one_form(code, launch):
    out = np.zeros(1, np.uint32)
    pointer, value = ctypes.c_void_p(out.ctypes.data), ctypes.c_uint(1)
    params = (ctypes.c_void_p * 2)(ctypes.addressof(pointer), ctypes.addressof(value))

    def status(extra, name=b"put", params=None):
        return launch(code, name, (1, 1, 1), (1, 1, 1), 0, None, params, extra and (ctypes.c_void_p * 5)(*extra))

    packed = (ctypes.c_uint64 * 1024)(out.ctypes.data, 2)
    at, size, more, none = (ctypes.addressof(packed), *(ctypes.c_size_t(n) for n in (12, 4096, 0)))
    good = (1, at, 2, ctypes.addressof(size), 3)
    assert status(None, params=params) == status(None, name=b"nothing") == 0
    assert code.hip.hipDeviceSynchronize() == 0
    assert out[0] == 1
    assert status(good) == 0
    assert code.hip.hipDeviceSynchronize() == 0
    assert out[0] == 2
    packed[1] = 3
    assert status((1, at, 2, ctypes.addressof(more), 3)) == 0  # what is beyond the arguments is not read
    assert code.hip.hipDeviceSynchronize() == 0
    assert out[0] == 3
    packed[1] = 4
    assert status(good, params=params) == status(None) == INVALID
    assert status((2, ctypes.addressof(size), 1, at, 3)) == INVALID
    assert status((3, None, None, None, None)) == status((1, at, 2, ctypes.addressof(size), 2)) == INVALID
    assert status((1, None, 2, ctypes.addressof(size), 3)) == status((1, at, 2, ctypes.addressof(none), 3)) == INVALID
    assert status((1, at, 2, ctypes.addressof(size), 3), name=b"nothing") == OUT_OF_RESOURCES
    assert status((1, None, 2, ctypes.addressof(none), 3), name=b"nothing") == 0
    assert code.hip.hipDeviceSynchronize() == 0
    assert out[0] == 3


def test_a_kernel_of_a_module_has_one_handle(code):
    hip, module = code.hip, code.hip.created("hipModuleLoadData", code.image)
    handles = [hip.created("hipModuleGetFunction", module, b"nothing").value for _ in range(1000)]
    other = hip.created("hipModuleGetFunction", module, b"put")
    assert len({*handles, other.value, code.function(b"nothing").value}) == 3
    assert hip.hipModuleGetFunction(ctypes.byref(other), module, b"") == INVALID
    assert hip.hipModuleGetGlobal(ctypes.byref(other), None, module, b"") == INVALID
    assert hip.hipModuleUnload(module) == 0
    stale = ctypes.c_void_p(handles[0])
    assert hip.hipFuncGetAttribute(ctypes.byref(ctypes.c_int()), 0, stale) == INVALID_HANDLE


def test_attributes_of_kernels_that_can_be_set(code):
    hip, no_function = code.hip, 98
    most = attribute(hip, MAX_SHARED)
    for kernel in (code.symbols[b"nothing"], code.function(b"nothing")):
        for number, value in ((8, 0), (8, most), (9, -1), (9, 100), (0, 5), (10, 5)):
            assert hip.hipFuncSetAttribute(kernel, number, value) == 0
        for number, value in ((8, -1), (8, most + 1), (9, -2), (9, 101), (-1, 0), (11, 0)):
            assert hip.hipFuncSetAttribute(kernel, number, value) == INVALID
    assert hip.hipFuncSetAttribute(None, 8, 0) == hip.hipFuncSetAttribute(ctypes.c_void_p(8), 8, 0) == no_function


@pytest.mark.parametrize("is_async", [False, True])
def test_the_kinds_of_copies_of_variables(code, is_async):
    value, four, none = ctypes.c_int(7), ctypes.c_size_t(4), ctypes.c_size_t(0)
    stream, name = ((None,), "Async") if is_async else ((), "")
    to, back = (getattr(code.hip, f"hipMemcpy{way}Symbol{name}") for way in ("To", "From"))
    host_to_host, to_device, to_host, between, default, without_units, direction = 0, 1, 2, 3, 4, 1024, 21
    for kind in (to_device, between, without_units):
        assert to(code.variable, ctypes.byref(value), four, none, kind, *stream) == 0
    for kind in (host_to_host, to_host, default):
        assert to(code.variable, ctypes.byref(value), four, none, kind, *stream) == direction
    for kind in (to_host, between, without_units):
        assert back(ctypes.byref(value), code.variable, four, none, kind, *stream) == 0
    for kind in (host_to_host, to_device, default):
        assert back(ctypes.byref(value), code.variable, four, none, kind, *stream) == direction
    assert code.hip.hipDeviceSynchronize() == 0
    assert value.value == 7


class Attributes(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("pointers", ctypes.c_void_p * 2),
        ("flags", ctypes.c_int * 2),
    ]


def owner_of(hip, address):
    """The kind of memory and its device, as hipPointerGetAttributes has them."""
    attributes = Attributes()
    assert hip.hipPointerGetAttributes(ctypes.byref(attributes), address) == 0
    return attributes.type, attributes.device


DEVICE_MEMORY, UNREGISTERED = 2, 0


def variable_of(hip, module):
    address, size = ctypes.c_void_p(), ctypes.c_size_t()
    assert hip.hipModuleGetGlobal(ctypes.byref(address), ctypes.byref(size), module, b"factor") == 0
    assert size.value == 4
    return address


def test_variables_are_device_memory_of_their_size(code):
    hip, many, size = code.hip, (ctypes.c_int * 16)(), ctypes.c_size_t
    variable = variable_of(hip, code.module)
    assert owner_of(hip, variable) == (DEVICE_MEMORY, 0)
    base, length = ctypes.c_void_p(), size()
    assert hip.hipMemGetAddressRange(ctypes.byref(base), ctypes.byref(length), variable) == 0
    assert (base.value, length.value) == (variable.value, 4)
    assert hip.hipMemcpyHtoD(variable, many, size(64)) == INVALID
    assert hip.hipMemset(variable, 0, size(8)) == INVALID
    assert hip.hipFree(variable) == INVALID


def test_a_registered_variable_is_one_for_each_device(code):
    hip, four, none = code.hip, ctypes.c_size_t(4), ctypes.c_size_t(0)
    addresses, values, two = [], [], ctypes.c_int(2)
    for device in (0, 1):
        assert hip.hipSetDevice(device) == 0
        address = ctypes.c_void_p()
        assert hip.hipGetSymbolAddress(ctypes.byref(address), code.variable) == 0
        assert owner_of(hip, address) == (DEVICE_MEMORY, device)
        addresses.append(address.value)
    assert hip.hipMemcpyToSymbol(code.variable, ctypes.byref(two), four, none, 1) == 0  # of device 1
    for device in (0, 1):
        value = ctypes.c_int()
        assert hip.hipSetDevice(device) == 0
        assert hip.hipMemcpyFromSymbol(ctypes.byref(value), code.variable, four, none, 2) == 0
        values.append(value.value)
    assert hip.hipSetDevice(0) == 0
    assert addresses[0] != addresses[1]
    assert values[0] != 2
    assert values[1] == 2


@pytest.mark.parametrize("launch", [by_symbol, cooperatively_by_symbol], ids=lambda launch: launch.__name__)
def test_a_captured_kernel_is_of_the_device_of_its_stream(code, launch):
    hip, factor, four, none = code.hip, ctypes.c_int(5), ctypes.c_size_t(4), ctypes.c_size_t(0)
    out, graph = np.ones(1, np.uint32), ctypes.c_void_p()
    pointer = ctypes.c_void_p(out.ctypes.data)
    assert hip.hipSetDevice(1) == 0
    assert hip.hipMemcpyToSymbol(code.variable, ctypes.byref(factor), four, none, 1) == 0
    stream = hip.created("hipStreamCreateWithFlags", 1)
    assert hip.hipSetDevice(0) == 0
    assert hip.hipStreamBeginCapture(stream, 0) == 0
    params = (ctypes.c_void_p * 1)(ctypes.addressof(pointer))
    assert launch(code, b"multiply", (1, 1, 1), (1, 1, 1), 0, stream, params) == 0
    assert hip.hipStreamEndCapture(stream, ctypes.byref(graph)) == 0
    ready = hip.ready(graph)
    assert hip.hipGraphLaunch(ready, stream) == hip.hipStreamSynchronize(stream) == 0
    assert out[0] == 5
    hip.destroy(graphs=[graph], execs=[ready])
    assert hip.hipStreamDestroy(stream) == 0


@contextlib.contextmanager
def waiting_stream(hip):
    """A stream that goes on when the event is set."""
    leave = threading.Event()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: leave.wait(60) and None)
    stream = hip.created("hipStreamCreateWithFlags", 1)
    assert hip.hipLaunchHostFunc(stream, function, None) == 0
    try:
        yield stream, leave
    finally:
        leave.set()
        assert hip.hipStreamSynchronize(stream) == hip.hipStreamDestroy(stream) == 0


@pytest.mark.parametrize("way", ["module", "rows", "to symbol", "from symbol"])
def test_copies_between_variables_and_the_host_are_complete_on_return(code, way):
    hip, host, four, none = code.hip, ctypes.c_int(5), ctypes.c_size_t(4), ctypes.c_size_t(0)
    at, variable = ctypes.byref(host), variable_of(hip, code.module)
    calls = {
        "module": lambda stream: hip.hipMemcpyHtoDAsync(variable, at, four, stream),
        "rows": lambda stream: hip.hipMemcpy2DAsync(variable, four, at, four, four, ctypes.c_size_t(1), 1, stream),
        "to symbol": lambda stream: hip.hipMemcpyToSymbolAsync(code.variable, at, four, none, 1, stream),
        "from symbol": lambda stream: hip.hipMemcpyFromSymbolAsync(at, code.variable, four, none, 2, stream),
    }
    with waiting_stream(hip) as (stream, leave):
        threading.Timer(0.01, leave.set).start()
        assert calls[way](stream) == 0
        assert hip.hipStreamQuery(stream) == 0


def test_variables_stay_for_what_is_queued_when_their_module_is_unloaded(code):
    hip = code.hip
    module, source = hip.created("hipModuleLoadData", code.image), hip.created("hipMalloc", ctypes.c_size_t(4))
    variable = variable_of(hip, module)
    with waiting_stream(hip) as (stream, leave):
        assert hip.hipMemcpyDtoDAsync(variable, source, ctypes.c_size_t(4), stream) == 0
        assert hip.hipModuleUnload(module) == 0
        assert owner_of(hip, variable) == (DEVICE_MEMORY, 0)
        leave.set()
        assert hip.hipStreamSynchronize(stream) == 0
        assert owner_of(hip, variable)[0] == UNREGISTERED
    assert hip.hipFree(source) == 0
