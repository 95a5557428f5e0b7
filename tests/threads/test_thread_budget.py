# SPDX-License-Identifier: MIT
"""rocpy takes no CPU that belongs to others: of a bound thread, of a DataLoader's worker, of many callers at once."""

from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="one CPU: every budget is one thread, whatever is asked"
)

HEAD = """
    import os, threading, time
    import numpy as np
    import rocpy
    from rocpy.cooperative.cpu import _simt

    a = np.random.default_rng(1).standard_normal((400, 400)).astype(np.float32)
    usual = min(len(os.sched_getaffinity(0)), 256)

    def started():
        # Threads of the process that a product of its own brings.
        before = set(os.listdir("/proc/self/task"))
        for _ in range(3):
            rocpy.matmul(a, a)
        return len(set(os.listdir("/proc/self/task")) - before)

    def on_one_cpu(call):
        # On a thread of its own, which may use one CPU only.
        def bound():
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            call()
        thread = threading.Thread(target=bound)
        thread.start()
        thread.join()
"""
TORCH_OF_ONE_THREAD = (
    HEAD
    + """
    import torch
    torch.set_num_threads(1)
"""
)
# What another program's limits would change.
ENVIRONMENT = {"ROCPY_PLATFORM": "host", "ROCPY_NUM_THREADS": "", "OMP_NUM_THREADS": ""}


def test_thread_bound_to_one_cpu(run_python):
    code = """
    seen = []
    on_one_cpu(lambda: seen.extend([_simt.default_threads(), started()]))
    assert seen == [1, 0], seen
    # It took nothing away from the others.
    assert _simt.default_threads() == int(rocpy.platform.current().info["threads"]) > 1
    assert started() > 0
    """
    run_python(HEAD + code, **ENVIRONMENT)


@pytest.mark.parametrize(
    ("variable", "text", "threads"),
    [
        ("ROCPY_NUM_THREADS", "500", "256"),
        ("OMP_NUM_THREADS", "300", "256"),
        ("OMP_NUM_THREADS", " 3 ", "3"),
        ("OMP_NUM_THREADS", "3,2", "3"),
        ("OMP_NUM_THREADS", "1e1", "usual"),
        ("OMP_NUM_THREADS", "0x4", "usual"),
        ("OMP_NUM_THREADS", "1.5", "usual"),
        ("OMP_NUM_THREADS", "many", "usual"),
    ],
)
def test_numbers_that_the_environment_names(run_python, variable, text, threads):
    code = f"""
    assert int(rocpy.platform.current().info["threads"]) == {threads}
    """
    run_python(HEAD + code, **(ENVIRONMENT | {variable: text}))


def test_pool_is_bound_to_the_process_whoever_starts_it(run_python):
    code = """
    def call():
        before = set(os.listdir("/proc/self/task"))
        assert started() == 2
        pool.update(map(int, set(os.listdir("/proc/self/task")) - before))
    pool = set()
    on_one_cpu(call)
    assert len(pool) == 2
    until = time.monotonic() + 60
    while any(len(os.sched_getaffinity(task)) != usual for task in pool):   # one may not have run yet
        assert time.monotonic() < until
        time.sleep(0.01)
    """
    run_python(HEAD + code, **(ENVIRONMENT | {"ROCPY_NUM_THREADS": "3"}))


def test_many_callers_share_one_pool(run_python):
    code = """
    pool = started()
    assert 0 < pool < usual
    before = set(os.listdir("/proc/self/task"))
    reference = a.astype(np.float64) @ a.astype(np.float64)
    wrong, everyone = [], threading.Barrier(8)
    def call():
        everyone.wait(60)
        for _ in range(10):
            if np.abs(rocpy.matmul(a, a) - reference).max() > 1e-3:
                wrong.append(threading.get_ident())
    callers = [threading.Thread(target=call) for _ in range(8)]
    for caller in callers: caller.start()
    for caller in callers: caller.join()
    assert not wrong
    until = time.monotonic() + 60
    while set(os.listdir("/proc/self/task")) != before:   # threads that have been joined may still be listed
        assert time.monotonic() < until
        time.sleep(0.01)
    """
    run_python(HEAD + code, **ENVIRONMENT)


@pytest.mark.torch
@pytest.mark.slow
def test_torch_says_how_many(run_python):
    code = """
    assert _simt.default_threads() == 1
    assert started() == 0
    torch.set_num_threads(2)
    assert _simt.default_threads() == 2

    class Products(torch.utils.data.Dataset):
        def __len__(self): return 2
        def __getitem__(self, index):
            threads = started()
            return torch.get_num_threads(), _simt.default_threads(), threads

    loader = torch.utils.data.DataLoader(Products(), num_workers=2, multiprocessing_context="fork")
    assert [tuple(map(int, item)) for item in loader] == [(1, 1, 0)] * 2
    assert started() > 0
    """
    run_python(TORCH_OF_ONE_THREAD + code, **ENVIRONMENT)


@pytest.mark.torch
@pytest.mark.slow
def test_own_variable_is_taken_as_it_stands(run_python):
    code = """
    assert _simt.default_threads() == 3
    """
    run_python(TORCH_OF_ONE_THREAD + code, **(ENVIRONMENT | {"ROCPY_NUM_THREADS": "3"}))
