# SPDX-License-Identifier: MIT
"""Stream capture and graphs through hip-python."""

import contextlib
import ctypes
import threading
import time

import host_platform
import numpy as np
from host_platform import error, ok

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def pointer_to(function):
    """What hip-python takes for a function: the object itself would be read as a buffer."""
    return ctypes.cast(function, ctypes.c_void_p)


def library():
    """The library itself, for what hip-python's signatures leave out."""
    return ctypes.CDLL(str(host_platform.folder() / "lib" / "libamdhip64.so"))


def test_a_captured_graph_runs_at_each_launch(hip):
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
    source, middle, target = np.arange(8, dtype=np.int32), np.zeros(8, np.int32), np.zeros(8, np.int32)
    seen = []
    note = HOST_FUNCTION(lambda _: seen.append(int(target.sum())))
    stream = ok(hip.hipStreamCreateWithFlags(1))
    assert ok(hip.hipStreamIsCapturing(stream)) == hip.hipStreamCaptureStatus.hipStreamCaptureStatusNone
    ok(hip.hipStreamBeginCapture(stream, mode))
    ok(hip.hipMemcpyAsync(middle, source, source.nbytes, hip.hipMemcpyKind.hipMemcpyDefault, stream))
    ok(hip.hipMemsetD32Async(middle, 100, 1, stream))
    ok(hip.hipMemcpyAsync(target, middle, source.nbytes, hip.hipMemcpyKind.hipMemcpyDefault, stream))
    ok(hip.hipLaunchHostFunc(stream, pointer_to(note), None))
    status, number = ok(hip.hipStreamGetCaptureInfo(stream))
    assert status == hip.hipStreamCaptureStatus.hipStreamCaptureStatusActive
    assert ok(hip.hipStreamGetCaptureInfo_v2(stream, None))[:2] == (status, number)
    graph = ok(hip.hipStreamEndCapture(stream))
    assert not target.any()
    assert not seen
    exec_, *_ = ok(hip.hipGraphInstantiate(graph, 0))
    ok(hip.hipGraphDestroy(graph))
    ok(hip.hipGraphUpload(exec_, stream))
    for scale in (1, 2):
        np.multiply(np.arange(8, dtype=np.int32), scale, out=source)
        ok(hip.hipGraphLaunch(exec_, stream))
        ok(hip.hipStreamSynchronize(stream))
        assert list(target) == [100, *(np.arange(1, 8) * scale)]
    assert seen == [128, 156]
    ok(hip.hipGraphExecDestroy(exec_))
    assert error(hip.hipGraphLaunch(exec_, stream)) == "hipErrorInvalidValue"
    ok(hip.hipStreamDestroy(stream))


def test_streams_fork_and_join_through_events(hip):
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal
    origin, other = ok(hip.hipStreamCreateWithFlags(1)), ok(hip.hipStreamCreateWithFlags(1))
    fork, join = ok(hip.hipEventCreate()), ok(hip.hipEventCreate())
    left, right, sums = np.zeros(4, np.int32), np.zeros(4, np.int32), np.zeros(1, np.int64)
    add = HOST_FUNCTION(lambda _: sums.__iadd__(left.sum() + right.sum()) is None)
    ok(hip.hipStreamBeginCapture(origin, mode))
    ok(hip.hipEventRecord(fork, origin))
    ok(hip.hipStreamWaitEvent(other, fork, 0))
    ok(hip.hipMemsetD32Async(left, 3, 4, origin))
    ok(hip.hipMemsetD32Async(right, 4, 4, other))
    ok(hip.hipEventRecord(join, other))
    ok(hip.hipStreamWaitEvent(origin, join, 0))
    ok(hip.hipLaunchHostFunc(origin, pointer_to(add), None))
    graph = ok(hip.hipStreamEndCapture(origin))
    exec_ = ok(hip.hipGraphInstantiateWithFlags(graph, 0))
    for launch in (1, 2, 3):
        ok(hip.hipGraphLaunch(exec_, other))
        ok(hip.hipStreamSynchronize(other))
        assert sums[0] == 28 * launch
    same = ok(hip.hipGraphClone(graph))
    null = (ctypes.c_void_p * 1)()
    assert ok(hip.hipGraphExecUpdate(exec_, same, null)) == hip.hipGraphExecUpdateResult.hipGraphExecUpdateSuccess
    for one in (graph, same):
        ok(hip.hipGraphDestroy(one))
    ok(hip.hipGraphExecDestroy(exec_))

    # What is not joined again ends the capture without a graph.
    ok(hip.hipStreamBeginCapture(origin, mode))
    ok(hip.hipEventRecord(fork, origin))
    ok(hip.hipStreamWaitEvent(other, fork, 0))
    ok(hip.hipMemsetD32Async(right, 4, 4, other))
    assert error(hip.hipStreamEndCapture(origin)) == "hipErrorStreamCaptureUnjoined"
    for stream in (origin, other):
        ok(hip.hipStreamSynchronize(stream))
        ok(hip.hipStreamDestroy(stream))
    for event in (fork, join):
        ok(hip.hipEventDestroy(event))


