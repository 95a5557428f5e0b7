# SPDX-License-Identifier: MIT
"""Planned products and the pool behind them under threads, forks and at exit; the pool is bounded and is emptied."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

import rocpy
from rocpy import distributed


def in_threads(count, work):
    """Run work(index) in threads that start together; raises the first failure."""
    start = threading.Barrier(count)

    def run(index):
        start.wait()
        return work(index)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_one_plan_cache_under_threads_that_fill_clear_and_resize_it(rng):
    shapes = [(m, k, n) for m in (1, 7, 33) for k in (5, 64) for n in (3, 48)]
    operands = [
        (rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32))
        for m, k, n in shapes
    ]
    expected = [rocpy.matmul(a, b, epilogue="gelu") for a, b in operands]
    capacity = rocpy.plan_cache.info()["capacity"]

    def work(index):
        order = np.random.default_rng(index).integers(0, len(shapes), 150)
        for step, place in enumerate(order):
            assert np.array_equal(rocpy.matmul(*operands[place], epilogue="gelu"), expected[place])
            if index == 0 and step % 10 == 0:
                rocpy.plan_cache.clear()
            elif index == 1 and step % 10 == 0:
                rocpy.plan_cache.resize(step % 7)

    try:
        in_threads(6, work)
    finally:
        rocpy.plan_cache.resize(capacity)
    rocpy.plan_cache.clear()
    assert rocpy.plan_cache.info()["size"] == 0


def test_a_plan_of_each_thread_is_planned_pinned_and_reset_in_parallel(rng):
    b = rng.standard_normal((64, 48), dtype=np.float32)

    def work(index):
        a = np.full((40 + index, 64), index + 1, np.float32)
        with rocpy.Matmul(a, b, options={"dynamic": "m"}) as mm:
            for rounds in range(20):
                mm.plan()
                mm.pin(rounds % len(mm.algorithms))
                np.testing.assert_allclose(mm.execute(), a @ b, rtol=1e-4, atol=1e-3)
                mm.reset_operands(a=a[: 1 + rounds])
                np.testing.assert_allclose(mm.execute(), a[: 1 + rounds] @ b, rtol=1e-4, atol=1e-3)
                mm.reset_operands(a=a)

    in_threads(5, work)


def test_misuse_by_two_threads_is_told_by_every_method():
    a = np.ones((600, 600), np.float32)
    told = []
    with rocpy.Matmul(a, a) as mm:
        mm.plan()
        expected = mm.execute()
        stop = threading.Event()

        def busy():
            while not stop.is_set():
                try:
                    mm.execute()
                except rocpy.RocpyError as error:
                    told.append(str(error))

        thread = threading.Thread(target=busy)
        thread.start()
        try:
            for use in (mm.execute, mm.plan, lambda: mm.pin(0), lambda: mm.reset_operands(alpha=1.0)) * 50:
                try:
                    use()
                except rocpy.RocpyError as error:
                    told.append(str(error))
        finally:
            stop.set()
            thread.join()
        assert all("another thread" in text for text in told)
        np.testing.assert_array_equal(mm.execute(), expected)


def test_close_in_the_midst_of_another_threads_use_is_refused_or_done():
    a = np.ones((500, 500), np.float32)
    for _ in range(10):
        mm = rocpy.Matmul(a, a)
        mm.plan()
        outcomes = []

        def busy(mm=mm, outcomes=outcomes):
            try:
                outcomes.append(mm.execute()[0, 0] == 500)
            except rocpy.RocpyError as error:
                outcomes.append("closed" in str(error) or "another thread" in str(error))

        thread = threading.Thread(target=busy)
        thread.start()
        try:
            mm.close()
        except rocpy.RocpyError as error:
            assert "another thread" in str(error)  # noqa: PT017
        thread.join()
        mm.close()
        assert outcomes == [True]


# ---- the pool of handles and workspaces ----


@contextmanager
def free_memory(functions, share):
    """Let rocpy see that share of the memory as free, and note the status of each new handle."""
    size, total, created = ctypes.POINTER(ctypes.c_size_t), 1 << 36, []
    creating = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    original = creating(functions.slot("hipblasLtCreate").value)

    @ctypes.CFUNCTYPE(ctypes.c_int, size, size)
    def ask(free, all_of_it):
        free[0], all_of_it[0] = int(total * share), total
        return 0

    @creating
    def create(handle):
        created.append(original(handle))
        return created[-1]

    with functions.replaced({"hipMemGetInfo": ask, "hipblasLtCreate": create}):
        yield created


def test_streams_that_take_turns_keep_their_handles(platform_functions):
    a, out = np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32)
    rocpy.plan_cache.clear()
    with ExitStack() as stack:
        streams = [stack.enter_context(rocpy.Stream()) for _ in range(80)]
        with free_memory(platform_functions, 0.75) as created:
            for _ in range(3):
                for stream in streams:
                    rocpy.matmul(a, a, out=out, stream=stream)
        assert created == [0] * len(streams)
        # With less memory the idle handles go that were used longest ago.
        for stream in streams:
            stream.synchronize()
        with free_memory(platform_functions, 0.25) as created:
            another = stack.enter_context(rocpy.Stream())
            for stream in (streams[0], another, streams[0], streams[-1]):
                rocpy.matmul(a, a, out=out, stream=stream)
                stream.synchronize()
            assert created == [0]
            assert rocpy.plan_cache.handles() == 64
            rocpy.matmul(a, a, out=out, stream=streams[1])
            assert created == [0, 0]


def test_handles_are_one_for_each_stream_bounded_and_given_back(platform_functions):
    a = np.ones((32, 32), np.float32)
    # Plans that an earlier test left in a circle keep their handles, as does what still runs; threads may end late.
    deadline = time.monotonic() + 10
    while True:
        gc.collect()
        rocpy.Device(0).synchronize()
        rocpy.plan_cache.clear()
        if rocpy.plan_cache.handles() == 0 or time.monotonic() > deadline:
            break
        time.sleep(0.01)
    assert rocpy.plan_cache.handles() == 0
    for _ in range(3):
        rocpy.matmul(a, a)
    assert rocpy.plan_cache.handles() == 1
    streams = [rocpy.Stream() for _ in range(100)]
    try:
        with free_memory(platform_functions, 0.25):
            for count, stream in enumerate(streams, 2):
                rocpy.matmul(a, a, stream=stream)
                stream.synchronize()
                assert rocpy.plan_cache.handles() <= min(count, 64)
        rocpy.plan_cache.clear()
        assert rocpy.plan_cache.handles() == 0
        assert rocpy.matmul(a, a)[0, 0] == 32
        rocpy.matmul(a, a, stream=streams[0])
        streams[0].synchronize()
        assert rocpy.plan_cache.handles() == 2
    finally:
        for stream in streams:
            stream.close()
    # What the stream was lent is the next one's.
    with rocpy.Stream() as stream:
        rocpy.matmul(a, a, stream=stream)
        assert rocpy.plan_cache.handles() == 2


@contextmanager
def functions_that_wait(functions):
    """Note the calls of the platform's functions that wait for all work of a device."""
    kind, calls = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p), []
    names = ("hipFree", "hipHostFree", "hipblasLtDestroy")
    originals = {name: kind(functions.slot(name).value) for name in names}

    def noting(name):
        def function(argument):
            calls.append(name)
            return originals[name](argument)

        return kind(function)

    with functions.replaced({name: noting(name) for name in names}):
        yield calls


