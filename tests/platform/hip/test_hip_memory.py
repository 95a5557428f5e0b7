# SPDX-License-Identifier: MIT
"""Memory, copies and fills through hip-python."""

import ctypes
import threading
import time
from pathlib import Path

import host_platform
import numpy as np
import pytest
from host_platform import error, ok

ABSURD = (2**40, 2**62, 2**64 - 1)


def address(pointer):
    return int(pointer.as_c_void_p().value) if hasattr(pointer, "as_c_void_p") else int(pointer)


def test_device_memory(hip):
    pointer = ok(hip.hipMalloc(1000))
    assert address(pointer) % 256 == 0
    attributes = ok(hip.hipPointerGetAttributes(pointer))
    assert (attributes.type, attributes.device, attributes.isManaged) == (2, 0, 0)
    base, size = ok(hip.hipMemGetAddressRange(address(pointer) + 999))
    assert (address(base), size) == (address(pointer), 1000)
    assert error(hip.hipFree(address(pointer) + 8)) == "hipErrorInvalidValue"
    ok(hip.hipFree(pointer))
    assert error(hip.hipFree(address(pointer))) == "hipErrorInvalidValue"
    assert error(hip.hipMemGetAddressRange(address(pointer))) == "hipErrorNotFound"
    ok(hip.hipFree(None))


def test_sizes_that_are_nothing_or_absurd(hip):
    assert ok(hip.hipMalloc(0)) is None
    assert ok(hip.hipHostMalloc(0, 0)) is None
    free, total = ok(hip.hipMemGetInfo())
    assert 0 < free <= total
    for size in (*ABSURD, total + 1):
        assert error(hip.hipMalloc(size)) == "hipErrorOutOfMemory", size
        assert error(hip.hipHostMalloc(size, 0)) == "hipErrorOutOfMemory", size
        assert error(hip.hipMallocManaged(size, 1)) == "hipErrorOutOfMemory", size
        assert error(hip.hipMallocAsync(size, None)) == "hipErrorOutOfMemory", size
    assert ok(hip.hipMemGetInfo())[1] == total