def test_what_a_capture_forbids(hip):
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeGlobal
    stream = ok(hip.hipStreamCreate())
    forbidden = {
        "hipErrorStreamCaptureUnsupported": [
            lambda: hip.hipStreamSynchronize(stream),
            lambda: hip.hipStreamQuery(stream),
            hip.hipDeviceSynchronize,
            lambda: hip.hipMalloc(64),
        ],
        "hipErrorStreamCaptureImplicit": [
            lambda: hip.hipMemset(np.zeros(8), 0, 8),
            lambda: hip.hipStreamSynchronize(None),
        ],
    }
    for name, calls in forbidden.items():
        for call in calls:
            ok(hip.hipStreamBeginCapture(stream, mode))
            assert error(call()) == name
            status = hip.hipStreamCaptureStatus.hipStreamCaptureStatusInvalidated
            assert ok(hip.hipStreamIsCapturing(stream)) == status
            assert error(hip.hipStreamEndCapture(stream)) == "hipErrorStreamCaptureInvalidated"
    hip.hipGetLastError()
    own = library()
    relaxed = ctypes.c_int(2)
    assert own.hipThreadExchangeStreamCaptureMode(ctypes.byref(relaxed)) == 0
    assert relaxed.value == 0
    ok(hip.hipStreamBeginCapture(stream, mode))
    memory = ok(hip.hipMalloc(64))  # allowed to a thread that says that it knows what it does
    graph = ok(hip.hipStreamEndCapture(stream))
    assert own.hipThreadExchangeStreamCaptureMode(ctypes.byref(relaxed)) == 0
    assert relaxed.value == 2
    with contextlib.suppress(ValueError):  # it takes no argument in hip-python, which hands over whatever is in memory
        hip.hipThreadExchangeStreamCaptureMode()
    relaxed.value = 0
    assert own.hipThreadExchangeStreamCaptureMode(ctypes.byref(relaxed)) == 0
    ok(hip.hipFree(memory))
    ok(hip.hipGraphDestroy(graph))
    ok(hip.hipStreamDestroy(stream))


def test_a_graph_that_is_built_by_hand(hip):
    source, target = np.arange(4, dtype=np.uint16), np.zeros(4, np.uint16)
    text = []
    write = HOST_FUNCTION(lambda _: text.append(list(target)))
    graph = ok(hip.hipGraphCreate(0))
    params = hip.hipMemsetParams()
    params.dst, params.elementSize, params.width, params.height, params.value = target.ctypes.data, 2, 2, 1, 7
    start = ok(hip.hipGraphAddEmptyNode(graph, None, 0))
    kind = hip.hipMemcpyKind.hipMemcpyDefault
    copy = ok(hip.hipGraphAddMemcpyNode1D(graph, None, 0, target, source, source.nbytes, kind))

    def after(*nodes):
        return (ctypes.c_void_p * len(nodes))(*[int(node) for node in nodes]), len(nodes)

    fill = ok(hip.hipGraphAddMemsetNode(graph, *after(copy), params))
    call = hip.hipHostNodeParams()
    address = ctypes.cast(write, ctypes.c_void_p).value
    # hip-python's field takes no function of ctypes: the pointer is written where it lies.
    ctypes.c_void_p.from_address(int(call)).value = address
    last = ok(hip.hipGraphAddHostNode(graph, *after(fill), call))
    ok(hip.hipGraphAddDependencies(graph, after(start)[0], after(copy)[0], 1))
    assert ok(hip.hipGraphNodeGetType(last)) == hip.hipGraphNodeType.hipGraphNodeTypeHost
    count = ctypes.c_size_t()
    assert library().hipGraphGetNodes(ctypes.c_void_p(int(graph)), None, ctypes.byref(count)) == 0
    assert count.value == 4
    exec_, *_ = ok(hip.hipGraphInstantiate(graph, 0))
    ok(hip.hipGraphLaunch(exec_, None))
    ok(hip.hipStreamSynchronize(None))
    assert text == [[7, 7, 2, 3]]
    # Dependencies of a capture that goes on, replaced by none: what follows starts at once.
    stream = ok(hip.hipStreamCreateWithFlags(1))
    ok(hip.hipStreamBeginCapture(stream, hip.hipStreamCaptureMode.hipStreamCaptureModeRelaxed))
    ok(hip.hipMemsetD16Async(target, 1, 4, stream))
    ok(hip.hipStreamUpdateCaptureDependencies(stream, None, 0, 1))
    ok(hip.hipMemsetD16Async(target, 1, 4, stream))
    captured = ok(hip.hipStreamEndCapture(stream))
    assert library().hipGraphGetRootNodes(ctypes.c_void_p(int(captured)), None, ctypes.byref(count)) == 0
    assert count.value == 2
    ok(hip.hipStreamDestroy(stream))
    ok(hip.hipGraphExecDestroy(exec_))
    for one in (graph, captured):
        ok(hip.hipGraphDestroy(one))


