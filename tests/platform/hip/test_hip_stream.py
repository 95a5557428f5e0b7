# SPDX-License-Identifier: MIT
"""Streams, events, host functions and modules through hip-python."""

import ctypes
import threading

import host_platform
import numpy as np
from host_platform import error, ok

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)


def pointer_to(function):
    """What hip-python takes for a function: the object itself would be read as a buffer."""
    return ctypes.cast(function, ctypes.c_void_p)


class Gate:
    """A host function that waits until it is let go."""

    def __init__(self):
        self.opened = threading.Event()
        self.function = HOST_FUNCTION(lambda _: self.opened.wait(60) and None)

    def close(self, hip, stream):
        ok(hip.hipLaunchHostFunc(stream, pointer_to(self.function), None))

    def open(self):
        self.opened.set()


def test_what_a_stream_says(hip):
    stream = ok(hip.hipStreamCreate())
    free = ok(hip.hipStreamCreateWithFlags(1))
    urgent = ok(hip.hipStreamCreateWithPriority(1, -5))
    assert [ok(hip.hipStreamGetFlags(s)) for s in (stream, free, urgent)] == [0, 1, 1]
    assert [ok(hip.hipStreamGetPriority(s)) for s in (stream, free, urgent)] == [0, 0, -1]
    assert len({ok(hip.hipStreamGetId(s)) for s in (None, stream, free, urgent)}) == 4
    ok(hip.hipSetDevice(1))
    elsewhere = ok(hip.hipStreamCreate())
    assert [ok(hip.hipStreamGetDevice(s)) for s in (stream, elsewhere, None)] == [0, 1, 1]
    assert ok(hip.hipStreamIsCapturing(stream)) == hip.hipStreamCaptureStatus.hipStreamCaptureStatusNone
    assert error(hip.hipStreamCreateWithFlags(2)) == "hipErrorInvalidValue"
    for s in (stream, free, urgent, elsewhere):
        ok(hip.hipStreamQuery(s))
        ok(hip.hipStreamDestroy(s))
        assert error(hip.hipStreamQuery(int(s))) == "hipErrorContextIsDestroyed"


def test_handles_that_are_none(hip):
    for handle in (3, 0x5300000000FFFFFF, 0x7FFF00000000, 2**64 - 1):
        assert error(hip.hipStreamSynchronize(handle)) == "hipErrorContextIsDestroyed", hex(handle)
        assert error(hip.hipStreamDestroy(handle)) == "hipErrorContextIsDestroyed", hex(handle)
        assert error(hip.hipEventQuery(handle)) == "hipErrorContextIsDestroyed", hex(handle)
    assert error(hip.hipStreamGetId(3)) == "hipErrorInvalidHandle"
    for built_in in (None, 1, 2):
        assert error(hip.hipStreamDestroy(built_in)) == "hipErrorInvalidHandle"
        ok(hip.hipStreamSynchronize(built_in))


def test_reading_before_synchronising_sees_old_data(hip):
    stream, gate = ok(hip.hipStreamCreate()), Gate()
    source, target = np.full(16, 7, np.int32), np.zeros(16, np.int32)
    gate.close(hip, stream)
    ok(hip.hipMemcpyAsync(target, source, 64, hip.hipMemcpyKind.hipMemcpyDefault, stream))
    assert (target == 0).all()
    assert error(hip.hipStreamQuery(stream)) == "hipErrorNotReady"
    assert error(hip.hipPeekAtLastError()) == "hipSuccess"
    gate.open()
    ok(hip.hipStreamSynchronize(stream))
    assert (target == 7).all()
    ok(hip.hipStreamDestroy(stream))


def test_copy_of_pageable_memory_has_happened_on_return(hip):
    stream, gate, array = ok(hip.hipStreamCreate()), Gate(), np.zeros(16, np.int32)
    pointer, pinned = ok(hip.hipMalloc(64)), ok(hip.hipHostMalloc(64, 0))
    kinds = hip.hipMemcpyKind
    gate.close(hip, stream)
    ok(hip.hipMemsetAsync(pointer, 1, 64, stream))
    ok(hip.hipMemcpyAsync(pinned, pointer, 64, kinds.hipMemcpyDeviceToHost, stream))
    assert not gate.opened.is_set()
    threading.Timer(0.05, gate.open).start()
    ok(hip.hipMemcpyAsync(array, pointer, 64, kinds.hipMemcpyDeviceToHost, stream))
    assert gate.opened.is_set()
    assert (array == 0x01010101).all()
    ok(hip.hipFree(pointer))
    ok(hip.hipHostFree(pinned))
    ok(hip.hipStreamDestroy(stream))


