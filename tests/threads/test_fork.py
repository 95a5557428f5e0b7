# SPDX-License-Identifier: MIT
"""Fork after use: the child computes as if it had just started, and the parent goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocpy import _core

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

HEAD = """
    import os, signal, sys, threading, warnings
    import numpy as np
    import rocpy
    warnings.simplefilter("ignore")   # newer Pythons warn of any fork in a process with threads
    a = np.random.default_rng(1).standard_normal((300, 300)).astype(np.float32)
    reference = a.astype(np.float64) @ a.astype(np.float64)

    def right(d=None):
        d = rocpy.matmul(a, a) if d is None else d
        return np.abs(d - reference).max() < 1e-3

    def in_child(work):
        pid = os.fork()
        if pid == 0:
            status = 1
            signal.alarm(30)
            try:
                status = 0 if work() else 2
            finally:
                os._exit(status)
        _, status = os.waitpid(pid, 0)
        assert status == 0, f"child ended with {status}"
        return True
"""


@pytest.mark.parametrize("threads", ["1", "4"])
def test_products_before_and_after(run_python, threads):
    code = """
    assert right()
    for _ in range(5):
        in_child(right)
        assert right()
    """
    run_python(HEAD + code, ROCPY_NUM_THREADS=threads)


def test_fork_without_earlier_use(run_python):
    code = """
    in_child(right)
    assert right()
    """
    run_python(HEAD + code)


def test_a_child_is_not_in_the_capture_of_its_parent(run_python):
    """It lets go of operands, and may wait for work."""
    code = """
    import gc, weakref

    class Array(np.ndarray):
        pass

    def work():
        operand = a.view(Array)
        watched = weakref.ref(operand)
        with rocpy.Stream(nonblocking=True) as other:
            rocpy.matmul(operand, operand, stream=other)
            del operand
            other.synchronize()
            gc.collect()
        with rocpy.Matmul(a[:8, :8], a[:8, :8]) as mm:
            mm.autotune(0.001)
        return watched() is None

    with rocpy.Stream(nonblocking=True) as stream, stream.capture():
        in_child(work)
    """
    run_python(HEAD + code)


def test_plans_weights_and_streams_made_before(run_python):
    code = """
    w = rocpy.Weight(a)
    mm = rocpy.Matmul(a, a)
    mm.plan()
    assert right(mm.execute())
    stream = rocpy.Stream()
    rocpy.matmul(a, a, stream=stream)
    stream.synchronize()

    def work():
        fine = right(mm.execute()) and right(rocpy.matmul(a, w))
        with rocpy.Stream() as fresh:
            d = rocpy.matmul(a, a, stream=fresh)
            fresh.synchronize()
        return fine and right(d)

    in_child(work)
    assert work()

    graphs = [rocpy.Stream(nonblocking=True).capture().__enter__()]

    def drop():
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", rocpy.errors.RocpyWarning)
            graphs.clear()
        return not told

    in_child(drop)
    graphs[0].__exit__(None, None, None)
    """
    run_python(HEAD + code)


def test_children_use_refresh_close_and_drop_weights_of_the_parent(run_python):
    """What a child does with packed weights of its parent touches neither the parent nor other children."""
    code = """
    import gc
    if not rocpy.platform.current().host_memory:
        sys.exit()   # what a plan copied to a device is the parent's, and a child has no device
    source = a.copy()
    weights = [rocpy.Weight(source), rocpy.Weight(source, layout="nk"), rocpy.Weight(source, bias=source[0])]
    plans = [rocpy.Matmul(a, weight) for weight in weights]
    wanted = [a @ source, a @ source.T, a @ source]

    def same(expected):
        return all(
            np.allclose(product, one, rtol=1e-3, atol=1e-3)
            for weight, plan, one in zip(weights, plans, expected)
            for product in (rocpy.matmul(a, weight), plan.execute())
        )

    def using():
        return same(wanted)

    def refreshing():
        source[:] = 2 * source
        for weight in weights:
            weight.refresh()
        return same([2 * one for one in wanted])

    def closing():
        for weight in weights:
            weight.close()
            weight.close()
        for weight in weights:
            try:
                rocpy.matmul(a, weight)
            except rocpy.ClosedError:
                continue
            return False
        return right()

    def dropping():
        weights.clear(), plans.clear()
        gc.collect()
        junk = [rocpy.Weight(a) for _ in range(4)]
        return right() and right(rocpy.matmul(a, junk[3]))

    def by_grandchildren():
        return in_child(using) and in_child(dropping) and using()

    assert same(wanted)
    for work in (using, refreshing, closing, dropping, by_grandchildren):
        in_child(work)
        assert same(wanted)
    """
    run_python(HEAD + code)


def test_fork_while_other_threads_compute(run_python):
    code = """
    stop = threading.Event()
    plain = rocpy.Matmul(a, a)
    own = rocpy.Matmul(a, a, epilogue=rocpy.epilogue(lambda x, r: x * 1.0 + r * 0), epilogue_inputs={"r": a})
    plans = (plain, own)
    for plan in plans: plan.execute()

    def busy(compute):
        while not stop.is_set():
            compute()

    threads = [threading.Thread(target=busy, args=(each,)) for each in (right, *(plan.execute for plan in plans))]
    for thread in threads: thread.start()
    try:
        for _ in range(24):
            in_child(right)
            in_child(lambda: all(right(plan.execute()) for plan in plans))  # which the parent's threads are using
    finally:
        stop.set()
        for thread in threads: thread.join()
    assert right()
    """
    run_python(HEAD + code, timeout_s=120)


def test_first_look_up_is_what_a_fork_waits_for(run_python, tmp_path):
    """What the first look-up of a stored choice imports and opens, another thread's fork must not cut in two."""
    records = tmp_path / "records.json"
    code = """
    assert rocpy.tuning.current().is_empty()
    rocpy.matmul(a, a, autotune=True)
    assert not rocpy.tuning.current().is_empty()
    """
    run_python(HEAD + code, ROCPY_TUNING_DB=str(records))
    code = """
    from rocpy.blaslt.selection import stored
    from rocpy.tuning import _keys
    held, relevant = [], _keys.relevant_variables

    def watched():
        held.append(stored._first_use._is_owned())
        return relevant()

    _keys.relevant_variables = watched
    assert not rocpy.tuning.current().is_empty()
    assert right()
    assert held and held[0]
    """
    run_python(HEAD + code, ROCPY_TUNING_DB=str(records))