def test_handles_that_are_none(hip):
    # hip-python hands over a count that it never set, for room for one: with a graph, HIP would write as many nodes.
    for ask in (hip.hipGraphGetNodes, hip.hipGraphGetRootNodes, hip.hipGraphGetEdges):
        assert error(ask(0x47000000FFFFFF)) == "hipErrorInvalidValue"
    for ask in (hip.hipGraphNodeGetDependencies, hip.hipGraphNodeGetDependentNodes):
        assert error(ask(0x4E000000FFFFFF)) == "hipErrorInvalidValue"
    for call in (hip.hipGraphDestroy, hip.hipGraphExecDestroy, hip.hipGraphClone):
        assert error(call(None)) == "hipErrorInvalidValue"


def test_a_joined_stream_may_be_destroyed_while_the_capture_goes_on(hip):
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal
    origin, target = ok(hip.hipStreamCreateWithFlags(1)), np.zeros(2, np.int32)
    fork, join = ok(hip.hipEventCreate()), ok(hip.hipEventCreate())

    def captured(is_joined):
        """What the capture ends with where a stream does work, is joined or not, and is destroyed."""
        ok(hip.hipStreamBeginCapture(origin, mode))
        ok(hip.hipEventRecord(fork, origin))
        side = ok(hip.hipStreamCreateWithFlags(1))
        ok(hip.hipStreamWaitEvent(side, fork, 0))
        ok(hip.hipMemsetD32Async(target, 7, 1, side))
        ok(hip.hipEventRecord(join, side))
        if is_joined:
            ok(hip.hipStreamWaitEvent(origin, join, 0))
        ok(hip.hipStreamDestroy(side))
        if not is_joined:
            ok(hip.hipStreamWaitEvent(origin, join, 0))  # as in AMD's runtime: the event went with its stream
        ok(hip.hipMemcpyAsync(target[1:], target, 4, hip.hipMemcpyKind.hipMemcpyDefault, origin))
        return hip.hipStreamEndCapture(origin)

    assert error(captured(is_joined=False)) == "hipErrorStreamCaptureUnjoined"
    graph = ok(captured(is_joined=True))
    exec_, *_ = ok(hip.hipGraphInstantiate(graph, 0))
    ok(hip.hipGraphLaunch(exec_, origin))
    ok(hip.hipStreamSynchronize(origin))
    assert list(target) == [7, 7]
    ok(hip.hipGraphExecDestroy(exec_))
    ok(hip.hipGraphDestroy(graph))
    for event in (fork, join):
        ok(hip.hipEventDestroy(event))
    ok(hip.hipStreamDestroy(origin))