def give_up(stream):
    with pytest.raises(KeyError), stream.capture():
        raise KeyError


def test_streams_and_graphs_that_are_gone_wait_for_nothing_and_leave_their_handles(platform_functions):
    a, out = np.ones((8, 8), np.float32), np.zeros((8, 8), np.float32)
    gc.collect()
    rocpy.plan_cache.clear()

    def release_all():
        stream = rocpy.Stream(nonblocking=True)
        give_up(stream)
        with stream.capture() as empty:
            pass
        with stream.capture() as graph:
            rocpy.matmul(a, a, out=out, stream=stream)
        graph.launch()
        stream.synchronize()
        empty.close()
        graph.close()
        rocpy.matmul(a, a, out=out, stream=stream)
        stream.synchronize()
        stream.close()

    with free_memory(platform_functions, 0.75) as created, functions_that_wait(platform_functions) as calls:
        release_all()
        count = len(created)
        release_all()
    assert calls == []
    assert len(created) == count


def test_a_stream_that_is_collected_does_not_wait_for_the_device():
    """A rank whose thread collects a stream of the other rank's device, on which that one's collective waits for it."""
    started = threading.Event()

    def body(comm):
        x, a = np.ones(4, np.float32), np.ones((32, 32), np.float32)
        if comm.rank == 0:
            stream = rocpy.Stream(0, nonblocking=True)
            work = comm.all_reduce(x, stream=stream, block=False)
            started.set()
            return work.wait().tolist()
        assert started.wait(10)
        before = None
        with rocpy.Device(0):
            for _ in range(3):
                stream = rocpy.Stream(0, nonblocking=True)
                rocpy.matmul(a, a, stream=stream)
                stream.synchronize()
                del stream
                # The next one takes what it was lent.
                assert before in (None, rocpy.plan_cache.handles())
                before = rocpy.plan_cache.handles()
        return comm.all_reduce(x).tolist()

    assert distributed.run_threads(body, 2, timeout_s=10) == [[2.0] * 4] * 2