def test_null_stream_waits_for_blocking_streams_only(hip):
    for flags, waits in ((0, True), (1, False)):
        stream, gate = ok(hip.hipStreamCreateWithFlags(flags)), Gate()
        gate.close(hip, stream)
        if waits:
            assert error(hip.hipStreamQuery(None)) == "hipErrorNotReady"
            releaser = threading.Timer(0.05, gate.open)
            releaser.start()
            ok(hip.hipMemset(ok(hip.hipMalloc(4)), 0, 4))
            assert gate.opened.is_set()
            releaser.join()
        else:
            ok(hip.hipStreamQuery(None))
            ok(hip.hipMemset(ok(hip.hipMalloc(4)), 0, 4))
            assert not gate.opened.is_set()
            gate.open()
        ok(hip.hipStreamSynchronize(stream))
        ok(hip.hipStreamDestroy(stream))


def test_host_functions_and_callbacks(hip):
    stream, seen = ok(hip.hipStreamCreate()), []
    function = HOST_FUNCTION(lambda data: seen.append(("function", data, ok(hip.hipGetDevice()))))
    callback = CALLBACK(lambda handle, status, data: seen.append((handle, status, data)))
    ok(hip.hipLaunchHostFunc(stream, pointer_to(function), 77))
    ok(hip.hipStreamAddCallback(stream, pointer_to(callback), 78, 0))
    ok(hip.hipStreamSynchronize(stream))
    assert seen == [("function", 77, 0), (int(stream), 0, 78)]
    assert error(hip.hipLaunchHostFunc(stream, None, None)) == "hipErrorInvalidValue"
    assert error(hip.hipStreamAddCallback(stream, pointer_to(callback), None, 1)) == "hipErrorInvalidValue"
    ok(hip.hipStreamDestroy(stream))


def test_events(hip):
    stream, gate = ok(hip.hipStreamCreate()), Gate()
    start, stop, untimed = ok(hip.hipEventCreate()), ok(hip.hipEventCreate()), ok(hip.hipEventCreateWithFlags(2))
    ok(hip.hipEventQuery(start))
    assert error(hip.hipEventElapsedTime(start, stop)) == "hipErrorInvalidHandle"
    ok(hip.hipEventRecord(start, stream))
    gate.close(hip, stream)
    ok(hip.hipEventRecordWithFlags(stop, stream, 0))
    ok(hip.hipEventRecord(untimed, stream))
    assert error(hip.hipEventQuery(stop)) == error(hip.hipEventElapsedTime(start, stop)) == "hipErrorNotReady"
    threading.Timer(0.05, gate.open).start()
    ok(hip.hipEventSynchronize(stop))
    assert 20 < ok(hip.hipEventElapsedTime(start, stop)) < 60000
    ok(hip.hipEventSynchronize(untimed))
    assert error(hip.hipEventElapsedTime(start, untimed)) == "hipErrorInvalidHandle"
    assert error(hip.hipEventCreateWithFlags(1 << 10)) == "hipErrorInvalidValue"
    assert error(hip.hipEventCreateWithFlags(4)) == "hipErrorInvalidValue"
    assert error(hip.hipEventCreateWithFlags(4 | 2)) == "hipErrorNotSupported"
    for event in (start, stop, untimed):
        ok(hip.hipEventDestroy(event))
        assert error(hip.hipEventRecord(int(event), stream)) == "hipErrorContextIsDestroyed"
    ok(hip.hipStreamDestroy(stream))


def test_waiting_for_an_event_of_another_device(hip):
    first, event, gate = ok(hip.hipStreamCreate()), ok(hip.hipEventCreate()), Gate()
    ok(hip.hipSetDevice(1))
    second = ok(hip.hipStreamCreateWithFlags(1))
    source, target = np.full(4, 5, np.int64), np.zeros(4, np.int64)
    gate.close(hip, first)
    ok(hip.hipEventRecord(event, first))
    ok(hip.hipStreamWaitEvent(second, event, 0))
    ok(hip.hipMemcpyAsync(target, source, 32, hip.hipMemcpyKind.hipMemcpyDefault, second))
    assert error(hip.hipStreamQuery(second)) == "hipErrorNotReady"
    assert (target == 0).all()
    gate.open()
    ok(hip.hipStreamSynchronize(second))
    assert (target == 5).all()
    assert error(hip.hipStreamWaitEvent(second, event, 8)) == "hipErrorInvalidValue"
    ok(hip.hipEventDestroy(event))
    for stream in (first, second):
        ok(hip.hipStreamDestroy(stream))