def test_memory_that_a_graph_gives_out_and_takes_back(hip):
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal
    stream, target = ok(hip.hipStreamCreateWithFlags(1)), np.zeros(4, np.int32)
    outside = ok(hip.hipMalloc(64))
    ok(hip.hipStreamBeginCapture(stream, mode))
    memory = ok(hip.hipMallocAsync(16, stream))
    ok(hip.hipMemsetD32Async(memory, 7, 4, stream))
    ok(hip.hipMemcpyAsync(target, memory, 16, hip.hipMemcpyKind.hipMemcpyDefault, stream))
    ok(hip.hipFreeAsync(memory, stream))
    graph = ok(hip.hipStreamEndCapture(stream))
    exec_, *_ = ok(hip.hipGraphInstantiate(graph, 0))
    # Between launches it is nobody's to free.
    assert error(hip.hipFreeAsync(int(memory), stream)) == "hipErrorInvalidValue"
    for _ in range(3):
        target[:] = 0
        ok(hip.hipGraphLaunch(exec_, stream))
        ok(hip.hipStreamSynchronize(stream))
        assert list(target) == [7] * 4
        assert error(hip.hipFree(int(memory))) == "hipErrorInvalidValue"
    # Other memory would be freed by each launch.
    ok(hip.hipStreamBeginCapture(stream, mode))
    assert error(hip.hipFreeAsync(outside, stream)) == "hipErrorStreamCaptureUnsupported"
    assert error(hip.hipStreamEndCapture(stream)) == "hipErrorStreamCaptureInvalidated"
    ok(hip.hipGraphDestroy(graph))
    ok(hip.hipGraphExecDestroy(exec_))
    ok(hip.hipFree(outside))
    ok(hip.hipStreamDestroy(stream))


def test_memory_that_a_graph_only_gives_out_is_the_users(hip):
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal
    stream, size = ok(hip.hipStreamCreateWithFlags(1)), 1 << 20
    ok(hip.hipStreamBeginCapture(stream, mode))
    memory = ok(hip.hipMallocAsync(size, stream))
    ok(hip.hipMemsetAsync(memory, 1, size, stream))
    graph = ok(hip.hipStreamEndCapture(stream))
    exec_, *_ = ok(hip.hipGraphInstantiate(graph, 0))
    for _ in range(2):
        ok(hip.hipGraphLaunch(exec_, stream))
        ok(hip.hipStreamSynchronize(stream))
        ok(hip.hipFreeAsync(int(memory), stream))
    ok(hip.hipGraphLaunch(exec_, stream))
    ok(hip.hipStreamSynchronize(stream))
    ok(hip.hipGraphDestroy(graph))
    ok(hip.hipGraphExecDestroy(exec_))
    # It outlives the graph, and is freed once.
    copy = np.zeros(size, np.uint8)
    ok(hip.hipMemcpy(copy, int(memory), size, hip.hipMemcpyKind.hipMemcpyDefault))
    assert copy.all()
    ok(hip.hipFree(int(memory)))
    assert error(hip.hipFree(int(memory))) == "hipErrorInvalidValue"
    ok(hip.hipStreamDestroy(stream))


# ---- user objects ----


def user_object(hip, destroyed, name, count=1):
    """A user object whose destructor notes a name, and the function that must outlive it."""
    note = HOST_FUNCTION(lambda _: destroyed.append(name))
    flags = hip.hipUserObjectFlags.hipUserObjectNoDestructorSync
    return ok(hip.hipUserObjectCreate(None, pointer_to(note), count, flags)), note


def until_destroyed(hip, destroyed, names):
    """The last reference may be that of a launch, which goes a moment after the launch is done."""
    end = time.monotonic() + 60
    while destroyed != names and time.monotonic() < end:
        ok(hip.hipGetDeviceCount())
    assert destroyed == names


