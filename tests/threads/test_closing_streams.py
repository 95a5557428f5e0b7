# SPDX-License-Identifier: MIT
"""A stream that one thread closes while another thread's call uses it is destroyed when that call is done with it."""

from __future__ import annotations

import ctypes
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import rocpy
from rocpy.errors import ClosedError

A, B = np.full((4, 5), 2.0, np.float32), np.full((5, 6), 3.0, np.float32)


def planned(stream):
    with rocpy.Matmul(A, B, stream=stream) as mm:
        return mm.execute()


def listed(stream):
    return rocpy.grouped_matmul([A], [B], stream=stream)[0]


def packed(stream):
    return rocpy.grouped_matmul(A, B[None], offsets=[0, 4], stream=stream)


def fused(stream):
    return rocpy.matmul(A, B, epilogue=rocpy.epilogue(lambda x: x * 1.0), stream=stream)


CALLS = {
    "function": lambda stream: rocpy.matmul(A, B, stream=stream),
    "planned": planned,
    "list of products": listed,
    "packed groups": packed,
    "epilogue of the user": fused,
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_has_begun_is_finished_first(call, platform_functions):
    CALLS[call](None)
    launching, closed, order = threading.Event(), threading.Event(), []
    address, size = ctypes.c_void_p, ctypes.c_size_t
    launch = ctypes.CFUNCTYPE(ctypes.c_int, *[address] * 14, size, address)
    one = ctypes.CFUNCTYPE(ctypes.c_int, address)
    two = ctypes.CFUNCTYPE(ctypes.c_int, address, address)
    functions = {"hipblasLtMatmul": launch, "hipStreamDestroy": one, "hipEventRecord": two, "hipStreamSynchronize": one}
    originals = {name: kind(platform_functions.slot(name).value) for name, kind in functions.items()}
    stream = rocpy.Stream()
    handle = stream.handle

    def noting(name, place):
        def function(*arguments):
            if name == "hipblasLtMatmul":
                launching.set()
                assert closed.wait(60)
            if arguments[place] == handle:
                order.append(name)
            return originals[name](*arguments)

        return functions[name](function)

    replacements = {name: noting(name, {"hipblasLtMatmul": 15, "hipEventRecord": 1}.get(name, 0)) for name in functions}
    with platform_functions.replaced(replacements), ThreadPoolExecutor(1) as other:
        running = other.submit(CALLS[call], stream)
        assert launching.wait(60)
        stream.close()
        assert stream.is_closed
        closed.set()
        result = running.result(60)
        with pytest.raises(ClosedError):
            CALLS[call](stream)
    assert order.count("hipblasLtMatmul") == order.count("hipStreamDestroy") == 1
    assert order[-1] == "hipStreamDestroy"
    rocpy.Stream().synchronize()  # lets go of what is done
    deadline = threading.Event()
    for _ in range(600):
        if (np.asarray(result) == 30.0).all():
            break
        deadline.wait(0.1)
    np.testing.assert_array_equal(result, 30.0)


def test_an_event_that_is_waited_for_is_destroyed_afterwards(platform_functions):
    kind, order = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p), []
    names = ("hipEventSynchronize", "hipEventDestroy")
    originals = {name: kind(platform_functions.slot(name).value) for name in names}
    waiting, closed = threading.Event(), threading.Event()
    event = rocpy.Event()
    handle = event.handle

    def wait(given):
        waiting.set()
        assert closed.wait(60)
        order.append("waited")
        return originals["hipEventSynchronize"](given)

    def destroy(given):
        if given == handle:
            order.append("destroyed")
        return originals["hipEventDestroy"](given)

    functions = {"hipEventSynchronize": kind(wait), "hipEventDestroy": kind(destroy)}
    with platform_functions.replaced(functions), ThreadPoolExecutor(1) as other:
        running = other.submit(event.synchronize)
        assert waiting.wait(60)
        event.close()
        closed.set()
        running.result(60)
    assert order == ["waited", "destroyed"]
    with pytest.raises(ClosedError):
        event.synchronize()


def test_many_threads_use_a_stream_that_is_closed():
    for _ in range(20):
        stream, begun = rocpy.Stream(), threading.Barrier(4)

        def multiply(stream=stream, begun=begun):
            begun.wait(60)
            done = 0
            try:
                while True:
                    rocpy.matmul(A, B, stream=stream)
                    stream.synchronize()
                    done += 1
            except ClosedError:
                return done

        with ThreadPoolExecutor(3) as others:
            running = [others.submit(multiply) for _ in range(3)]
            begun.wait(60)
            stream.synchronize()
            stream.close()
            for each in running:
                each.result(60)