def test_no_library_locks_the_making_of_static_variables():
    # A child would wait for the thread that made one when it was forked, which it does not have: about one run in fifty
    # of the test above. Modules of pybind11 have some, which are made while the interpreter's lock is held.
    installed = Path(_core.__file__).parent
    libraries = [path for folder in ("_lib", "_host/lib") for path in (installed / folder).glob("*.so*")]
    assert len(libraries) > 5
    assert not [path.name for path in libraries if b"__cxa_guard_acquire" in path.read_bytes()]


def test_grandchildren(run_python):
    code = """
    assert right()
    in_child(lambda: right() and in_child(right))
    assert right()
    """
    run_python(HEAD + code)


def test_multiprocessing_by_fork(run_python):
    code = """
    import multiprocessing
    assert right()
    with multiprocessing.get_context("fork").Pool(3) as pool:
        found = pool.starmap_async(rocpy.matmul, [(a, a)] * 6).get(timeout=60)
    assert all(right(d) for d in found)
    """
    run_python(HEAD + code, timeout_s=120)


def test_a_child_that_exits_normally(run_python):
    # The child runs the interpreter's whole shutdown with the parent's handles in it.
    code = """
    mm = rocpy.Matmul(a, a)
    mm.plan()
    mm.execute()
    stream = rocpy.Stream()
    w = rocpy.Weight(a)
    pid = os.fork()
    if pid == 0:
        assert right()
        sys.exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    assert right()
    """
    run_python(HEAD + code)