def test_user_objects_live_as_long_as_anything_refers_to_them(hip):
    move = hip.hipUserObjectRetainFlags.hipGraphUserObjectMove
    destroyed = []
    alone, kept = user_object(hip, destroyed, "alone", 2)
    ok(hip.hipUserObjectRelease(alone, 1))
    ok(hip.hipUserObjectRetain(alone, 3))
    ok(hip.hipUserObjectRelease(alone, 3))
    assert error(hip.hipUserObjectRelease(alone, 2)) == "hipErrorInvalidValue"
    assert not destroyed
    ok(hip.hipUserObjectRelease(alone, 1))
    assert destroyed == ["alone"]
    for call in (hip.hipUserObjectRelease, hip.hipUserObjectRetain):
        assert error(call(alone, 1)) == "hipErrorInvalidValue"

    destroyed.clear()
    graph = ok(hip.hipGraphCreate(0))
    moved, kept_moved = user_object(hip, destroyed, "moved")
    shared, kept_shared = user_object(hip, destroyed, "shared")
    ok(hip.hipGraphRetainUserObject(graph, moved, 1, move))
    ok(hip.hipGraphRetainUserObject(graph, shared, 2, 0))
    assert error(hip.hipGraphRetainUserObject(graph, moved, 1, move)) == "hipErrorInvalidValue"
    assert error(hip.hipGraphReleaseUserObject(graph, shared, 3)) == "hipErrorInvalidValue"
    ok(hip.hipGraphReleaseUserObject(graph, shared, 2))
    ok(hip.hipUserObjectRelease(shared, 1))
    assert destroyed == ["shared"]
    clone = ok(hip.hipGraphClone(graph))
    first, *_ = ok(hip.hipGraphInstantiate(graph, 0))
    second, *_ = ok(hip.hipGraphInstantiate(clone, 0))
    for destroy, one in (
        (hip.hipGraphDestroy, graph),
        (hip.hipGraphDestroy, clone),
        (hip.hipGraphExecDestroy, first),
    ):
        ok(destroy(one))
        assert destroyed == ["shared"]
    ok(hip.hipGraphExecDestroy(second))
    assert destroyed == ["shared", "moved"]
    del kept, kept_moved, kept_shared


def test_user_objects_of_a_capture_and_of_a_launch_under_way(hip):
    mode = hip.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal
    move = hip.hipUserObjectRetainFlags.hipGraphUserObjectMove
    destroyed = []
    go = threading.Event()
    wait = HOST_FUNCTION(lambda _: go.wait(60) and None)
    stream = ok(hip.hipStreamCreateWithFlags(1))
    ok(hip.hipStreamBeginCapture(stream, mode))
    ok(hip.hipLaunchHostFunc(stream, pointer_to(wait), None))
    graph = ok(hip.hipStreamGetCaptureInfo_v2(stream, None))[2]
    captured, kept = user_object(hip, destroyed, "captured")
    ok(hip.hipGraphRetainUserObject(graph, captured, 1, move))
    graph = ok(hip.hipStreamEndCapture(stream))
    exec_, *_ = ok(hip.hipGraphInstantiate(graph, 0))
    ok(hip.hipGraphDestroy(graph))
    ok(hip.hipGraphLaunch(exec_, stream))
    ok(hip.hipGraphExecDestroy(exec_))
    assert not destroyed
    go.set()
    ok(hip.hipStreamSynchronize(stream))
    ok(hip.hipStreamDestroy(stream))
    until_destroyed(hip, destroyed, ["captured"])
    other = ok(hip.hipStreamCreateWithFlags(1))
    ok(hip.hipStreamBeginCapture(other, mode))
    dropped, kept_dropped = user_object(hip, destroyed, "dropped")
    ok(hip.hipGraphRetainUserObject(ok(hip.hipStreamGetCaptureInfo_v2(other, None))[2], dropped, 1, move))
    ok(hip.hipStreamDestroy(other))
    assert destroyed == ["captured", "dropped"]
    del kept, kept_dropped


def test_user_objects_that_cannot_be(hip):
    note = pointer_to(HOST_FUNCTION(lambda _: None))
    for arguments in ((None, note, 0, 1), (None, note, 1 << 31, 1), (None, note, 1, 0), (None, None, 1, 1)):
        assert error(hip.hipUserObjectCreate(*arguments)) == "hipErrorInvalidValue"
    destroyed = []
    one, kept = user_object(hip, destroyed, "one")
    graph = ok(hip.hipGraphCreate(0))
    for arguments in ((graph, one, 0, 0), (graph, one, 1, 2), (graph, one, 2, 1)):
        assert error(hip.hipGraphRetainUserObject(*arguments)) == "hipErrorInvalidValue"
    assert error(hip.hipGraphReleaseUserObject(graph, one, 1)) == "hipErrorInvalidValue"
    ok(hip.hipGraphDestroy(graph))
    assert error(hip.hipGraphRetainUserObject(graph, one, 1, 0)) == "hipErrorInvalidValue"
    ok(hip.hipUserObjectRelease(one, 1))
    assert destroyed == ["one"]
    del kept