def test_closing_twice_and_without_users_destroys_once(platform_functions):
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    original, destroyed = kind(platform_functions.slot("hipStreamDestroy").value), []
    stream = rocpy.Stream()
    handle = stream.handle

    def destroy(given):
        destroyed.append(given)
        return original(given)

    with platform_functions.replaced({"hipStreamDestroy": kind(destroy)}):
        rocpy.matmul(A, B, stream=stream)
        stream.close()
        assert destroyed == [handle]
        stream.close()
        assert destroyed == [handle]


def test_a_stream_with_the_handle_of_a_busy_one_has_a_workspace_of_its_own(platform_functions):
    """HIP may give a handle again while the work of the stream that had it still runs."""
    address, size = ctypes.c_void_p, ctypes.c_size_t
    kinds = {
        "hipblasLtMatmul": ctypes.CFUNCTYPE(ctypes.c_int, *[address] * 14, size, address),
        "hipStreamQuery": ctypes.CFUNCTYPE(ctypes.c_int, address),
        "hipStreamDestroy": ctypes.CFUNCTYPE(ctypes.c_int, address),
        "hipStreamCreateWithPriority": ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.POINTER(address), ctypes.c_uint, ctypes.c_int
        ),
    }
    originals = {name: kind(platform_functions.slot(name).value) for name, kind in kinds.items()}
    not_ready, used = 600, []  # hipErrorNotReady
    first = rocpy.Stream()
    handle = first.handle

    def launch(*arguments):
        used.append((arguments[0], arguments[13]))  # the library's handle, and the workspace
        return originals["hipblasLtMatmul"](*arguments)

    def create(stream, flags, priority):
        stream[0] = handle
        return 0

    functions = {
        "hipblasLtMatmul": launch,
        "hipStreamQuery": lambda stream: not_ready if stream == handle else originals["hipStreamQuery"](stream),
        "hipStreamDestroy": lambda stream: 0 if stream == handle else originals["hipStreamDestroy"](stream),
        "hipStreamCreateWithPriority": create,
    }
    with platform_functions.replaced({name: kinds[name](function) for name, function in functions.items()}):
        rocpy.matmul(A, B, stream=first)
        first.close()
        second = rocpy.Stream()
        assert second.handle == handle
        rocpy.matmul(A, B, stream=second)
    second.synchronize()
    second.close()
    assert len(used) == 2
    assert used[0][0] != used[1][0]
    rocpy.plan_cache.clear()


@pytest.mark.parametrize("form", ["plan", "function"])
def test_a_stream_that_is_closed_while_its_product_is_tuned(form, platform_functions, fresh_plan_cache):
    """What is timed on the stream's handle is timed before that is destroyed."""
    kind, one = (
        ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p),
        ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p),
    )
    original, query = (
        kind(platform_functions.slot("hipEventRecord").value),
        one(platform_functions.slot("hipStreamQuery").value),
    )
    stream, states = rocpy.Stream(), []
    handle, not_ready = stream.handle, 600  # hipErrorNotReady

    def record(event, given):
        if given == handle:
            stream.close()
            states.append(query(handle))
        return original(event, given)

    with platform_functions.replaced({"hipEventRecord": kind(record)}):
        if form == "plan":
            with rocpy.Matmul(A, B, stream=stream) as mm, pytest.raises(ClosedError):
                mm.autotune(budget_ms=20)
        else:
            result = rocpy.matmul(A, B, stream=stream, autotune=True)
            rocpy.runtime.Device(0).synchronize()
            np.testing.assert_array_equal(result, 30.0)
    assert states
    assert set(states) <= {0, not_ready}
    assert query(handle) not in (0, not_ready)


def test_a_graph_that_is_closed_while_the_stream_of_a_launch_is_read():
    class Foreign:
        def __init__(self, stream):
            self.stream = stream

        def __cuda_stream__(self):
            graph.close()  # as another thread may, while this one runs Python
            return 0, self.stream.handle

    out = np.zeros((4, 6), np.float32)
    with rocpy.Stream(nonblocking=True) as stream, rocpy.Matmul(A, B) as mm:
        if rocpy.platform.current().host_memory:
            with stream.capture() as graph:
                mm.execute(out=out, stream=stream)
        else:
            with stream.capture() as graph:
                pass
        with pytest.raises(ClosedError):
            graph.launch(Foreign(stream))