def test_memory_is_promised_once(hip):
    total = ok(hip.hipMemGetInfo())[1]
    held = [ok(hip.hipMalloc(total // 4)) for _ in range(3)]
    assert error(hip.hipMalloc(total // 2)) == "hipErrorOutOfMemory"
    for pointer in held:
        ok(hip.hipFree(pointer))
    ok(hip.hipFree(ok(hip.hipMalloc(total // 2))))


def test_host_and_managed_memory(hip):
    pinned = ok(hip.hipHostMalloc(64, 2))
    assert ok(hip.hipHostGetFlags(pinned)) == 2
    assert address(ok(hip.hipHostGetDevicePointer(pinned, 0))) == address(pinned)
    assert ok(hip.hipPointerGetAttributes(pinned)).type == 1
    assert error(hip.hipHostMalloc(64, 0x40000000 | 0x80000000)) == "hipErrorInvalidValue"
    managed = ok(hip.hipMallocManaged(64, 1))
    attributes = ok(hip.hipPointerGetAttributes(managed))
    assert (attributes.type, attributes.isManaged) == (3, 1)
    assert error(hip.hipMallocManaged(0, 1)) == error(hip.hipMallocManaged(64, 8)) == "hipErrorInvalidValue"
    advice = hip.hipMemoryAdvise.hipMemAdviseSetReadMostly
    ok(hip.hipMemAdvise(managed, 64, advice, 0))
    ok(hip.hipMemPrefetchAsync(managed, 64, -1, None))
    assert error(hip.hipMemPrefetchAsync(managed, 64, 99, None)) == "hipErrorInvalidDevice"
    assert error(hip.hipMemPrefetchAsync(pinned, 64, 0, None)) == "hipErrorInvalidValue"
    assert error(hip.hipMemAdvise(managed, 65, advice, 0)) == "hipErrorInvalidValue"
    ok(hip.hipFree(managed))
    ok(hip.hipHostFree(pinned))
    assert error(hip.hipHostFree(address(pinned))) == "hipErrorInvalidValue"


def test_host_free_frees_all_memory(hip):
    for pointer in (ok(hip.hipMalloc(64)), ok(hip.hipMallocManaged(64, 1)), ok(hip.hipHostMalloc(64, 0))):
        ok(hip.hipHostFree(pointer))
        assert error(hip.hipFree(address(pointer))) == "hipErrorInvalidValue"


def test_either_part_of_the_memory_may_be_asked_for(hip):
    total = ok(hip.hipMemGetInfo())[1]
    free, seen = ctypes.c_size_t(), ctypes.c_size_t()
    for pointers in ((None, None), (ctypes.byref(free), None), (None, ctypes.byref(seen))):
        assert error(hip.linked("hipMemGetInfo", *pointers)) == "hipSuccess"
    assert 0 < free.value <= seen.value == total


@pytest.mark.parametrize(
    ("flags", "status"),
    [*((flags, "hipSuccess") for flags in (0, 1, 2, 3, 4, 8, 0x80000000)), (0x10, "hipErrorInvalidValue")],
)
def test_flags_of_registered_memory(hip, flags, status):
    array = np.arange(64, dtype=np.int64)
    assert error(hip.hipHostRegister(array, array.nbytes, flags)) == status
    if status == "hipSuccess":
        assert error(hip.hipHostGetFlags(array)) == "hipErrorInvalidValue"  # only memory of hipHostMalloc has them
        ok(hip.hipHostUnregister(array))


def test_registered_memory(hip):
    array = np.arange(64, dtype=np.int64)
    assert ok(hip.hipPointerGetAttributes(array)).type == 0
    assert ok(hip.hipPointerGetAttributes(array)).device == -2
    assert error(hip.hipHostGetFlags(array)) == "hipErrorInvalidValue"
    assert error(hip.hipHostUnregister(array)) == "hipErrorHostMemoryNotRegistered"
    ok(hip.hipHostRegister(array, array.nbytes, 1))
    assert error(hip.hipHostRegister(array[8:], 8, 0)) == "hipErrorHostMemoryAlreadyRegistered"
    attributes = ok(hip.hipPointerGetAttributes(array))
    assert (attributes.type, attributes.allocationFlags) == (1, 1)
    assert error(hip.hipFree(array)) == "hipErrorInvalidValue"
    assert error(hip.hipHostUnregister(array[1:])) == "hipErrorHostMemoryNotRegistered"
    ok(hip.hipHostUnregister(array))
    assert error(hip.hipHostRegister(array, 0, 0)) == "hipErrorInvalidValue"


def test_memory_in_stream_order(hip):
    stream = ok(hip.hipStreamCreate())
    pointer = ok(hip.hipMallocAsync(256, stream))
    ok(hip.hipMemsetAsync(pointer, 1, 256, stream))
    ok(hip.hipFreeAsync(pointer, stream))
    assert error(hip.hipFreeAsync(address(pointer), stream)) == "hipErrorInvalidValue"
    assert error(hip.hipFreeAsync(None, stream)) == "hipErrorInvalidValue"
    ok(hip.hipStreamSynchronize(stream))
    ok(hip.hipStreamDestroy(stream))
    assert error(hip.hipMallocAsync(256, int(stream))) == "hipErrorContextIsDestroyed"


def test_memory_of_a_stream_belongs_to_its_device(hip):
    device = ok(hip.hipGetDeviceCount()) - 1
    ok(hip.hipSetDevice(device))
    stream = ok(hip.hipStreamCreateWithFlags(1))
    ok(hip.hipSetDevice(0))
    pointer = ok(hip.hipMallocAsync(64, stream))
    ok(hip.hipStreamBeginCapture(stream, hip.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal))
    captured = ok(hip.hipMallocAsync(64, stream))
    graph = ok(hip.hipStreamEndCapture(stream))
    assert [ok(hip.hipPointerGetAttributes(each)).device for each in (pointer, captured)] == [device, device]
    ok(hip.hipGraphDestroy(graph))
    # hipFree waits for the work of that device, and a reset of it frees the memory, whichever device is current.
    order = []
    slow = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: (time.sleep(0.05), order.append("done")))
    library = ctypes.CDLL(str(host_platform.folder() / "lib" / "libamdhip64.so"))
    assert library.hipLaunchHostFunc(ctypes.c_void_p(int(stream)), slow, None) == 0
    assert library.hipFree(ctypes.c_void_p(address(pointer))) == 0
    assert order == ["done"]
    pointer = ok(hip.hipMallocAsync(64, stream))
    ok(hip.hipSetDevice(device))
    ok(hip.hipDeviceReset())
    assert error(hip.hipFree(address(pointer))) == "hipErrorInvalidValue"


def test_what_a_reset_has_freed_is_not_freed_again(hip):
    """A free that waits in a stream is of that allocation, and not of a later one at the same address."""
    leave, size = threading.Event(), 4 << 20
    wait = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: leave.wait(60) and None)
    library = ctypes.CDLL(str(host_platform.folder() / "lib" / "libamdhip64.so"))
    stream = ok(hip.hipStreamCreateWithFlags(1))
    ok(hip.hipSetDevice(1))
    pointer = address(ok(hip.hipMalloc(size)))
    assert library.hipLaunchHostFunc(ctypes.c_void_p(int(stream)), wait, None) == 0
    try:
        ok(hip.hipFreeAsync(pointer, stream))
        ok(hip.hipDeviceReset())
        others = [address(ok(hip.hipMalloc(size))) for _ in range(4)]  # of which one has the address, as a rule
    finally:
        leave.set()
    ok(hip.hipStreamSynchronize(stream))
    for other in others:
        ok(hip.hipFree(other))
    ok(hip.hipStreamDestroy(stream))


@pytest.mark.skipif(not Path("/proc/thread-self/io").exists(), reason="the kernel counts no reads")
def test_asking_how_much_memory_is_free_reads_numbers_alone(hip):
    def bytes_read():
        return int(Path("/proc/thread-self/io").read_text().split()[1])

    ok(hip.hipMemGetInfo())
    before, between = bytes_read(), bytes_read()
    ok(hip.hipMemGetInfo())
    by_the_call = bytes_read() - between - (between - before)
    meminfo, mounts = (len(Path("/proc", name).read_bytes()) for name in ("meminfo", "self/mountinfo"))
    assert by_the_call < meminfo + mounts


def test_every_copy_copies(hip):
    kinds = hip.hipMemcpyKind
    stream = ok(hip.hipStreamCreate())
    source = np.random.default_rng(1).integers(0, 256, 1024, dtype=np.uint8)
    size = source.nbytes
    first, second = ok(hip.hipMalloc(size)), ok(hip.hipMalloc(size))
    copies = {
        "plain": lambda seen: [
            hip.hipMemcpy(first, source, size, kinds.hipMemcpyHostToDevice),
            hip.hipMemcpy(second, first, size, kinds.hipMemcpyDeviceToDevice),
            hip.hipMemcpy(seen, second, size, kinds.hipMemcpyDefault),
        ],
        "asynchronous": lambda seen: [
            hip.hipMemcpyAsync(first, source, size, kinds.hipMemcpyHostToDevice, stream),
            hip.hipMemcpyAsync(second, first, size, kinds.hipMemcpyDeviceToDevice, stream),
            hip.hipMemcpyWithStream(seen, second, size, kinds.hipMemcpyDeviceToHost, stream),
        ],
        "by direction": lambda seen: [
            hip.hipMemcpyHtoD(first, source, size),
            hip.hipMemcpyDtoD(second, first, size),
            hip.hipMemcpyDtoH(seen, second, size),
        ],
        "by direction, asynchronous": lambda seen: [
            hip.hipMemcpyHtoDAsync(first, source, size, stream),
            hip.hipMemcpyDtoDAsync(second, first, size, stream),
            hip.hipMemcpyDtoHAsync(seen, second, size, stream),
            hip.hipStreamSynchronize(stream),
        ],
        "between devices": lambda seen: [
            hip.hipMemcpyPeer(first, 0, source, 1, size),
            hip.hipMemcpyPeerAsync(seen, 1, first, 0, size, stream),
            hip.hipStreamSynchronize(stream),
        ],
        "in rows": lambda seen: [
            hip.hipMemcpy2D(first, 32, source, 32, 32, 32, kinds.hipMemcpyHostToDevice),
            hip.hipMemcpy2DAsync(seen, 32, first, 32, 32, 32, kinds.hipMemcpyDeviceToHost, stream),
            hip.hipStreamSynchronize(stream),
        ],
    }
    for name, copy in copies.items():
        ok(hip.hipMemset(first, 0, size))
        ok(hip.hipMemset(second, 0, size))
        seen = np.zeros_like(source)
        for result in copy(seen):
            ok(result)
        assert (seen == source).all(), name
    for pointer in (first, second):
        ok(hip.hipFree(pointer))
    ok(hip.hipStreamDestroy(stream))


def test_copies_that_cannot_be(hip):
    kinds = hip.hipMemcpyKind
    array, pointer = np.zeros(64, np.uint8), ok(hip.hipMalloc(64))
    to_device = kinds.hipMemcpyHostToDevice
    assert error(hip.hipMemcpy(pointer, None, 8, to_device)) == "hipErrorInvalidValue"
    assert error(hip.hipMemcpy(None, array, 8, to_device)) == "hipErrorInvalidValue"
    ok(hip.hipMemcpy(None, None, 0, to_device))
    assert error(hip.hipMemcpy(pointer, array, 65, to_device)) == "hipErrorInvalidValue"
    assert error(hip.hipMemcpy(address(pointer) + 60, array, 5, to_device)) == "hipErrorInvalidValue"
    assert error(hip.hipMemcpy(pointer, array, 2**64 - 1, to_device)) == "hipErrorInvalidValue"
    assert error(hip.hipMemcpyAsync(pointer, array, 8, to_device, 0x1234)) == "hipErrorContextIsDestroyed"
    assert error(hip.hipMemcpyPeer(pointer, 0, array, 99, 8)) == "hipErrorInvalidDevice"
    assert error(hip.hipMemcpy2D(pointer, 4, array, 8, 8, 2, to_device)) == "hipErrorInvalidPitchValue"
    assert error(hip.hipMemcpy2D(pointer, 8, array, 4, 8, 2, to_device)) == "hipErrorInvalidPitchValue"
    assert error(hip.hipMemcpy2D(pointer, 16, array, 8, 8, 5, to_device)) == "hipErrorInvalidValue"
    assert error(hip.hipMemcpy2D(pointer, 2**62, array, 8, 8, 9, to_device)) == "hipErrorInvalidValue"
    ok(hip.hipMemcpy2D(pointer, 16, array, 8, 8, 4, to_device))
    ok(hip.hipMemcpy2D(pointer, 4, array, 4, 0, 5, to_device))
    ok(hip.hipFree(pointer))


def test_rows_with_gaps(hip):
    kinds = hip.hipMemcpyKind
    source = np.arange(40, dtype=np.uint8).reshape(4, 10)
    seen = np.full((4, 16), 255, np.uint8)
    ok(hip.hipMemcpy2D(seen, 16, source, 10, 7, 4, kinds.hipMemcpyHostToHost))
    assert (seen[:, :7] == source[:, :7]).all()
    assert (seen[:, 7:] == 255).all()


def test_every_fill_fills(hip):
    stream = ok(hip.hipStreamCreate())
    pointer, seen = ok(hip.hipMalloc(64)), np.zeros(64, np.uint8)
    fills = {
        "hipMemset": (lambda: hip.hipMemset(pointer, 0x1AB, 64), np.uint8, 0xAB),
        "hipMemsetAsync": (lambda: hip.hipMemsetAsync(pointer, 3, 64, stream), np.uint8, 3),
        "hipMemsetD8": (lambda: hip.hipMemsetD8(pointer, 200, 64), np.uint8, 200),
        "hipMemsetD8Async": (lambda: hip.hipMemsetD8Async(pointer, 201, 64, stream), np.uint8, 201),
        "hipMemsetD16": (lambda: hip.hipMemsetD16(pointer, 54321, 32), np.uint16, 54321),
        "hipMemsetD16Async": (lambda: hip.hipMemsetD16Async(pointer, 12345, 32, stream), np.uint16, 12345),
        "hipMemsetD32": (lambda: hip.hipMemsetD32(pointer, -123456789, 16), np.int32, -123456789),
        "hipMemsetD32Async": (lambda: hip.hipMemsetD32Async(pointer, 987654321, 16, stream), np.int32, 987654321),
        "hipMemset2D": (lambda: hip.hipMemset2D(pointer, 16, 9, 16, 4), np.uint8, 9),
        "hipMemset2DAsync": (lambda: hip.hipMemset2DAsync(pointer, 16, 10, 16, 4, stream), np.uint8, 10),
    }
    for name, (fill, dtype, value) in fills.items():
        ok(fill())
        ok(hip.hipStreamSynchronize(stream))
        ok(hip.hipMemcpyDtoH(seen, pointer, 64))
        assert (seen.view(dtype) == value).all(), name
    ok(hip.hipMemset(pointer, 0, 64))
    ok(hip.hipMemset2D(pointer, 16, 255, 10, 4))
    ok(hip.hipMemcpyDtoH(seen, pointer, 64))
    rows = seen.reshape(4, 16)
    assert (rows[:, :10] == 255).all()
    assert (rows[:, 10:] == 0).all()
    assert error(hip.hipMemset(pointer, 0, 65)) == error(hip.hipMemset(None, 0, 1)) == "hipErrorInvalidValue"
    assert error(hip.hipMemset2D(pointer, 4, 0, 8, 1)) == "hipErrorInvalidValue"
    assert error(hip.hipMemsetD32(address(pointer) + 1, 0, 1)) == "hipErrorInvalidValue"
    assert error(hip.hipMemsetD32(pointer, 0, 2**62)) == "hipErrorInvalidValue"
    ok(hip.hipMemset(None, 0, 0))
    ok(hip.hipFree(pointer))
    ok(hip.hipStreamDestroy(stream))


def test_foreign_host_memory_when_staging():
    code = """
    array, kinds = np.zeros(64, np.uint8), hip.hipMemcpyKind
    other = np.ones(64, np.uint8)
    pageable = hip.hipDeviceAttribute_t.hipDeviceAttributePageableMemoryAccess
    pointer = ok(hip.hipMalloc(64))
    answer = {
        "pageable": ok(hip.hipDeviceGetAttribute(pageable, 0)),
        "fill": error(hip.hipMemset(array, 0, 64)),
        "claimed": error(hip.hipMemcpy(array, other, 64, kinds.hipMemcpyHostToDevice)),
        "host": error(hip.hipMemcpy(array, other, 64, kinds.hipMemcpyHostToHost)),
        "real": error(hip.hipMemcpy(pointer, other, 64, kinds.hipMemcpyHostToDevice)),
    }
    """
    wanted = {
        "pageable": 0,
        "fill": "hipErrorInvalidValue",
        "claimed": "hipErrorInvalidValue",
        "host": "hipSuccess",
        "real": "hipSuccess",
    }
    assert host_platform.run(code, ROCPY_HOST_STAGING="1") == wanted
    assert set(host_platform.run(code).values()) == {1, "hipSuccess"}