def test_plans_outlive_a_cleared_pool(rng):
    a = rng.standard_normal((64, 4096), dtype=np.float32)
    with rocpy.Matmul(a, a.T) as mm:
        mm.plan()
        expected = {found.name: mm.execute(algorithm=found) for found in mm.algorithms}
        rocpy.plan_cache.clear()
        for found in mm.algorithms:
            np.testing.assert_array_equal(mm.execute(algorithm=found), expected[found.name])


# ---- fork and exit ----


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.skipif(
    not rocpy.platform.current().host_memory,
    reason="a child has no part in the copies that its parent has on the device",
)
def test_a_child_uses_pins_and_replans_what_its_parent_planned(run_python):
    code = """
        import os, sys
        import numpy as np
        import rocpy
        a = np.random.default_rng(1).standard_normal((200, 200)).astype(np.float32)
        mm = rocpy.Matmul(a, a, options={"dynamic": "m"})
        mm.plan()
        mm.pin(len(mm.algorithms) - 1)
        expected = mm.execute()
        kept = mm.export()
        pid = os.fork()
        right = np.array_equal(mm.execute(), expected)
        mm.reset_operands(a=a[:9])
        right &= np.allclose(mm.execute(), a[:9] @ a, atol=1e-3)
        mm.reset_operands(a=a)
        right &= np.array_equal(mm.execute(), expected) and mm.algorithm.source == "pinned"
        with rocpy.Matmul(a, a) as other:
            other.pin(kept)
            right &= np.array_equal(other.execute(), expected)
        mm.plan()
        mm.close()
        if pid == 0:
            sys.exit(0 if right else 3)
        _, status = os.waitpid(pid, 0)
        assert status == 0, status
        assert right
    """
    assert run_python(code).stderr == ""


def test_exit_with_plans_in_every_state(run_python):
    code = """
        import numpy as np
        import rocpy
        from rocpy.compat import nvmath
        a = np.ones((64, 64), np.float32)
        made, planned, pinned, released, closed, dynamic = [
            rocpy.Matmul(a, a, epilogue="gelu_aux", options={"dynamic": "m"}) for _ in range(6)
        ]
        planned.plan()
        pinned.pin(0)
        released.plan()
        released.release_operands()
        closed.close()
        for m in range(1, 20):
            dynamic.reset_operands(a=a[:m])
            dynamic.execute()
        other = nvmath.linalg.advanced.Matmul(a, a)
        other.plan()
        cycle = [dynamic, other]
        cycle.append(cycle)
    """
    assert run_python(code).stderr == ""