def launch_threads(hip, function, threads, block, stream=None):
    """The status of hipExtModuleLaunchKernel, which hip-python does not have, without arguments and events."""
    empty = [ctypes.c_void_p()] * 4
    handles = ctypes.c_void_p(function), ctypes.c_void_p(stream)
    return error(
        hip.linked("hipExtModuleLaunchKernel", handles[0], *threads, *block, ctypes.c_size_t(0), handles[1], *empty, 0)
    )


def test_code_objects_are_refused(hip):
    elf = bytearray(b"\x7fELF" + bytes(60))
    elf[18] = 224
    for image, wanted in (
        (bytes(elf), "hipErrorNoBinaryForGpu"),
        (b"__CLANG_OFFLOAD_BUNDLE__" + bytes(64), "hipErrorNoBinaryForGpu"),
        (b"\x7fELF" + bytes(60), "hipErrorInvalidImage"),
        (b"no code", "hipErrorInvalidImage"),
    ):
        assert error(hip.hipModuleLoadData(image)) == error(hip.hipModuleLoadDataEx(image, 0, None)) == wanted
    assert error(hip.hipModuleLoadData(None)) == error(hip.hipModuleLoad(None)) == "hipErrorInvalidValue"
    assert error(hip.hipModuleLoad(b"/no such file")) == "hipErrorFileNotFound"
    assert error(hip.hipModuleLoad(b"/dev/null")) == "hipErrorInvalidImage"
    assert error(hip.hipModuleLoad(__file__.encode())) == "hipErrorInvalidImage"
    assert error(hip.hipModuleGetFunction(None, b"kernel")) == "hipErrorInvalidHandle"
    assert error(hip.hipModuleGetFunction(0x1234, b"kernel")) == "hipErrorNotFound"
    assert error(hip.hipModuleUnload(0x1234)) == "hipErrorNotFound"
    for function in (None, 0x1234):
        assert (
            error(hip.hipModuleLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None)) == "hipErrorInvalidHandle"
        )
        assert launch_threads(hip, function, (64, 1, 1), (64, 1, 1)) == "hipErrorInvalidHandle"
    assert launch_threads(hip, None, (64, 1, 1), (64, 17, 1)) == "hipErrorInvalidConfiguration"
    assert launch_threads(hip, None, (64, 1, 1), (64, 1, 0)) == "hipErrorInvalidConfiguration"
    assert launch_threads(hip, None, (64, 0, 1), (64, 1, 1)) == "hipErrorInvalidValue"
    assert launch_threads(hip, None, (64, 1, 1), (64, 1, 1), stream=0x1234) == "hipErrorContextIsDestroyed"


QUEUED_AT_EXIT = """
import ctypes
function = ctypes.CDLL(None).pause  # never returns, and does not go away with the interpreter
stream, size = ok(hip.hipStreamCreate()), 1 << 20
source, target = int(ok(hip.hipMalloc(size)).as_c_void_p().value), ok(hip.hipMalloc(size))
for _ in range(20):
    ok(hip.hipMemcpyAsync(target, source, size, hip.hipMemcpyKind.hipMemcpyDefault, stream))
ok(hip.hipLaunchHostFunc(stream, ctypes.cast(function, ctypes.c_void_p), None))
for _ in range(20):
    ok(hip.hipMemcpyAsync(target, source, size, hip.hipMemcpyKind.hipMemcpyDefault, stream))
answer = "left"
"""


def test_exit_with_work_queued():
    assert host_platform.run(QUEUED_AT_EXIT) == "left"
    assert host_platform.run(QUEUED_AT_EXIT, ROCPY_HOST_STRESS="3") == "left"


def test_stress_mode_queues_everything():
    code = """
    stream = ok(hip.hipStreamCreate())
    source, target = np.ones(4), np.zeros(4)
    late = 0
    for i in range(200):
        source[:] = i + 1
        ok(hip.hipMemcpyAsync(target, source, 32, hip.hipMemcpyKind.hipMemcpyDefault, stream))
        late += target[0] != i + 1
        ok(hip.hipStreamSynchronize(stream))
        assert target[3] == i + 1
    answer = int(late)
    """
    assert host_platform.run(code) == 0
    assert host_platform.run(code, ROCPY_HOST_STRESS="1") > 20
